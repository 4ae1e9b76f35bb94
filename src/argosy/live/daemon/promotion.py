"""Switches the daemon to another policy, watches what comes of it, and falls back by itself.

While a promotion is guarded, what is measured is compared with a control estimate: what the former policy would have
made of the jobs that really came, with the lengths that they really had, from the state at the switch. The measure is
the time that jobs spend in the system, once counted by jobs and once by the GPUs that they ask for (so that a policy
that starves large jobs is noticed too). If it leaves the band of the guard at two checks in a row, the former policy
takes over again.

All of this is in the database before it is acted on: a daemon that is killed goes on in the same phase.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from argosy.errors import ArgosyError, InputError
from argosy.live.daemon.audit import DAEMON
from argosy.live.daemon.forecasts import Foresight, ask
from argosy.live.daemon.planner_facts import facts
from argosy.live.daemon.shadow import check_registered
from argosy.live.daemon_log import note
from argosy.live.errors import Conflict
from argosy.live.planner.messages import JobFacts, Snapshot
from argosy.live.planner.shadowing import Control, present_s
from argosy.live.store import Actor, Job, Store, codec
from argosy.live.store.schema import POLICY

PROMOTION, STATE = "promotion", "promotion_state"  # keys in `meta`
CHECK_EVERY_S, CPU_SHARE, LIMIT_S = 60.0, 0.05, 60.0
STRIKES = 2  # checks in a row outside the band
LEAST_JOBS = 5  # that have come or were there, before anything is concluded
BROKEN_AFTER_S = 30.0  # a policy that fails for so long falls back without further ado
SURE = 0.75  # quantile of the control estimate that must be exceeded, beyond the band
Phase = Literal["guarded", "kept", "fell-back", "unguarded"]


@dataclass(frozen=True, slots=True)
class Promoted:
    """The last switch of the policy."""

    policy: str
    former: str
    configured: str  # what `argosy serve` was told; if it is told otherwise later, that holds
    guard: float | None  # by how much the measure may exceed the control estimate, such as 0.1
    at_s: float
    at: float
    until_s: float
    phase: Phase
    reason: str = ""

    @property
    def in_force(self) -> str:
        """Return the policy that decides."""
        return self.former if self.phase == "fell-back" else self.policy


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check of the guard."""

    at_s: float
    by_jobs: float  # measured over expected, less 1
    by_gpus: float
    outside: bool
    text: str


def judge(control: Control, real: tuple[float, float], guard: float, at_s: float) -> Verdict:
    """Compare what was measured with the control estimate."""
    ratios, outside = [], False
    for simulated, measured in zip((control.presence_s, control.gpu_presence_s), real):
        middle, high = float(np.median(simulated)), float(np.quantile(simulated, SURE))
        ratios.append(measured / middle - 1.0 if middle > 0 else 0.0)
        outside = outside or measured > (1.0 + guard) * max(high, 1e-9)
    text = f"time in the system {ratios[0]:+.0%} by jobs and {ratios[1]:+.0%} by GPUs, against what was expected"
    return Verdict(at_s, ratios[0], ratios[1], outside, text)


@dataclass
class Promotion:
    """The switches of one daemon."""

    store: Store
    configured: str
    switch: Callable[[str], Awaitable[None]]  # lets another policy decide
    snapshot: Callable[[], Snapshot]  # of the present state
    now: Promoted | None = None
    last: Verdict | None = None
    check_every_s: float = CHECK_EVERY_S
    _strikes: int = 0
    _due_s: float = 0.0
    _broken_since_s: float | None = None
    _task: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def load(self) -> str:
        """Return the policy in force, also if the former daemon was killed while it switched."""
        known_of = {key: json.loads(value) for key, value in self.store.query("SELECT key, value FROM meta")}
        known = Promoted(**known_of[PROMOTION]) if known_of.get(PROMOTION) else None
        self.now = known if known is not None and known.configured == self.configured else None
        policy = self.configured if self.now is None else self.now.in_force
        former = known_of.get(POLICY) if known is None else known.in_force
        with self.store.transaction() as changes:
            changes.meta(POLICY, policy)
            if self.now is None and known is not None:
                changes.meta(PROMOTION, None)
                changes.meta(STATE, None)
            if former not in (None, policy):
                text = f"was {former}; argosy serve was told {self.configured}, so the former no longer holds"
                changes.audit(DAEMON, "policy", policy, detail=text)
        return policy

    async def promote(self, policy: str, guard: float | None, for_s: float, by: Actor) -> Promoted:
        """Let another policy decide from now on; with a guard, watch it for a while."""
        if policy != self.configured:
            check_registered(policy)
        if guard is not None and not 0 < guard <= 10:
            raise InputError(f"guard: {guard:g} is not between 0 and 10", hint="10% is 0.1")
        async with self._lock:
            former = self.configured if self.now is None else self.now.in_force
            if policy == former:
                raise Conflict(f"{policy} is the policy already", hint="argosy shadow shows what others would win")
            clock = self.store.clock
            new = Promoted(
                policy,
                former,
                self.configured,
                guard,
                clock.now(),
                clock.wall(),
                clock.now() + for_s,
                "unguarded" if guard is None else "guarded",
            )
            state = "" if guard is None else base64.b85encode(pickle.dumps(self.snapshot())).decode()
            with self.store.transaction() as changes:
                changes.meta(PROMOTION, asdict(new))
                changes.meta(POLICY, policy)
                changes.meta(STATE, state)
                band = "without a guard" if guard is None else f"guard {guard:.0%} for {for_s:g} s"
                changes.audit(by, "promote", policy, detail=f"was {former}; {band}")
            self.now, self.last, self._strikes, self._broken_since_s = new, None, 0, None
            self._due_s = clock.now() + self.check_every_s
            note("another policy decides", policy=policy, former=former, guard=guard)
            await self.switch(policy)
        return new

    def step(self, planner: object, planner_problem: str) -> None:
        """Check the guard if it is time to; fall back if the policy fails."""
        promoted, now = self.now, self.store.clock.now()
        if promoted is None or promoted.phase != "guarded" or (self._task is not None and not self._task.done()):
            return
        if planner_problem:
            self._broken_since_s = now if self._broken_since_s is None else self._broken_since_s
            if now - self._broken_since_s >= BROKEN_AFTER_S:
                self._task = asyncio.create_task(self._end(promoted, "fell-back", f"it failed: {planner_problem}"))
            return
        self._broken_since_s = None
        if now >= promoted.until_s:
            self._task = asyncio.create_task(self._end(promoted, "kept", "it stayed in the band"))
        elif now >= self._due_s and isinstance(planner, Foresight):
            self._due_s = now + self.check_every_s
            self._task = asyncio.create_task(self._check(planner, promoted))

    async def _check(self, planner: Foresight, promoted: Promoted) -> None:
        try:
            found = self.store.query("SELECT value FROM meta WHERE key = ?", (STATE,))
            # written by this program into its own private database
            snapshot: Snapshot = pickle.loads(base64.b85decode(json.loads(found[0][0])))
            arrived, ended, real, jobs = self._since(snapshot)
            if jobs < LEAST_JOBS:
                return
            now = self.store.clock.now()
            arguments = {
                "snapshot": snapshot,
                "policy": promoted.former,
                "arrived": arrived,
                "ended": ended,
                "now_s": now,
            }
            answer = await ask(planner, "control", LIMIT_S, arguments)
        except ArgosyError:
            return  # the planner has failed: `step` sees it
        except Exception:
            logging.getLogger(__name__).exception("a check of the guard failed")
            return
        self._due_s = max(self._due_s, self.store.clock.now() + answer.cpu_s / CPU_SHARE)
        if answer.problem or self.now is not promoted:
            return
        self.last = judge(answer.answer, real, promoted.guard or 0.0, now)
        self._strikes = self._strikes + 1 if self.last.outside else 0
        with self.store.transaction() as changes:
            verdict = "outside the band" if self.last.outside else "inside the band"
            changes.audit(DAEMON, "guard", promoted.policy, detail=f"{verdict}: {self.last.text}")
        if self._strikes >= STRIKES:
            await self._end(promoted, "fell-back", self.last.text)

    def _since(self, snapshot: Snapshot) -> tuple[list[JobFacts], dict[int, float], tuple[float, float], int]:
        """Return what has happened since a snapshot.

        That is: the jobs that arrived, the length of each job that ended, the seconds that all jobs were in the system
        (and the same times their GPUs), and the number of jobs.
        """
        store, now = self.store, self.store.clock.now()
        there = {job.facts.id for job in snapshot.jobs if job.facts.id > 0}
        sql = f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE ended_s > ? OR submitted_s > ?"
        jobs = {job.id: job for job in map(codec.job_of, store.query(sql, (snapshot.now_s, snapshot.now_s)))}
        jobs |= store.jobs
        known = [job for job in jobs.values() if job.id in there or job.submitted_s > snapshot.now_s]
        arrived = [facts(job, store) for job in known if job.id not in there]
        ended = {job.id: _length_s(job) for job in known if job.ended_s is not None and job.generation > 0}
        submitted = np.array([job.submitted_s for job in known])
        ends = np.array([np.nan if job.ended_s is None else job.ended_s for job in known])
        gpus = np.array([max(job.parsed.resources.gpus.asked, 1.0) for job in known])
        seconds = present_s(submitted, ends, snapshot.now_s, now)
        return arrived, ended, (float(seconds.sum()), float((seconds * gpus).sum())), len(known)

    async def _end(self, promoted: Promoted, phase: Phase, reason: str) -> None:
        """End the guard: the new policy is kept, or the former one takes over again."""
        async with self._lock:
            if self.now is not promoted:
                return
            self.now = replace(promoted, phase=phase, reason=reason)
            with self.store.transaction() as changes:
                changes.meta(PROMOTION, asdict(self.now))
                changes.meta(POLICY, self.now.in_force)
                changes.meta(STATE, None)
                action = "fall-back" if phase == "fell-back" else "keep"
                changes.audit(DAEMON, action, self.now.in_force, detail=f"{promoted.policy}: {reason}")
            level = logging.WARNING if phase == "fell-back" else logging.INFO
            note("the guard has ended", level, phase=phase, policy=self.now.in_force, reason=reason)
            if phase == "fell-back":
                await self.switch(promoted.former)

    def notice(self) -> str:
        """Return what people should know of the last switch, for `queue`."""
        p = self.now
        if p is None:
            return ""
        if p.phase == "fell-back":
            return f"fell back from {p.policy} to {p.former}: {p.reason}"
        if p.phase == "guarded":
            seen = f"; {self.last.text}" if self.last is not None else ""
            return f"{p.policy} decides since its promotion (was {p.former}), guarded{seen}"
        return ""

    def summary(self) -> dict[str, Any] | None:
        """Return what the API shows."""
        if self.now is None:
            return None
        p = self.now
        shown = {"policy": p.policy, "former": p.former, "guard": p.guard, "at": p.at, "phase": p.phase}
        last = None if self.last is None else {"by_jobs": self.last.by_jobs, "by_gpus": self.last.by_gpus}
        return {**shown, "reason": p.reason, "in_force": p.in_force, "last": last}

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _length_s(job: Job) -> float:
    """Return how long a job ran, converted to the size that it asked for."""
    asked = job.parsed.resources.gpus.asked
    return job.gpu_s / asked if asked else job.run_s
