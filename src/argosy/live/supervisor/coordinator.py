"""Connects `membership` to the workers of a run: passes their messages on to it, and carries out its decisions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from argosy.live.backends.base import Phase
from argosy.live.supervisor.membership import Membership
from argosy.live.supervisor.membership_actions import Fail, Kill, Publish, Rules, Start, WorkerState
from argosy.live.supervisor.message_server import Connection, Message
from argosy.live.supervisor.places import Places
from argosy.live.supervisor.processes import WorkerProcesses
from argosy.live.supervisor.rendezvous import Rendezvous
from argosy.live.supervisor.status import StatusKeeper


class Coordinator:
    """Coordinates the workers of one run, which use the SDK."""

    def __init__(
        self,
        run: Mapping[str, Any],
        places: Places,
        processes: WorkerProcesses,
        rendezvous: Rendezvous,
        status: StatusKeeper,
        rules: Rules,
        start_worker: Callable[[int, tuple[str, ...]], None],
        fail: Callable[[int, str], None],
    ) -> None:
        self.places, self.processes, self.rendezvous, self.status = places, processes, rendezvous, status
        self.start_worker, self.fail = start_worker, fail
        self.kind = "resume" if run["restore"] else "start"
        self.asked_at: float = run["asked_at"]
        self.membership = Membership(rules)
        self._change: tuple[float, tuple[str, ...]] | None = None  # when the slots were changed, and the old slots
        self._recovering_since: float | None = None
        self._worst_gap = 0.0
        self._rest = 0  # the pause for which workers were asked to free their devices; 0: none

    # -- slots and pauses

    def want(self, slots: tuple[str, ...], batch: int | None = None) -> None:
        """Have the run on these slots, with this global batch (None: what the script says)."""
        self.membership.batch = batch
        if sorted(slots) != sorted(self.membership.wanted):
            if sorted(slots) == self._at_work():  # it has lost the other workers before, and recovered
                self._change = None
            elif self.membership.version and self._change is None:
                self._change = (time.monotonic(), self.membership.wanted)
            self.membership.want(slots, time.monotonic())
        self.decide()

    def rest(self, number: int) -> None:
        """Ask the workers to free their devices for another job's turn; `number` identifies the pause."""
        self._rest = number
        self._tell_all({"op": "rest", "number": number})

    def wake(self) -> None:
        self._rest = 0
        self._tell_all({"op": "wake"})

    @property
    def rests(self) -> bool:
        """Return whether all workers that can free their device have done so.

        Workers that have not reached their first batch are not waited for, because they hold little memory.
        """
        working = (WorkerState.READY, WorkerState.MEMBER)
        at_work = [n for n, worker in self.membership.workers.items() if worker.state in working]
        members = [self.processes.alive[n] for n in at_work if n in self.processes.alive]
        return all(one.rested == self._rest for one in members if one.rests and one.open_connection is not None)

    def _tell_all(self, message: Message) -> None:
        for member in self.processes.alive.values():
            if member.open_connection is not None and member.rests:
                member.open_connection.send(message)

    # -- messages from workers

    def hear(self, connection: Connection, message: Message) -> None:
        op, now = message.get("op"), time.monotonic()
        if op == "hello":
            self._greet(connection, message, now)
            return
        number = connection.worker
        if number is None or number not in self.processes.alive:
            return
        if op == "beat":
            busy = message.get("busy")
            self.membership.beat(number, whole(message.get("step")), now, not busy if isinstance(busy, bool) else None)
            return
        if op == "report":
            self.membership.beat(number, whole(message.get("step")), now)
            self.status.take_report(message)
            return
        if op == "ready":
            self.membership.ready(number, now)
        elif op == "switched":
            self._note_switch(number, message, now)
        elif op == "broken":
            self.membership.broken(number, whole(message.get("version")), now)
        elif op == "checkpoint":
            self.status.take_checkpoint(message)
        elif op == "checkpoint_failed":
            step = whole(message.get("step"))
            self.status.message = f"the checkpoint at step {step} failed: {text(message, 'error')}"
            self.status.tell(self.status.message)
        elif op == "story":
            self.status.tell(text(message, "text"))
        elif op == "rested":
            self.processes.alive[number].rested = whole(message.get("number"))
        elif op == "left":
            self.processes.alive[number].left = True
            if number in self.membership.members:  # it got a signal from outside; then all workers leave
                self.membership.ending = True
            self.membership.left(number)
        elif op == "done":
            self.processes.alive[number].done = True
            self.membership.done(number)
            self._dismiss()
        self.decide()

    def _dismiss(self) -> None:
        """End workers that took no part in the training, which is complete, even if they are in the newest plan."""
        for number, member in self.processes.alive.items():
            worker = self.membership.workers.get(number)
            if number not in self.membership.members or (worker is not None and not worker.has_state):
                if member.open_connection is not None:
                    member.open_connection.send({"op": "suspend", "deadline_s": 1.0})
                else:
                    self.processes.kill(number, "is no longer needed")

    def _greet(self, connection: Connection, message: Message, now: float) -> None:
        number = whole(message.get("worker"))
        member = self.processes.alive.get(number)
        if member is None or member.open_connection is not None or number not in self.membership.workers:
            connection.server.drop(connection)
            return
        connection.worker, member.connection, member.rests = number, connection, message.get("rests") is True
        if message.get("fixed") is True:  # it uses an adapter: it reports and saves, but is resized only by a restart
            return
        if not self.status.hot:
            self.status.hot, self.status.changed = True, True
        self.membership.hello(number, now)
        if self._rest and member.rests:
            connection.send({"op": "rest", "number": self._rest})
        if self.membership.ending:
            self._dismiss()
        self.processes.pin(number, self.places.cpus([self.membership.workers[number].slot]))

    def _note_switch(self, number: int, message: Message, now: float) -> None:
        self.membership.switched(number, whole(message.get("version")), now)
        gap = message.get("gap_s")
        if isinstance(gap, int | float) and math.isfinite(gap):
            self._worst_gap = max(self._worst_gap, float(gap))
        if self.status.phase is Phase.STARTING:
            self.status.phase = Phase.RUNNING
        if self.membership.pending:
            return
        self.rendezvous.forget(self.membership.version - 1)
        gap_s = round(self._worst_gap, 4)
        if self.kind:
            workers, warm = len(self.membership.members), self.processes.spawner.warm
            self.status.measured(self.kind, time.time() - self.asked_at, workers=workers, warm=warm)
            self.kind = ""
        if self._recovering_since is not None:
            workers = len(self.membership.members)
            self.status.measured("recover", now - self._recovering_since, gap_s=gap_s, workers=workers)
            self._recovering_since = None
        at_work = self._at_work()
        if self._change is not None and at_work == sorted(self.membership.wanted):
            since, before = self._change
            kind = "resize" if len(before) != len(at_work) else "migrate"
            counts = {"from": len(before), "to": len(at_work)}
            self.status.measured(kind, now - since, gap_s=gap_s, **counts)
            self._change = None
        if self._change is None:
            self._worst_gap = 0.0

    def _at_work(self) -> list[str]:
        known = self.membership.workers
        return sorted(known[n].slot for n in self.membership.members if n in known)

    # -- ends of workers, and decisions

    def ended(self, number: int, code: int, *, gone: bool) -> None:
        """Handle the end of a worker while the run goes on; fail the run if its program failed.

        `gone` says that the worker announced its end.
        """
        worker = self.membership.workers.get(number)
        state, has_state = (worker.state, worker.has_state) if worker else (WorkerState.LEAVING, False)
        if code == 0 and not gone and (state is WorkerState.MEMBER or not self.membership.version):
            self.membership.done()  # the script has ended normally without reporting that it is done
        self.membership.lost(number)
        if not self.processes.alive:  # it was the last one
            return
        if gone or state is WorkerState.LEAVING or self.membership.ending:
            self.decide()
            return
        if code > 0 and (has_state or not self.membership.version):  # the script failed: a new worker would too
            self.fail(code, "")
            return
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        self.status.tell(f"worker {number} {how}; the other workers go on, and a new one replaces it")
        self.decide()

    def decide(self) -> None:
        now = time.monotonic()
        for action in self.membership.decide(now) if self.status.hot else ():
            match action:
                case Start(number, slot):
                    self.start_worker(number, (slot,))
                case Publish():
                    if action.recover:
                        self._recovering_since = self._recovering_since or now
                    self._send_plan(action)
                case Kill(number, why):
                    self.status.tell(f"worker {number} {why} and was killed")
                    self.processes.kill(number, why)
                case Fail(why):
                    self.fail(1, why)
                    break
        self.status.restarts = len(self.membership.replaced)

    def _send_plan(self, plan: Publish) -> None:
        devices = {
            str(number): None if self.places.devices(member.slots) is None else 0
            for number in plan.members
            if (member := self.processes.alive.get(number))
        }
        message = {
            "op": "plan",
            "version": plan.version,
            "members": list(plan.members),
            "recover": plan.recover,
            "batch": plan.batch,
            "store": self.rendezvous.place(plan.version),
            "devices": devices,
        }
        receivers = [self.processes.alive[n] for n in (*plan.members, *plan.leavers) if n in self.processes.alive]
        for member in receivers:
            if member.open_connection is not None and plan.recover:
                member.open_connection.send({"op": "shut"})
        for member in receivers:
            if member.open_connection is not None:
                member.open_connection.send(message)


def whole(value: object) -> int:
    """Return an integer that a worker sent; -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else -1


def text(message: Message, key: str) -> str:
    value = message.get(key)
    return value[:500] if isinstance(value, str) else ""
