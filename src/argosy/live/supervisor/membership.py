"""Who is in the process group of a run, and when it changes: pure logic, without processes, sockets or clocks.

Events are noted (`hello`, `ready`, `beat`, `switched`, `broken`, `left`, `lost`); `decide` then says what is to be
done. A plan is a numbered list of members in rank order. Three rules:

* A plan is published when all its members are ready, and only after the one before has been taken up by all.
* When a member is lost, those that are left get a plan to recover with at once; its successor joins when it is ready.
* Every plan has a member that holds the state of the training. Where nobody stays, old and new first meet in one plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum


class WorkerState(IntEnum):
    STARTING = 0  # the process runs, the SDK has not been heard
    HELLO = 1
    READY = 2  # at its first batch
    MEMBER = 3
    LEAVING = 4


@dataclass(slots=True)
class Worker:
    number: int
    slot: str
    heard: float
    state: WorkerState = WorkerState.STARTING
    step: int = -1
    has_state: bool = False
    waits: bool | None = None  # for the others, in a step; None: it has not said


@dataclass(frozen=True, slots=True)
class Start:
    number: int
    slot: str


@dataclass(frozen=True, slots=True)
class Publish:
    version: int
    members: tuple[int, ...]  # in rank order
    leavers: tuple[int, ...] = ()  # they too must hear of it
    recover: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    why: str


Action = Start | Publish | Kill | Fail


@dataclass(slots=True)
class Rules:
    hang_s: float = 30.0  # no sign of life for so long: the worker hangs
    stuck_s: float = 7200.0  # all give signs of life, but no step is completed for so long: the training hangs
    patience_s: float = 20.0  # go on without newcomers that are not ready by then
    leave_s: float = 10.0  # a leaver that has not gone by then is killed
    broken_s: float = 1.0  # a broken group in which nobody has died is formed again after this
    replacements: int = 5  # so many lost workers are replaced …
    window_s: float = 600.0  # … within this time


@dataclass(slots=True)
class Membership:
    rules: Rules = field(default_factory=Rules)
    workers: dict[int, Worker] = field(default_factory=dict)  # the living
    wanted: tuple[str, ...] = ()  # slots
    version: int = 0
    members: tuple[int, ...] = ()
    pending: set[int] = field(default_factory=set)  # members that have not taken up the newest plan
    ending: bool = False  # somebody has said that the training is done
    replaced: list[float] = field(default_factory=list)
    progress_at: float | None = None  # when a step was completed that nobody had before; pauses do not count
    _next: int = 0
    _lost_slots: list[str] = field(default_factory=list)
    _waiting_since: float | None = None
    _broken_since: float | None = None
    _recovering: bool = False  # the newest plan is one to recover with
    _leaving_since: float | None = None
    _best_step: int = 0
    _looked_at: float | None = None  # when something was last decided or forgiven
    _unstuck: bool = False  # without a step since then, something was done about it already

    # -- events

    def want(self, slots: Iterable[str], now: float) -> None:
        self.wanted, self._waiting_since = tuple(slots), now

    def add(self, slot: str, now: float) -> int:
        """A worker that somebody starts; its number."""
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
        """The group of this plan does not work for a member.

        An older plan's no longer matters if the worker has taken up the newest, or will at once because it is one to
        recover with. Into any other plan the group of the one before would have to lead it, so that one counts.
        """
        over = 0 <= version < self.version and (number not in self.pending or self._recovering)
        if number in self.members and self._broken_since is None and not over:
            self._broken_since = now

    def switched(self, number: int, version: int, now: float) -> None:
        if worker := self.workers.get(number):
            worker.heard, worker.has_state = now, True
            if version == self.version:
                self.pending.discard(number)

    def done(self, number: int | None = None) -> None:
        """The training is complete; this worker has said all it had to say."""
        self.ending = True
        if number is not None:
            self.workers.pop(number, None)

    def lost(self, number: int) -> None:
        """It died, or is as good as dead."""
        worker = self.workers.pop(number, None)
        if worker is not None and worker.state is not WorkerState.LEAVING and worker.slot in self.wanted:
            self._lost_slots.append(worker.slot)

    left = lost

    def forgive(self, now: float) -> None:
        """They could not be heard, or could not speak: a pause, or this process itself was held up."""
        for worker in self.workers.values():
            worker.heard = now
        if self.progress_at is not None and self._looked_at is not None:
            self.progress_at += now - self._looked_at
        self._looked_at = now

    # -- what is

    @property
    def settled(self) -> bool:
        """Exactly the wanted slots are at work, and nobody else."""
        slots = sorted(self.workers[number].slot for number in self.members if number in self.workers)
        everybody = set(self.workers) == set(self.members)
        return bool(self.version) and not self.pending and everybody and slots == sorted(self.wanted)

    # -- what to do

    def decide(self, now: float) -> list[Action]:
        self._looked_at = now
        if self.ending:
            return [*self._silent(now), *self._without_end(now)]
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
        """Workers that are silent, leavers that do not leave, and a training that does not get on."""
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
            at_work = worker.state not in (WorkerState.STARTING, WorkerState.LEAVING)
            if at_work and now - worker.heard > self.rules.hang_s:
                self.lost(worker.number)
                yield Kill(worker.number, f"gave no sign of life for {self.rules.hang_s:g} s")

    def _hangs(self, now: float) -> bool:
        """Has no step been completed for too long? Signs of life are none of progress: they come from other threads."""
        if self.progress_at is None:
            self.progress_at = now
        return now - self.progress_at > self.rules.stuck_s

    def _stuck(self, now: float) -> Iterable[Kill | Fail]:
        """Those for whom others wait are to blame; where all wait the group is formed again. That is tried once."""
        if not self._hangs(now):
            return
        members = [self.workers[number] for number in self.members if number in self.workers]
        waiting = [worker for worker in members if worker.waits]
        if self._unstuck or not waiting:
            yield Fail(f"its workers live, but completed no step for {self.rules.stuck_s:g} s (see hang_after:)")
            return
        self._unstuck, self.progress_at = True, now
        for worker in members:
            if not worker.waits:
                self.lost(worker.number)
                yield Kill(worker.number, f"completed no step for {self.rules.stuck_s:g} s, and others wait for it,")
        if len(waiting) == len(members):
            self._broken_since = -math.inf

    def _without_end(self, now: float) -> Iterable[Kill]:
        """When the training is complete for one, the others cannot take much longer."""
        for worker in list(self.workers.values()) if self._hangs(now) else ():
            self.lost(worker.number)
            yield Kill(worker.number, f"did not end for {self.rules.stuck_s:g} s after others had")

    def _recover(self, now: float) -> Publish | Fail | None:
        died = any(number not in self.workers for number in self.members)
        broken = self._broken_since is not None and now - self._broken_since > self.rules.broken_s
        if not died and not broken:
            return None
        alive = [number for number in self.members if number in self.workers]
        if not any(self.workers[number].has_state for number in alive):  # who was about to leave has it still
            leaving = [worker for worker in self.workers.values() if worker.state is WorkerState.LEAVING]
            alive += [worker.number for worker in leaving if worker.has_state]
        if self.version == 1 and self.pending and alive:
            pass  # nobody has taken a step yet: there is no state to lose
        elif not any(self.workers[number].has_state for number in alive):
            return Fail("no worker is left that holds the state of the training")
        return self._publish(alive, recover=True, now=now)

    def _unwanted(self) -> Iterable[Kill]:
        """Newcomers whose slot is no longer asked for: they hold nothing that could be lost."""
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
        if not able or set(able) == set(self.members):
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
        self._recovering = recover
        return Publish(self.version, self.members, leavers, recover)

    def _reach(self, number: int, state: WorkerState, now: float) -> None:
        if worker := self.workers.get(number):
            worker.heard = now
            worker.state = max(worker.state, state)
