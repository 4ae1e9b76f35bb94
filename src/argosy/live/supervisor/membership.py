"""Decides who is in the process group of a run, and when that changes: pure logic, without processes or clocks.

Methods report events (`hello`, `ready`, `beat`, `switched`, `broken`, `left`, `lost`); `decide` returns actions. A
membership plan (*plan* for short, here and in the SDK) is a numbered list of members in rank order. Three rules hold:

* A plan is published when all its members are ready, and only after all members have switched to the one before.
* When a member is lost, the others get a recovery plan at once; the replacement joins when it is ready.
* Every plan has a member that holds the training state. If all workers are replaced, one plan has old and new ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from argosy.live.supervisor.membership_actions import Action, Fail, Kill, Publish, Rules, Start, Worker, WorkerState


@dataclass(slots=True)
class Membership:
    """The workers of a run, the plan in force, and the slots that are wanted."""

    rules: Rules = field(default_factory=Rules)
    workers: dict[int, Worker] = field(default_factory=dict)  # those that are alive, by number
    wanted: tuple[str, ...] = ()  # the slots that the run should have
    batch: int | None = None  # samples of a step that the policy wants; None: the script's own
    version: int = 0
    members: tuple[int, ...] = ()
    pending: set[int] = field(default_factory=set)  # members that have not switched to the newest plan
    ending: bool = False  # a worker has said that the training is complete
    replaced: list[float] = field(default_factory=list)
    progress_at: float | None = None  # when the highest step so far was completed; pauses do not count
    _next: int = 0
    _told_batch: int | None = None  # in the newest plan
    _lost_slots: list[str] = field(default_factory=list)
    _waiting_since: float | None = None
    _broken_since: float | None = None
    _recovering: bool = False  # whether the newest plan is a recovery plan
    _leaving_since: float | None = None
    _best_step: int = 0
    _looked_at: float | None = None  # time of the last `decide` or `forgive`
    _unstuck: bool = False  # a hang was handled, and no step was completed since

    # -- events

    def want(self, slots: Iterable[str], now: float) -> None:
        self.wanted, self._waiting_since = tuple(slots), now

    def add(self, slot: str, now: float) -> int:
        """Register a worker that the caller is about to start; return its number."""
        number, self._next = self._next, self._next + 1
        self.workers[number] = Worker(number, slot, now)
        return number

    def hello(self, number: int, now: float) -> None:
        self._reach(number, WorkerState.HELLO, now)

    def ready(self, number: int, now: float) -> None:
        self._reach(number, WorkerState.READY, now)

    def beat(self, number: int, step: int, now: float, waits: bool | None = None) -> None:
        if worker := self.workers.get(number):
            worker.heard, worker.step = now, max(step, worker.step)
            if step > self._best_step:
                self._best_step, self.progress_at, self._unstuck = step, now, False
            worker.waits = worker.waits if waits is None else waits

    def broken(self, number: int, version: int, now: float) -> None:
        """Note that a member reports the process group of this plan as broken.

        This is ignored for an older plan if the member has already switched to the newest, or will switch at once
        because that is a recovery plan. To switch to any other plan it needs the group of the plan before.
        """
        outdated = 0 <= version < self.version and (number not in self.pending or self._recovering)
        if number in self.members and self._broken_since is None and not outdated:
            self._broken_since = now

    def switched(self, number: int, version: int, now: float) -> None:
        if worker := self.workers.get(number):
            worker.heard, worker.has_state = now, True
            if version == self.version:
                self.pending.discard(number)

    def done(self, number: int | None = None) -> None:
        """Note that the training is complete; this worker will send nothing more."""
        self.ending = True
        if number is not None:
            self.workers.pop(number, None)

    def lost(self, number: int) -> None:
        """Note that a worker has died, or is treated as dead."""
        worker = self.workers.pop(number, None)
        if worker is not None and worker.state is not WorkerState.LEAVING and worker.slot in self.wanted:
            self._lost_slots.append(worker.slot)

    left = lost

    def cut_off(self, number: int) -> None:
        """Note that the host of a worker cannot be reached. That is not the worker's fault, so it is not counted.

        If it was about to leave, members that have not switched yet wait for it in the group of the plan before, whose
        connections do not break: so the group is formed again at once.
        """
        worker = self.workers.pop(number, None)
        if worker is not None and worker.state is WorkerState.LEAVING and self.pending:
            self._broken_since = -math.inf

    @property
    def state_is_lost(self) -> bool:
        """Return whether training had begun, and no worker that is left has its state."""
        return self.version > 0 and not any(worker.has_state for worker in self.workers.values())

    def forgive(self, now: float) -> None:
        """Restart all timers after a pause, or after this process itself was held up: that time must not count."""
        for worker in self.workers.values():
            worker.heard = now
        if self.progress_at is not None and self._looked_at is not None:
            self.progress_at += now - self._looked_at
        self._looked_at = now

    # -- state

    @property
    def settled(self) -> bool:
        """Return whether the workers on exactly the wanted slots have switched to the newest plan."""
        slots = sorted(self.workers[number].slot for number in self.members if number in self.workers)
        everybody = set(self.workers) == set(self.members)
        told = self.batch == self._told_batch
        return bool(self.version) and not self.pending and everybody and told and slots == sorted(self.wanted)

    # -- decisions

    def decide(self, now: float) -> list[Action]:
        self._looked_at = now
        if self.ending:
            return [*self._silent(now), *self._not_ended(now)]
        actions: list[Action] = list(self._judge(now))
        if any(isinstance(action, Fail) for action in actions):
            return actions
        if self.version and (recovery := self._recover(now)):
            actions.append(recovery)
            if isinstance(recovery, Fail):
                return actions
        actions += self._unwanted()
        actions += self._newcomers(now)
        if plan := self._next_plan(now):
            actions.append(plan)
        return actions

    def _judge(self, now: float) -> Iterable[Kill | Fail]:
        """Find workers without a heartbeat, leavers that do not leave, and training that makes no progress."""
        for worker in list(self.workers.values()):
            if worker.state is WorkerState.LEAVING:
                since = self._leaving_since
                if not self.pending and since is not None and now - since > self.rules.leave_s:
                    self.lost(worker.number)
                    yield Kill(worker.number, f"did not leave within {self.rules.leave_s:g} s")
        yield from self._silent(now)
        yield from self._stuck(now)

    def _silent(self, now: float) -> Iterable[Kill]:
        for worker in list(self.workers.values()):
            at_work = worker.state is not WorkerState.STARTING
            if worker.state is WorkerState.LEAVING:  # as long as others need it to leave the group of the plan before
                at_work = bool(self.pending)
            if at_work and now - worker.heard > self.rules.hang_s:
                self.lost(worker.number)
                yield Kill(worker.number, f"gave no sign of life for {self.rules.hang_s:g} s")

    def _hangs(self, now: float) -> bool:
        """Return whether no step was completed for too long. A heartbeat proves nothing: another thread sends it."""
        if self.progress_at is None:
            self.progress_at = now
        return now - self.progress_at > self.rules.stuck_s

    def _stuck(self, now: float) -> Iterable[Kill | Fail]:
        """Handle a hang: kill the workers that others wait for or, if all wait, form the group again.

        If no worker waits, or the training hangs again before another step is completed, the run fails.
        """
        if not self._hangs(now):
            return
        members = [self.workers[number] for number in self.members if number in self.workers]
        waiting = [worker for worker in members if worker.waits]
        if self._unstuck or not waiting:
            what = f"its workers are alive, but completed no step for {self.rules.stuck_s:g} s"
            yield Fail(f"{what}; hang_after: in the job file sets this limit")
            return
        self._unstuck, self.progress_at = True, now
        for worker in members:
            if not worker.waits:
                self.lost(worker.number)
                yield Kill(worker.number, f"completed no step for {self.rules.stuck_s:g} s, and others wait for it,")
        if len(waiting) == len(members):
            self._broken_since = -math.inf

    def _not_ended(self, now: float) -> Iterable[Kill]:
        """Kill workers that have not ended long after another worker completed the training."""
        for worker in list(self.workers.values()) if self._hangs(now) else ():
            self.lost(worker.number)
            yield Kill(worker.number, f"had not ended {self.rules.stuck_s:g} s after the training was complete")

    def _recover(self, now: float) -> Publish | Fail | None:
        died = any(number not in self.workers for number in self.members)
        broken = self._broken_since is not None and now - self._broken_since > self.rules.broken_s
        if not died and not broken:
            return None
        alive = [number for number in self.members if number in self.workers]
        if not any(self.workers[number].has_state for number in alive):  # but a leaver may
            leaving = [worker for worker in self.workers.values() if worker.state is WorkerState.LEAVING]
            alive += [worker.number for worker in leaving if worker.has_state]
        if self.version == 1 and self.pending and alive:
            pass  # no step was done yet, so no state can be lost
        elif not any(self.workers[number].has_state for number in alive):
            return Fail("all workers that held the state of the training are lost")
        return self._publish(alive, recover=True, now=now)

    def _unwanted(self) -> Iterable[Kill]:
        """Kill new workers whose slot is no longer wanted; they do not hold any training state yet."""
        for worker in list(self.workers.values()):
            newcomer = worker.number not in self.members and worker.state <= WorkerState.READY
            if newcomer and worker.slot not in self.wanted:
                self.lost(worker.number)
                yield Kill(worker.number, "is no longer needed")

    def _newcomers(self, now: float) -> Iterable[Start | Fail]:
        held = [worker.slot for worker in self.workers.values() if worker.state is not WorkerState.LEAVING]
        for slot in self.wanted:
            if slot in held:
                held.remove(slot)
                continue
            if slot in self._lost_slots:
                self._lost_slots.remove(slot)
                self.replaced = [t for t in self.replaced if now - t < self.rules.window_s] + [now]
                if len(self.replaced) > self.rules.replacements:
                    minutes = self.rules.window_s / 60
                    yield Fail(f"more than {self.rules.replacements} workers were lost within {minutes:g} minutes")
                    return
            self._waiting_since = now
            yield Start(self.add(slot, now), slot)

    def _next_plan(self, now: float) -> Publish | None:
        if self.pending:
            return None
        free, able = list(self.wanted), []
        for worker in self.workers.values():
            if worker.slot in free and worker.state in (WorkerState.READY, WorkerState.MEMBER):
                free.remove(worker.slot)
                able.append(worker.number)
        if not able or (set(able) == set(self.members) and self.batch == self._told_batch):
            return None
        late = self._waiting_since is not None and now - self._waiting_since > self.rules.patience_s
        if free and not late:
            return None
        stay = [number for number in self.members if number in able]
        if self.version and not stay:
            stay = list(self.members)
        return self._publish([*stay, *(number for number in sorted(able) if number not in stay)], False, now)

    def _publish(self, members: Sequence[int], recover: bool, now: float) -> Publish:
        self.version += 1
        leavers = tuple(n for n in self.members if n not in members and n in self.workers)
        for number in leavers:
            self.workers[number].state = WorkerState.LEAVING
            self._leaving_since = now
        for number in members:
            self.workers[number].state = WorkerState.MEMBER
        self.members, self.pending, self._broken_since = tuple(members), set(members), None
        self._recovering, self._told_batch = recover, self.batch
        return Publish(self.version, self.members, leavers, recover, self.batch)

    def _reach(self, number: int, state: WorkerState, now: float) -> None:
        if worker := self.workers.get(number):
            worker.heard = now
            worker.state = max(worker.state, state)
