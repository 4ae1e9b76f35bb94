"""Everything that people, jobs, clocks and power cuts do to a daemon, in any order, as rules of a state machine.

After every rule: no job is lost, none runs twice at once, no number is used again, no limit is exceeded by what
starts, states follow each other legally, every change has its line in the audit log, and what memory holds is what the
disk has. At the end, when all is open again, every job ends.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fuzz_daemon import BEGAN_AT, Answer, SteppedDaemon
from fuzz_inputs import CLUSTER, KINDS, LIMITS, NODES, OF_A_JOB, POLICIES, QUESTIONS, SECONDS, USERS, WRONG
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from argosy.live.states import ENDED, LEGAL, State
from argosy.live.store import Store

MOST_JOBS = 60  # active at once: more teaches nothing and takes longer
FEWEST_JOBS = 6
SEVERAL_LINES = {"submit", "cancel"}  # in the audit log: one for each range of jobs
PATIENCE = 400  # passes until everything must have ended


@dataclass
class Known:
    """What was promised so far; a copy of it belongs to every backup."""

    owners: dict[int, str] = field(default_factory=dict)  # of every job that was taken in
    states: dict[int, State] = field(default_factory=dict)  # as they were seen last
    ended: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # results, which never change
    audited: Counter[str] = field(default_factory=Counter)  # changes that were answered, by action
    doubtful: Counter[str] = field(default_factory=Counter)  # changes that were asked for and never answered
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[int, tuple[str, float | None]] = field(default_factory=dict)  # number: secret and end
    void: set[str] = field(default_factory=set)  # secrets of tokens that were revoked


class DaemonMachine(RuleBasedStateMachine):
    figures: ClassVar[Counter[str]] = Counter()  # over all runs, for those who count

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="argosy-fuzz-"))
        self.known, self.used = Known(), set[int]()
        self.backups: list[tuple[Path, Known]] = []
        self.usage: dict[str, tuple[float, int]] = {}
        self.tokens: dict[str, str] = {}
        self.was_large = False
        self.generations: dict[int, int] = {}

    @initialize(
        policy=st.sampled_from(POLICIES), seed=st.integers(0, 2**16), first=st.lists(KINDS, min_size=3, max_size=8)
    )
    def begin(self, policy: str, seed: int, first: list[dict[str, Any]]) -> None:
        self.live = SteppedDaemon(self.folder, CLUSTER, policy, seed)
        self.live.start()
        self.root = self.live.home.token.read_text().strip()
        self.known.audited["token-add"] += 1  # the daemon's own
        for user in USERS:
            answer = self.change("token-add", "POST", "/v1/tokens", {"owner": user, "expires_s": None})
            assert answer is not None and answer.status == 201
            self.tokens[user] = answer.body["secret"]
        self.send("ann", first)

    # asking

    def ask(self, who: str, method: str, path: str, body: Any = None, **params: Any) -> Answer | None:
        """An answer as the API promises; None if the daemon died, and then it has been started again."""
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

    def change(self, action: str, method: str, path: str, body: Any = None, who: str = "root",
               **params: Any) -> Answer | None:
        """A request that leaves a line in the audit log if it is carried out."""
        answer = self.ask(who, method, path, body, **params)
        if answer is None:
            self.known.doubtful[action] += 1
        elif answer.status < 400:
            self.known.audited[action] += 1
        return answer

    def job(self, data: st.DataObject, share: str = "any") -> int:
        """A number: mostly of a job that is there."""
        numbers = sorted(self.known.owners) or [1]
        active = [n for n in numbers if self.known.states.get(n) not in ENDED] or numbers
        return data.draw(st.sampled_from([*(active if share == "active" else numbers)[-30:], 999_999]))

    # rules: jobs

    @rule(who=st.sampled_from(USERS), specs=st.lists(KINDS, min_size=1, max_size=3), data=st.data())
    def submit(self, who: str, specs: list[dict[str, Any]], data: st.DataObject) -> None:
        if self.active() > MOST_JOBS:
            return
        for spec in specs:
            if data.draw(st.integers(0, 4)) == 0 and self.known.owners:
                spec["after"] = [self.job(data)]
        self.send(who, specs)

    def send(self, who: str, specs: list[dict[str, Any]]) -> None:
        count = sum(spec.get("array", 1) for spec in specs)
        waiting = self.waiting(who)
        answer = self.change("submit", "POST", "/v1/jobs", {"jobs": specs, "workdir": "/tmp"}, who)
        if answer is None:
            self.take_in_doubtful(who, count)
        elif answer.status == 201:
            self.take_in(answer.body["ids"], who, count)
            most = self.limit(who, "queued")
            assert most is None or waiting + count <= most, f"{who} may queue {most} jobs"
            ceiling = self.limit(who, "priority")
            for number, priority in self.live.rows("SELECT id, priority FROM jobs"):
                assert ceiling is None or number not in answer.body["ids"] or priority <= ceiling

    @rule(who=st.sampled_from(USERS), length=st.integers(201, 260))
    @precondition(lambda self: not self.was_large)
    def submit_a_large_array(self, who: str, length: int) -> None:
        """It is written in pieces, and is there as a whole or not at all; cancelled at once, to keep the rest quick."""
        self.was_large = True
        body = {"jobs": [{"run": "sleep 1", "array": length}], "workdir": "/tmp"}
        answer = self.change("submit", "POST", "/v1/jobs", body, who)
        numbers = self.take_in_doubtful(who, length) if answer is None else answer.body.get("ids", [])
        if answer is not None and answer.status == 201:
            self.take_in(numbers, who, length)
        if numbers:
            self.change("cancel", "POST", "/v1/jobs/cancel", {"ids": numbers}, who)

    def take_in(self, numbers: list[int], who: str, count: int) -> None:
        assert len(numbers) == len(set(numbers)) == count and not self.used & set(numbers), "numbers are used again"
        self.used |= set(numbers)
        self.known.owners |= dict.fromkeys(numbers, who)
        self.figures["jobs"] += count

    def take_in_doubtful(self, who: str, count: int) -> list[int]:
        """Nobody answered: all of them are there, or none."""
        there = {row[0] for row in self.live.rows("SELECT id FROM jobs")}
        new = sorted(there - self.known.owners.keys())
        assert len(new) in (0, count), f"{len(new)} of {count} jobs were taken in"
        if new:
            self.take_in(new, who, count)
        return new

    @rule(who=st.sampled_from([*USERS, "root"]), body=st.sampled_from(WRONG))
    def submit_wrong(self, who: str, body: Any) -> None:
        answer = self.ask(who, "POST", "/v1/jobs", body)
        assert answer is None or 400 <= answer.status < 500, answer

    @rule(who=st.sampled_from([*USERS, "root"]), now=st.booleans(), data=st.data())
    def cancel(self, who: str, now: bool, data: st.DataObject) -> None:
        number = self.job(data, "active")
        answer = self.change("cancel", "DELETE", f"/v1/jobs/{number}", who=who, now=now)
        mine = number in self.known.owners and who in ("root", self.known.owners[number])
        assert answer is None or answer.status == (200 if mine else 404), answer
        if answer is not None and mine:
            assert State(answer.body["state"]) in ENDED | {State.STOPPING}

    @rule(who=st.sampled_from([*USERS, "root"]), now=st.booleans(), data=st.data())
    def cancel_many(self, who: str, now: bool, data: st.DataObject) -> None:
        numbers = [self.job(data) for _ in range(data.draw(st.integers(1, 4)))]
        for _ in range(2):  # the second time hurries them
            mine = all(n in self.known.owners and who in ("root", self.known.owners[n]) for n in numbers)
            body = {"ids": numbers, "now": now}
            answer = self.change("cancel", "POST", "/v1/jobs/cancel", body, who)
            assert answer is None or answer.status == (200 if mine else 404), answer

    @rule(who=st.sampled_from([*USERS, "root"]), priority=st.sampled_from([0, 10, 60, 100]), data=st.data())
    def set_priority(self, who: str, priority: float, data: st.DataObject) -> None:
        number = self.job(data, "active")
        answer = self.change("priority", "PATCH", f"/v1/jobs/{number}", {"priority": priority}, who)
        if answer is not None and answer.status == 200:
            assert answer.body["priority"] == priority
            ceiling = self.limit(who, "priority") if who != "root" else None
            assert ceiling is None or priority <= ceiling

    # rules: the cluster and its operators

    @rule(name=st.sampled_from([*NODES, "n99"]), now=st.booleans())
    def drain(self, name: str, now: bool) -> None:
        answer = self.change("drain", "POST", f"/v1/nodes/{name}/drain", now=now)
        assert answer is None or answer.status == (200 if name in NODES else 404)

    @rule(name=st.sampled_from(NODES))
    def undrain(self, name: str) -> None:
        self.change("undrain", "POST", f"/v1/nodes/{name}/undrain")

    @rule(name=st.sampled_from(NODES), up=st.booleans())
    def node_fails_or_returns(self, name: str, up: bool) -> None:
        self.live.backend.node_up(name) if up else self.live.backend.node_down(name)

    @rule(loss=st.sampled_from([0.0, 0.0, 0.3]))
    def messages_get_lost(self, loss: float) -> None:
        self.live.backend.loss = loss

    @rule(owner=st.sampled_from([*USERS, "*"]), given=LIMITS)
    def set_limits(self, owner: str, given: dict[str, Any]) -> None:
        answer = self.change("limits-set", "PATCH", f"/v1/limits/{owner}", given)
        assert answer is None or answer.status == (200 if given else 422), answer
        self.note_limits(answer)

    @rule(owner=st.sampled_from([*USERS, "*"]))
    def clear_limits(self, owner: str) -> None:
        self.note_limits(self.change("limits-clear", "DELETE", f"/v1/limits/{owner}"))

    def note_limits(self, answer: Answer | None) -> None:
        self.known.limits = {o: json.loads(given) for o, given in self.live.rows("SELECT owner, given FROM limits")}

    @rule(owner=st.sampled_from([*USERS, "no name!"]), role=st.sampled_from(["user", "operator"]),
          expires=st.sampled_from([None, 5.0, 1000.0]))  # fmt: skip
    def add_token(self, owner: str, role: str, expires: float | None) -> None:
        body = {"owner": owner, "role": role, "expires_s": expires}
        answer = self.change("token-add", "POST", "/v1/tokens", body)
        assert answer is None or answer.status == (201 if owner in USERS else 422)
        if answer is not None and answer.status == 201:
            self.known.tokens[answer.body["id"]] = answer.body["secret"], answer.body["expires_at"]

    @rule(keep=st.sampled_from([0.0, 20.0]), data=st.data())
    @precondition(lambda self: self.known.tokens)
    def rotate_token(self, keep: float, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.known.tokens)))
        answer = self.change("token-rotate", "POST", f"/v1/tokens/{number}/rotate", {"keep_old_s": keep})
        if answer is None:
            del self.known.tokens[number]  # nobody knows which of the two counts
        else:
            assert answer.status == 201
            secret, ends = self.known.tokens[number]
            kept = BEGAN_AT + self.live.time_s + keep
            self.known.tokens[number] = secret, kept if ends is None else min(ends, kept)
            self.known.tokens[answer.body["id"]] = answer.body["secret"], answer.body["expires_at"]

    @rule(data=st.data())
    @precondition(lambda self: self.known.tokens)
    def revoke_token(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.known.tokens)))
        secret, _ = self.known.tokens.pop(number)
        answer = self.change("token-revoke", "DELETE", f"/v1/tokens/{number}")
        if answer is not None:
            assert answer.status == 204
            self.known.void.add(secret)

    @rule(data=st.data())
    @precondition(lambda self: self.known.tokens or self.known.void)
    def use_a_token(self, data: st.DataObject) -> None:
        """It opens what it should, and only as long as it should."""
        good = [secret for secret, ends in self.known.tokens.values() if ends is None or ends > self.wall]
        over = [secret for secret, ends in self.known.tokens.values() if ends is not None and ends <= self.wall]
        secret = data.draw(st.sampled_from([*good, *over, *sorted(self.known.void), "argosy-wrong"]))
        answer = self.ask(secret, "GET", "/v1/health")
        if answer is not None:
            assert answer.status == 200 if secret in good else answer.status in (401, 429), answer

    @property
    def wall(self) -> float:
        return BEGAN_AT + self.live.time_s

    # rules: questions

    @rule(who=st.sampled_from([*USERS, "root", "argosy-wrong"]), path=st.sampled_from(QUESTIONS))
    def query(self, who: str, path: str) -> None:
        answer = self.ask(who, "GET", path)
        if answer is None or who == "argosy-wrong":
            assert answer is None or answer.status in (401, 429)
        elif who in USERS and path == "/v1/jobs":
            assert all(job["owner"] == who for job in answer.body["jobs"])
        elif who in USERS and path.startswith(("/v1/audit", "/v1/tokens")):
            assert answer.status == 403

    @rule(who=st.sampled_from([*USERS, "root"]), what=st.sampled_from(OF_A_JOB), data=st.data())
    def query_a_job(self, who: str, what: str, data: st.DataObject) -> None:
        number = self.job(data)
        answer = self.ask(who, "GET", f"/v1/jobs/{number}{what}")
        mine = number in self.known.owners and who in ("root", self.known.owners[number])
        if answer is not None:
            assert answer.status == 200 if mine and "log" not in what else answer.status in (200, 404), answer
            assert mine or answer.status == 404

    # rules: time, death and copies

    @rule(seconds=SECONDS, passes=st.integers(1, 6))
    def time_passes(self, seconds: float, passes: int) -> None:
        for _ in range(passes):
            if not self.live.advance(seconds / passes):
                self.live.start()
            self.check_limits()
            self.check_places()

    @rule(who=st.sampled_from(USERS), passes=st.integers(5, 15), more=st.lists(KINDS, min_size=1, max_size=4))
    def more_time_passes(self, who: str, passes: int, more: list[dict[str, Any]]) -> None:
        """There is always something to do."""
        if self.active() < FEWEST_JOBS:
            self.send(who, more)
        self.time_passes(1.0 * passes, passes)

    def active(self) -> int:
        return sum(state not in ENDED for state in self.known.states.values())

    @invariant()
    def the_daemon_goes_on(self) -> None:
        """Whatever was asked, a pass or two follow."""
        if hasattr(self, "live"):
            self.time_passes(0.4, 2)

    @rule()
    def kill(self) -> None:
        self.live.kill()
        self.live.start()

    @rule(statement=st.integers(1, 25), after=st.booleans())
    def kill_soon(self, statement: int, after: bool) -> None:
        """It will die at one of its next statements, whatever it does then."""
        self.live.mortal.die_at(statement, after)

    @rule()
    def end_and_start(self) -> None:
        self.live.mortal.die_at(10**9, False)
        self.live.end()
        self.live.start()

    @rule()
    def backup(self) -> None:
        before = copy.deepcopy(self.known)
        answer = self.change("backup", "POST", "/v1/backup")
        if answer is not None:
            assert answer.status == 200 and answer.content.startswith(b"SQLite format 3")
            path = self.folder / f"copy-{len(self.backups)}.db"
            path.write_bytes(answer.content)
            before.audited["backup"] += 1  # written before the copy is made
            self.backups.append((path, before))

    @rule(data=st.data(), killed=st.booleans())
    @precondition(lambda self: self.backups)
    def restore(self, data: st.DataObject, killed: bool) -> None:
        path, known = data.draw(st.sampled_from(self.backups))
        if killed:
            self.live.kill()
        else:
            self.live.mortal.die_at(10**9, False)
            self.live.end()
        self.live.restore(path)
        former = self.known.doubtful
        self.known = copy.deepcopy(known)
        self.known.doubtful += former  # it does no harm to allow for more
        self.usage = {}
        self.live.start()
        self.note_limits(None)
        self.figures["restores"] += 1

    # what must hold

    def waiting(self, who: str) -> int:
        return self.live.rows(f"SELECT count(*) FROM jobs WHERE owner = '{who}' AND state = 'pending'")[0][0]

    def limit(self, who: str, name: str) -> Any:
        for owner in (who, "*"):
            if name in self.known.limits.get(owner, {}):
                return self.known.limits[owner][name]
        return None

    def check_limits(self) -> None:
        """Who is over a limit, because it was lowered, does not take more. A paused run keeps its place."""
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

    def teardown(self) -> None:
        try:
            if hasattr(self, "live"):
                self.finish()
                self.figures["kills"] += self.live.kills
        finally:
            if hasattr(self, "live"):
                self.live.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def finish(self) -> None:
        """All is open, nothing is lost any more: every job ends by itself."""
        self.live.mortal.die_at(10**9, False)
        self.live.backend.loss = 0.0
        for name in NODES:
            self.live.backend.node_up(name)
            self.undrain(name)
        for owner in list(self.known.limits):
            self.clear_limits(owner)
        if self.live.policy == "random":
            self.live.random.calm = True
        for _ in range(PATIENCE):
            self.live.advance(5.0)
            self.check_places()
            if not self.live.daemon.service.store.jobs:
                break
        left = self.live.daemon.service.store.jobs
        told = {n: (job.state, self.live.daemon.service.explain(n)["text"], job.spec_json) for n, job in left.items()}
        assert not left, f"still there: {told}"
        self.nothing_is_lost_or_changed()
        note(f"{self.live.kills} kills")


def is_reachable(old: State, new: State) -> bool:
    """Can a job get from one state to the other in any number of legal steps?"""
    seen, edge = {old}, {old}
    while edge:
        edge = {after for state in edge for after in LEGAL[state]} - seen
        seen |= edge
    return new in seen
