"""Compare another policy with the live one, from the present state of a planner; nothing that it decides is done.

The comparison has two parts: what it would run now, beside what runs; and roll-outs of both policies with the same
lengths of jobs, which say what it would win. A control estimate does the same for the past: what the former policy
would have made of the jobs that really came, with the lengths that they really had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from argosy.live.planner.forecast import Future
from argosy.live.planner.messages import JobFacts, Snapshot
from argosy.mechanism.world import Floats
from argosy.slack import GPU_SLACK

if TYPE_CHECKING:
    from argosy.live.planner.planner import Planner

ROLLOUTS = 10
CONTROL_ROLLOUTS = 20
MOST_SHOWN = 20  # jobs that would be treated otherwise


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What a shadow policy would have done at one decision, and what it would have won."""

    at_s: float
    policy: str
    jobs: int
    agreement: float  # GPUs that both give to the same job, of those that either gives
    differ: tuple[tuple[int, float, float], ...]  # job, GPUs of the live policy, GPUs of the shadow
    gains: tuple[float, ...]  # by roll-out: the mean completion time of all jobs, live over shadow, less 1
    state: str  # the shadow's memory, JSON


def shadow(
    planner: Planner, policy: str, state: str = "{}", rollouts: int = ROLLOUTS, budget_s: float = 10.0, seed: int = 0
) -> Shadowed:
    """Ask a shadow policy what it would do now, and play the future through under both policies."""
    live, other = Future(planner), Future(planner, policy, state=json.loads(state))
    held = planner.engine.jobs.held.copy()
    wanted = other.rolls.decide_now()
    memory = json.dumps(other.rolls.engine.policy.state())
    either = np.maximum(held, wanted).sum()
    agreement = float(np.minimum(held, wanted).sum() / either) if either > 0 else 1.0
    rows = np.flatnonzero(np.abs(held - wanted) > GPU_SLACK)
    rows = rows[np.argsort(-np.abs(held - wanted)[rows], kind="stable")][:MOST_SHOWN].tolist()
    differ = tuple((live.ids[row], float(held[row]), float(wanted[row])) for row in rows if live.ids[row] > 0)
    gains: list[float] = []
    if len(held):
        draws = live.draw(rollouts, seed)
        submitted = planner.engine.jobs.submitted
        _, now_ends = live.run(draws, budget_s / 2)
        _, then_ends = other.run(draws, budget_s / 2)
        for ours, theirs in zip(now_ends, then_ends):
            both = ~np.isnan(ours) & ~np.isnan(theirs)
            if both.any():
                mean = float((theirs[both] - submitted[both]).mean())
                gains.append(float((ours[both] - submitted[both]).mean()) / max(mean, 1e-9) - 1.0)
    return Shadowed(planner.now, policy, len(held), agreement, differ, tuple(gains), memory)


@dataclass(frozen=True, slots=True)
class Control:
    """What the former policy would have made of the same jobs: by roll-out, sums over the time since the switch."""

    presence_s: tuple[float, ...]  # seconds that jobs spent in the system, summed over jobs
    gpu_presence_s: tuple[float, ...]  # the same, each job times the GPUs that it asks for


def planner_of_then(planner: Planner, snapshot: Snapshot, policy: str, arrived: Sequence[JobFacts]) -> Planner:
    """Return a planner with another policy at the time of a snapshot, which knows the kinds of jobs that came since.

    It cannot be made in a forked copy of the process.
    """
    then = type(planner)(replace(planner.setup, policy=policy), replace(snapshot, ended=()))
    then.use_durations(planner)
    then.know(arrived)
    return then


def control(
    planner: Planner,
    then: Planner,
    snapshot: Snapshot,
    arrived: Sequence[JobFacts],
    ended: Mapping[int, float],
    now_s: float,
    rollouts: int = CONTROL_ROLLOUTS,
    seed: int = 0,
) -> Control:
    """Play through what came since a snapshot under the policy of then; `ended` are whole lengths of ended jobs."""
    arrived = [facts for facts in arrived if then.knows(facts)]
    future = Future(then, later=sorted(arrived, key=lambda facts: (facts.submitted_s, facts.id)))
    draws = future.draw(rollouts, seed)
    here, engine = planner.jobs, planner.engine
    engine.settle(job.index for job in here.values())
    rows = {id: engine.jobs.row_of(job.index) for id, job in here.items()}
    attained, whole_s = engine.jobs.settled_attained, engine.jobs.duration_s
    before = {job.facts.id: job.account.attained_gpu_s / max(job.facts.gpus, 1.0) for job in snapshot.jobs}
    rng = np.random.default_rng(seed)

    def length(facts: JobFacts, expected_s: float) -> Floats | float | None:
        """Return how long a job takes at the size that it asks for, as far as it is known by now."""
        if facts.id in ended:
            return ended[facts.id]
        if facts.id not in rows:
            return None
        row = rows[facts.id]
        if here[facts.id].measured:
            return float(whole_s[row])
        done_s = float(attained[row]) / max(facts.gpus, 1.0)
        return then.durations.draw(facts, expected_s, done_s, rng.random(rollouts))

    for row, id in enumerate(future.ids):
        job = then.jobs[id]
        found = length(job.facts, job.expected.seconds)
        if found is not None:
            draws.left_s[:, row] = np.maximum(found - before.get(id, 0.0), 0.1)
    for column, (facts, expected) in enumerate(future.later):
        found = length(facts, expected.seconds)
        if found is not None:
            draws.work_s[:, column] = np.maximum(found, 0.1)
    submitted = np.concatenate([then.engine.jobs.submitted, [facts.submitted_s for facts, _ in future.later]])
    gpus = np.concatenate([then.engine.jobs.gpus, [facts.gpus for facts, _ in future.later]])
    presence, gpu_presence = [], []
    for left, work in zip(draws.left_s, draws.work_s):
        ends = future.rolls.run(left, work, now_s).end_s
        seconds = present_s(submitted, ends, snapshot.now_s, now_s)
        presence.append(float(seconds.sum()))
        gpu_presence.append(float((seconds * np.maximum(gpus, 1.0)).sum()))
    return Control(tuple(presence), tuple(gpu_presence))


def present_s(submitted: Floats, ends: Floats, from_s: float, to_s: float) -> Floats:
    """Return how long each job was in the system in a span of time; NaN as its end: it still is."""
    last = np.where(np.isnan(ends), to_s, np.minimum(ends, to_s))
    return np.asarray(np.maximum(last - np.maximum(submitted, from_s), 0.0))


def describe(gains: Sequence[float]) -> dict[str, Any]:
    """Return the mean of gains and the interval that holds nine of ten of them."""
    if not gains:
        return {"mean": None, "low": None, "high": None}
    low, high = np.quantile(gains, [0.05, 0.95])
    return {"mean": float(np.mean(gains)), "low": float(low), "high": float(high)}
