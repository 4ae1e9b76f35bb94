"""Everything that people, jobs, clocks and power cuts do to a daemon, in any order, as rules of a state machine.

`fuzz_promises` checks what must hold after every rule. At the end, when nothing holds jobs back, every job ends.
"""

from __future__ import annotations

import copy
import shutil
from typing import Any

from fuzz_daemon import BEGAN_AT, SteppedDaemon
from fuzz_inputs import CLUSTER, KINDS, LIMITS, NODES, OF_A_JOB, POLICIES, QUESTIONS, SECONDS, USERS, WRONG
from fuzz_promises import PromisesMachine
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from argosy.live.states import ENDED, State

MOST_JOBS = 60  # active at once: more teaches nothing and takes longer
FEWEST_JOBS = 6
PATIENCE = 400  # passes until everything must have ended


class DaemonMachine(PromisesMachine):
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
        """A large array is written in pieces, but appears as a whole or not at all; it is cancelled to save time."""
        self.was_large = True
        body = {"jobs": [{"run": "sleep 1", "array": length}], "workdir": "/tmp"}
        answer = self.change("submit", "POST", "/v1/jobs", body, who)
        numbers = self.take_in_doubtful(who, length) if answer is None else answer.body.get("ids", [])
        if answer is not None and answer.status == 201:
            self.take_in(numbers, who, length)
        if numbers:
            self.change("cancel", "POST", "/v1/jobs/cancel", {"ids": numbers}, who)

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

    @rule(
        owner=st.sampled_from([*USERS, "no name!"]),
        role=st.sampled_from(["user", "operator"]),
        expires=st.sampled_from([None, 5.0, 1000.0]),
    )
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
        """A token gives access to what it should, and only as long as it is valid."""
        good = [secret for secret, ends in self.known.tokens.values() if ends is None or ends > self.wall]
        over = [secret for secret, ends in self.known.tokens.values() if ends is not None and ends <= self.wall]
        secret = data.draw(st.sampled_from([*good, *over, *sorted(self.known.void), "argosy-wrong"]))
        answer = self.ask(secret, "GET", "/v1/health")
        if answer is not None:
            assert answer.status == 200 if secret in good else answer.status in (401, 429), answer

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
        """Let more time pass; this rule is always possible."""
        if self.active() < FEWEST_JOBS:
            self.send(who, more)
        self.time_passes(1.0 * passes, passes)

    @invariant()
    def the_daemon_goes_on(self) -> None:
        """Run a pass or two after whatever was requested."""
        if hasattr(self, "live"):
            self.time_passes(0.4, 2)

    @rule()
    def kill(self) -> None:
        self.live.kill()
        self.live.start()

    @rule(statement=st.integers(1, 25), after=st.booleans())
    def kill_soon(self, statement: int, after: bool) -> None:
        """Kill the daemon at one of its next statements."""
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
        """Remove all obstacles and stop losing messages: then every job must end."""
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
