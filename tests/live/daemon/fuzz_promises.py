"""What a daemon promises, checked after every rule of `fuzz_machine`, and how its rules ask the daemon.

No job is lost, none runs twice at once, no number is used again, no limit is exceeded by what starts, states follow
each other legally, every change has its entry in the audit log, and memory holds what is on the disk.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fuzz_daemon import BEGAN_AT, Answer, SteppedDaemon
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from argosy.live.states import ENDED, LEGAL, State
from argosy.live.store import Store

SEVERAL_LINES = {"submit", "cancel"}  # in the audit log: one for each range of jobs


@dataclass
class Known:
    """What the daemon has acknowledged so far; each backup has a copy of it."""

    owners: dict[int, str] = field(default_factory=dict)  # of every job that was taken in
    states: dict[int, State] = field(default_factory=dict)  # as they were seen last
    ended: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # results, which never change
    audited: Counter[str] = field(default_factory=Counter)  # changes that were answered, by action
    doubtful: Counter[str] = field(default_factory=Counter)  # changes that were asked for and never answered
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[int, tuple[str, float | None]] = field(default_factory=dict)  # number: secret and end
    void: set[str] = field(default_factory=set)  # secrets of tokens that were revoked


class PromisesMachine(RuleBasedStateMachine):
    """A state machine without rules: it records what the daemon acknowledged, and checks it."""

    figures: ClassVar[Counter[str]] = Counter()  # over all runs, for those who count
    live: SteppedDaemon
    root: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="argosy-fuzz-"))
        self.known, self.used = Known(), set[int]()
        self.backups: list[tuple[Path, Known]] = []
        self.usage: dict[str, tuple[float, int]] = {}
        self.tokens: dict[str, str] = {}
        self.was_large = False
        self.generations: dict[int, int] = {}

    def ask(self, who: str, method: str, path: str, body: Any = None, **params: Any) -> Answer | None:
        """Return the response; None if the daemon was killed, and then it has been started again."""
        token = self.root if who == "root" else self.tokens.get(who, who)
        answer = self.live.ask(method, path, token, body, **params)
        if answer is None:
            self.live.start()
            return None
        assert answer.status < 500, (method, path, body, answer)
        self.figures["requests"] += 1
        if answer.status >= 400:
            assert {"what", "value", "hint"} <= answer.body["error"].keys() and answer.body["error"]["what"], answer
        return answer

    def change(
        self, action: str, method: str, path: str, body: Any = None, who: str = "root", **params: Any
    ) -> Answer | None:
        """A request that leaves a line in the audit log if it is carried out."""
        answer = self.ask(who, method, path, body, **params)
        if answer is None:
            self.known.doubtful[action] += 1
        elif answer.status < 400:
            self.known.audited[action] += 1
        return answer

    def job(self, data: st.DataObject, share: str = "any") -> int:
        """Return a job number, mostly of a job that exists."""
        numbers = sorted(self.known.owners) or [1]
        active = [n for n in numbers if self.known.states.get(n) not in ENDED] or numbers
        return data.draw(st.sampled_from([*(active if share == "active" else numbers)[-30:], 999_999]))

    def take_in(self, numbers: list[int], who: str, count: int) -> None:
        assert len(numbers) == len(set(numbers)) == count and not self.used & set(numbers), "numbers are used again"
        self.used |= set(numbers)
        self.known.owners |= dict.fromkeys(numbers, who)
        self.figures["jobs"] += count

    def take_in_doubtful(self, who: str, count: int) -> list[int]:
        """The daemon was killed before it answered: all jobs of the request exist, or none."""
        there = {row[0] for row in self.live.rows("SELECT id FROM jobs")}
        new = sorted(there - self.known.owners.keys())
        assert len(new) in (0, count), f"{len(new)} of {count} jobs were taken in"
        if new:
            self.take_in(new, who, count)
        return new

    def note_limits(self, answer: Answer | None) -> None:
        self.known.limits = {o: json.loads(given) for o, given in self.live.rows("SELECT owner, given FROM limits")}

    @property
    def wall(self) -> float:
        return BEGAN_AT + self.live.time_s

    def active(self) -> int:
        return sum(state not in ENDED for state in self.known.states.values())

    def waiting(self, who: str) -> int:
        return self.live.rows(f"SELECT count(*) FROM jobs WHERE owner = '{who}' AND state = 'pending'")[0][0]

    def limit(self, who: str, name: str) -> Any:
        for owner in (who, "*"):
            if name in self.known.limits.get(owner, {}):
                return self.known.limits[owner][name]
        return None

    def check_limits(self) -> None:
        """Check that users above a lowered limit do not get more; a paused run keeps its devices."""
        found: dict[str, tuple[float, int]] = {}
        sql = "SELECT owner, parts FROM runs JOIN jobs ON jobs.id = runs.job WHERE runs.ended_s IS NULL"
        for owner, parts in self.live.rows(sql):
            gpus = sum(len(devices) * milli / 1000 for _, devices, milli, _ in json.loads(parts))
            had = found.get(owner, (0.0, 0))
            found[owner] = had[0] + gpus, had[1] + 1
        for owner, (gpus, runs) in found.items():
            before = self.usage.get(owner, (0.0, 0))
            most_gpus, most_runs = self.limit(owner, "gpus"), self.limit(owner, "running")
            assert most_runs is None or runs <= max(most_runs, before[1]), f"{owner} runs {runs} jobs"
            assert most_gpus is None or gpus <= max(most_gpus, before[0]) + 1e-6, f"{owner} holds {gpus} GPUs"
        self.usage = found

    def check_places(self) -> None:
        assert not self.live.backend.violations, self.live.backend.violations
        health = self.live.daemon.service.health
        assert health.faults == 0, health.fault
        assert not health.planner_problem, health.planner_problem

    @invariant()
    def nothing_is_lost_or_changed(self) -> None:
        if not hasattr(self, "live"):
            return
        self.figures["steps"] += 1
        rows = self.live.rows("SELECT id, owner, state, exit_code, ended_at, generation FROM jobs")
        assert {row[0]: row[1] for row in rows} == self.known.owners
        for number, _, text, code, ended_at, generation in rows:
            self.figures["runs"] += generation > self.generations.get(number, 0)
            self.generations[number] = max(generation, self.generations.get(number, 0))
            state, before = State(text), self.known.states.get(number, State.PENDING)
            assert is_reachable(before, state), f"job {number} went from {before} to {state}"
            self.known.states[number] = state
            if state in ENDED:
                assert self.known.ended.setdefault(number, (text, code, ended_at)) == (text, code, ended_at)
        alive = self.live.rows("SELECT job FROM runs WHERE ended_s IS NULL ORDER BY job")
        live = [(row[0],) for row in sorted(rows) if State(row[2]).live]
        assert alive == live, "a job that runs has one run, and others have none"
        self.check_places()

    @invariant()
    def memory_is_what_the_disk_has(self) -> None:
        if hasattr(self, "live"):
            store = self.live.daemon.service.store
            fresh = object.__new__(Store)
            empty = {"_db": self.live.mortal.connection, "jobs": {}, "runs": {}, "queued": Counter()}
            fresh.__dict__ |= store.__dict__ | empty
            fresh.read_active()
            assert fresh.jobs == store.jobs and fresh.runs == store.runs and +fresh.queued == +store.queued

    @invariant()
    def changes_are_in_the_audit_log(self) -> None:
        if hasattr(self, "live"):
            sql = "SELECT action, count(*) FROM audit WHERE result = 'done' GROUP BY action"
            found: Counter[str] = Counter(dict(self.live.rows(sql)))
            for action, count in self.known.audited.items():
                assert found[action] >= count, f"{action}: {found[action]} lines for {count} changes"
            for action in found.keys() - SEVERAL_LINES:
                most = self.known.audited[action] + self.known.doubtful[action]
                assert found[action] <= most, f"{action}: {found[action]} lines for at most {most} changes"


def is_reachable(old: State, new: State) -> bool:
    """Return whether a job can get from one state to the other in any number of legal steps."""
    seen, edge = {old}, {old}
    while edge:
        edge = {after for state in edge for after in LEGAL[state]} - seen
        seen |= edge
    return new in seen
