"""Forecasts of a planner: when each job starts and ends, as quantiles over roll-outs of its present state.

In each roll-out every job has a length drawn from how wrong its estimate may be, given how long it has run, and jobs
like the latest ones go on arriving. A roll-out changes nothing of the planner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from argosy.cluster.view import JobState
from argosy.live.planner.messages import Active, JobFacts
from argosy.mechanism.world import Floats
from argosy.policies.base import create
from argosy.seeding import stream
from argosy.sim.rollout import RollOuts

if TYPE_CHECKING:
    from argosy.live.planner.planner import Planner

QUANTILES = (0.1, 0.5, 0.9)
ROLLOUTS = 100
WHAT_IF_ROLLOUTS = 50
LEAST = 5  # roll-outs, even if time is up
HORIZON_S = 365 * 86400.0
ALIKE = 0.5  # correlation of how long the jobs of one user take, in a roll-out
MEASURED_SPREAD = 0.1  # of the logarithm of what is left of a job that reports its progress


class Quantiles(NamedTuple):
    """p10, p50 and p90 on the daemon's clock; None: beyond the horizon."""

    p10: float | None
    p50: float | None
    p90: float | None

    @classmethod
    def of(cls, times: Floats) -> Quantiles:
        filled = np.where(np.isnan(times), np.inf, times)
        found = np.quantile(filled, QUANTILES, method="inverted_cdf")
        return cls(*(float(t) if np.isfinite(t) else None for t in found))


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job starts (None: it runs) and ends."""

    start: Quantiles | None
    end: Quantiles
    naive: tuple[float, float] = (0.0, 0.0)  # start and end by queue length × mean, for comparison


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimates of all jobs at one time, and what they cost."""

    at_s: float
    jobs: dict[int, Estimate]
    rollouts: int
    took_s: float
    policy: str


class WhatIf(NamedTuple):
    """What would become of a job that has not been submitted."""

    estimate: Estimate | None
    refused: str  # why it could never run
    expected: tuple[float, str] | None  # seconds that it is expected to take, and how that is known


@dataclass(frozen=True, slots=True)
class Draws:
    """The lengths of jobs in each roll-out: of active jobs what is left, of later ones all."""

    left_s: Floats  # [roll-out, row]
    work_s: Floats  # [roll-out, job]


class Future:
    """Roll-outs of one planner under one policy: the live one, or another for comparison."""

    def __init__(
        self,
        planner: Planner,
        policy: str | None = None,
        later: Sequence[JobFacts] = (),
        state: dict[str, Any] | None = None,
    ) -> None:
        """Prepare. `state` is the memory of a policy that is not the live one."""
        engine = planner.engine
        spec = policy or planner.setup.policy
        self.planner, self.policy = planner, spec
        memory = engine.policy.state() if spec == planner.setup.policy else state or {}
        self.later = [(facts, planner.durations.expect(facts)) for facts in later]
        rows = None
        if later:
            rows = planner.columns(later, [expected for _, expected in self.later])
            kept = np.flatnonzero(~engine.hopeless(rows))
            self.later = [self.later[i] for i in kept.tolist()]
            rows = np.ascontiguousarray(rows[:, kept])
        self.rolls = RollOuts(engine, create(spec), memory, rows)
        self.ids = planner.job_ids()

    def draw(self, count: int, seed: int = 0) -> Draws:
        """Draw the lengths of all jobs; the same seed gives every policy the same."""
        rng, tracked = stream(seed, "forecast"), self.planner.jobs
        done, durations = self.rolls.done_s, self.planner.durations
        moods: dict[str, Floats] = {}

        def uniform(user: str) -> Floats:
            """Return numbers between 0 and 1, alike for the jobs of a user, which are often all longer or shorter."""
            if user not in moods:
                moods[user] = rng.standard_normal(count)
            return normal_cdf(ALIKE * moods[user] + math.sqrt(1.0 - ALIKE**2) * rng.standard_normal(count))

        left = np.empty((count, len(self.ids)))
        for row, id in enumerate(self.ids):
            job = tracked[id]
            if job.measured:
                left[:, row] = self.rolls.left_s[row] * np.exp(MEASURED_SPREAD * (2 * rng.random(count) - 1))
            else:
                drawn = durations.draw(job.facts, job.expected.seconds, float(done[row]), uniform(job.facts.user))
                left[:, row] = np.maximum(drawn - done[row], 1e-3)
        work = np.empty((count, len(self.later)))
        for column, (facts, expected) in enumerate(self.later):
            work[:, column] = durations.draw(facts, expected.seconds, 0.0, uniform(facts.user))
        return Draws(left, work)

    def run(self, draws: Draws, budget_s: float = math.inf) -> tuple[Floats, Floats]:
        """Return when jobs start and end, [roll-out, job]; fewer roll-outs than were drawn if time is up."""
        began, until = time.perf_counter(), self.planner.now + HORIZON_S
        starts, ends = list[Floats](), list[Floats]()
        for left, work in zip(draws.left_s, draws.work_s):
            if len(ends) >= LEAST and time.perf_counter() - began > budget_s:
                break
            outcome = self.rolls.run(left, work, until)
            starts.append(outcome.start_s[: len(left)])
            ends.append(outcome.end_s[: len(left)])
        return np.array(starts), np.array(ends)


def forecast(
    planner: Planner, *, rollouts: int = ROLLOUTS, budget_s: float = math.inf, seed: int = 0, arrivals: bool = True
) -> Forecast:
    """Return when each job of a planner starts and ends under its policy."""
    began = time.perf_counter()
    later = planner.recent.resample(planner.now, seed) if arrivals and not first_come(planner.setup.policy) else []
    later = [facts for facts in later if planner.knows(facts)]  # of others none has come since it started
    future = Future(planner, later=later)
    starts, ends = future.run(future.draw(rollouts, seed), budget_s)
    table, naive = planner.engine.jobs, naive_times(planner)
    waits = table.state == JobState.WAITING
    jobs = {
        id: Estimate(Quantiles.of(starts[:, row]) if waits[row] else None, Quantiles.of(ends[:, row]), naive[row])
        for row, id in enumerate(future.ids)
        if id > 0
    }
    return Forecast(planner.now, jobs, len(ends), time.perf_counter() - began, planner.setup.policy)


def naive_times(planner: Planner) -> list[tuple[float, float]]:
    """Return when each job starts and ends by the rule of thumb: the queue's length times the mean of a job."""
    table, gpus = planner.engine.jobs, max(planner.setup.cluster.total_gpus, 1)
    mean_s, mean_gpus = float(table.expected_s.mean()), float(table.gpus.mean())
    waits = table.state == JobState.WAITING
    order = np.lexsort((table.index, table.submitted))
    ahead = np.zeros(len(table), np.int64)
    ahead[order] = np.cumsum(waits[order]) - waits[order]
    start = planner.now + ahead * mean_s * mean_gpus / gpus
    return [(float(s), float(s + mean_s)) for s in np.where(waits, start, planner.now)]


UNKNOWN_KIND = "no job with its network, batch size and GPU types has been submitted yet, and there are many others"


def what_if(
    planner: Planner, variants: Sequence[JobFacts], rollouts: int = WHAT_IF_ROLLOUTS, budget_s: float = 2.0
) -> list[WhatIf]:
    """Return when a job would start and end that has not been submitted, in each of these variants.

    It may change the planner, so it is called in a copy of its process, after `know`. The time limit is for each
    variant.
    """
    found = []
    for facts in variants:
        if not planner.can_take(facts):
            found.append(WhatIf(None, UNKNOWN_KIND, None))
            continue
        refused = planner.arrive([Active(facts)])
        if facts.id in refused:
            found.append(WhatIf(None, refused[facts.id], None))
            continue
        expected = planner.jobs[facts.id].expected
        seen = forecast(planner, rollouts=rollouts, budget_s=budget_s).jobs[facts.id]
        found.append(WhatIf(seen, "", (expected.seconds, expected.source)))
        planner.end({facts.id: "withdrawn"})
    return found


def normal_cdf(z: Floats) -> Floats:
    """Return the distribution function of the standard normal, to four digits."""
    return np.asarray(1.0 / (1.0 + np.exp(-1.5976 * z - 0.07056 * z**3)))


def first_come(policy: str) -> bool:
    """Return whether later arrivals never come before jobs that wait already."""
    found = create(policy)
    return found.name == "fifo" and not found.backfill
