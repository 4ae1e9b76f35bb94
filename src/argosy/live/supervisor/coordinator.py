"""Carries out what `plans` decides for a run whose workers use the SDK, and tells `plans` what the workers say."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from argosy.live.backends.base import Phase
from argosy.live.supervisor.membership import Crew, Fail, Kill, Publish, Rules, Stage, Start
from argosy.live.supervisor.message_server import Line, Message
from argosy.live.supervisor.places import Places
from argosy.live.supervisor.processes import Team
from argosy.live.supervisor.rendezvous import Rendezvous
from argosy.live.supervisor.status import StatusKeeper


class Conductor:
    def __init__(self, run: Mapping[str, Any], places: Places, team: Team, rendezvous: Rendezvous,
                 status: StatusKeeper, rules: Rules, start_worker: Callable[[int, tuple[str, ...]], None],
                 fail: Callable[[int, str], None]) -> None:
        self.places, self.team, self.rendezvous, self.status = places, team, rendezvous, status
        self.start_worker, self.fail = start_worker, fail
        self.kind = "resume" if run["restore"] else "start"
        self.asked_at: float = run["asked_at"]
        self.crew = Crew(rules)
        self._change: tuple[float, tuple[str, ...]] | None = None  # when other slots were asked for, and those before
        self._recovering_since: float | None = None
        self._worst_gap = 0.0
        self._rest = 0  # the number of the rest that workers were asked to take; 0: none

    # -- what is wanted

    def want(self, slots: tuple[str, ...]) -> None:
        if sorted(slots) != sorted(self.crew.wanted):
            if self.crew.version and self._change is None:
                self._change = (time.monotonic(), self.crew.wanted)
            self.crew.want(slots, time.monotonic())
        self.decide()

    def rest(self, number: int) -> None:
        """Another job has its turn soon: make room. The number tells one rest from another."""
        self._rest = number
        self._tell_all({"op": "rest", "number": number})

    def wake(self) -> None:
        self._rest = 0
        self._tell_all({"op": "wake"})

    @property
    def rests(self) -> bool:
        """Everybody who can has made room; one that has not come to its first batch has not much."""
        at_work = [n for n, worker in self.crew.workers.items() if worker.stage in (Stage.READY, Stage.MEMBER)]
        members = [self.team.members[n] for n in at_work if n in self.team.members]
        return all(one.rested == self._rest for one in members if one.rests and one.line is not None)

    def _tell_all(self, message: Message) -> None:
        for member in self.team.members.values():
            if member.line is not None and member.rests:
                member.line.send(message)

    # -- what workers say

    def hear(self, line: Line, message: Message) -> None:
        op, now = message.get("op"), time.monotonic()
        if op == "hello":
            self._greet(line, message, now)
            return
        number = line.worker
        if number is None or number not in self.team.members:
            return
        if op == "beat":
            busy = message.get("busy")
            self.crew.beat(number, whole(message.get("step")), now, not busy if isinstance(busy, bool) else None)
            return
        if op == "report":
            self.crew.beat(number, whole(message.get("step")), now)
            self.status.take_report(message)
            return
        if op == "ready":
            self.crew.ready(number, now)
        elif op == "switched":
            self._note_switch(number, message, now)
        elif op == "broken":
            self.crew.broken(number, whole(message.get("version")), now)
        elif op == "checkpoint":
            self.status.take_checkpoint(message)
        elif op == "checkpoint_failed":
            step = whole(message.get("step"))
            self.status.message = f"the checkpoint at step {step} failed: {text(message, 'error')}"
            self.status.tell(self.status.message)
        elif op == "story":
            self.status.tell(text(message, "text"))
        elif op == "rested":
            self.team.members[number].rested = whole(message.get("number"))
        elif op == "left":
            self.team.members[number].left = True
            if number in self.crew.members:  # nobody told it to: a signal from somebody else, which all of them obey
                self.crew.ending = True
            self.crew.left(number)
        elif op == "done":
            self.team.members[number].done = True
            self.crew.done(number)
            self._dismiss()
        self.decide()

    def _dismiss(self) -> None:
        """The training is complete: those who had no part in it may go, also if they are members of the next plan."""
        for number, member in self.team.members.items():
            worker = self.crew.workers.get(number)
            if number not in self.crew.members or (worker is not None and not worker.has_state):
                if member.line is not None:
                    member.line.send({"op": "suspend", "deadline_s": 1.0})
                else:
                    self.team.kill(number, "is no longer needed")

    def _greet(self, line: Line, message: Message, now: float) -> None:
        number = whole(message.get("worker"))
        member = self.team.members.get(number)
        if member is None or member.line is not None or number not in self.crew.workers:
            line.server.drop(line)
            return
        line.worker, member.connection, member.rests = number, line, message.get("rests") is True
        if message.get("fixed") is True:  # it reports and saves, but stays as it is: one that is started anew to resize
            return
        if not self.status.hot:
            self.status.hot, self.status.changed = True, True
        self.crew.hello(number, now)
        if self._rest and member.rests:
            line.send({"op": "rest", "number": self._rest})
        if self.crew.ending:
            self._dismiss()
        self.team.pin(number, self.places.cpus([self.crew.workers[number].slot]))

    def _note_switch(self, number: int, message: Message, now: float) -> None:
        self.crew.switched(number, whole(message.get("version")), now)
        gap = message.get("gap_s")
        if isinstance(gap, int | float) and math.isfinite(gap):
            self._worst_gap = max(self._worst_gap, float(gap))
        if self.status.phase is Phase.STARTING:
            self.status.phase = Phase.RUNNING
        if self.crew.pending:
            return
        self.rendezvous.forget(self.crew.version - 1)
        gap_s = round(self._worst_gap, 4)
        if self.kind:
            workers, warm = len(self.crew.members), self.team.nursery.warm
            self.status.measured(self.kind, time.time() - self.asked_at, workers=workers, warm=warm)
            self.kind = ""
        if self._recovering_since is not None:
            self.status.measured("recover", now - self._recovering_since, gap_s=gap_s, workers=len(self.crew.members))
            self._recovering_since = None
        at_work = sorted(self.crew.workers[n].slot for n in self.crew.members if n in self.crew.workers)
        if self._change is not None and at_work == sorted(self.crew.wanted):
            since, before = self._change
            kind = "resize" if len(before) != len(at_work) else "migrate"
            counts = {"from": len(before), "to": len(at_work)}
            self.status.measured(kind, now - since, gap_s=gap_s, **counts)
            self._change = None
        if self._change is None:
            self._worst_gap = 0.0

    # -- what happens to workers

    def ended(self, number: int, code: int, *, gone: bool) -> None:
        """A worker has ended that we did not ask to. Fails the run where it can not go on."""
        worker = self.crew.workers.get(number)
        stage, has_state = (worker.stage, worker.has_state) if worker else (Stage.LEAVING, False)
        if code == 0 and not gone and (stage is Stage.MEMBER or not self.crew.version):
            self.crew.done()  # it ended in order, without the closing words
        self.crew.lost(number)
        if not self.team.members:  # that was the last one
            return
        if gone or stage is Stage.LEAVING or self.crew.ending:
            self.decide()
            return
        if code > 0 and (has_state or not self.crew.version):  # an error of the program, not of the machine
            self.fail(code, "")
            return
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        self.status.tell(f"worker {number} {how}; the others go on and another takes its place")
        self.decide()

    def decide(self) -> None:
        now = time.monotonic()
        for action in self.crew.decide(now) if self.status.hot else ():
            match action:
                case Start(number, slot):
                    self.start_worker(number, (slot,))
                case Publish():
                    if action.recover:
                        self._recovering_since = self._recovering_since or now
                    self._send_plan(action)
                case Kill(number, why):
                    self.status.tell(f"worker {number} {why} and was killed")
                    self.team.kill(number, why)
                case Fail(why):
                    self.fail(1, why)
                    break
        self.status.restarts = len(self.crew.replaced)

    def _send_plan(self, plan: Publish) -> None:
        devices = {
            str(number): None if self.places.devices(member.slots) is None else 0
            for number in plan.members
            if (member := self.team.members.get(number))
        }
        message = {
            "op": "plan", "version": plan.version, "members": list(plan.members), "recover": plan.recover,
            "store": self.rendezvous.place(plan.version),
            "devices": devices,
        }
        told = [self.team.members[n] for n in (*plan.members, *plan.leavers) if n in self.team.members]
        for member in told:
            if member.line is not None and plan.recover:
                member.line.send({"op": "shut"})
        for member in told:
            if member.line is not None:
                member.line.send(message)


def whole(value: object) -> int:
    """A whole number that a worker sent, or -1."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else -1


def text(message: Message, key: str) -> str:
    value = message.get(key)
    return value[:500] if isinstance(value, str) else ""
