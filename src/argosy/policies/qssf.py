"""Quasi-shortest service first: the job with the smallest predicted GPU-time starts first.

Decision: of the jobs that wait, the one with the smallest product of GPUs and predicted duration starts first; running
jobs are left alone. A prediction is made when a job arrives, and again for all jobs when the trees are refreshed.
State used: demands (user, queue, kind, GPUs, submit time), and how long the jobs that ended have run, over all
their runs if faults interrupted them.
Parameters: `blend`, the weight of the rolling mean against the trees; `decay`, the weight of a job relative to the
next newer one of its kind; `refresh_s`, how often the trees are fitted.
Differences from the paper: names are not seen, so "similar name" is the same kind (model and batch); the decay, the
blend and the trees' settings are ours. Nothing is learned from withdrawn jobs; failed and killed ones count like
others.
References: Hu et al., Characterization and prediction of deep learning workloads in large-scale GPU datacenters,
SC'21 (Helios).

    key(j) = gpus(j) · (blend · rolling(j) + (1 − blend) · trees(j))
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Event, Floats, Policy, register
from argosy.workload.durations import DEFAULT_S, MAX_JOBS, MIN_JOBS, RollingMeans, fit_trees, predict_seconds

BEGINS = frozenset({"start", "resume", "migrate", "resize"})
STOPS = frozenset({"preempt", "pause", "evict", "crash"})
ENDS = frozenset({"finish", "fail", "kill"})


@register("qssf", "smallest predicted GPU-time first; learns durations from jobs that ended", "Hu et al., SC'21")
class Qssf(Policy):
    uses = frozenset({"demand", "history"})

    def __init__(self, blend: float = 0.5, decay: float = 0.8, refresh_s: float = 86400.0) -> None:
        if not 0 <= blend <= 1:
            raise InputError(f"qssf: blend must be from 0 to 1, is {blend}")
        if not 0 < decay <= 1:
            raise InputError(f"qssf: decay must be above 0 and at most 1, is {decay}")
        if not refresh_s > 0:
            raise InputError(f"qssf: refresh_s must be > 0, is {refresh_s}")
        self.blend, self.decay, self.refresh_s = blend, decay, refresh_s

    def reset(self, context: Context) -> None:
        self._durations = DurationPredictor(self.blend, self.decay, self.refresh_s)
        self._expected_s = np.full(1024, np.nan)  # by job; NaN: not seen yet

    def on_event(self, event: Event) -> None:
        if event.kind in BEGINS:
            self._durations.begins(event.job, event.time)
        elif event.kind in STOPS:
            self._durations.stops(event.job, event.time)
        elif event.kind in ENDS:
            self._durations.ends(event.job, event.time)
        elif event.kind == "cancel":
            self._durations.forget(event.job)

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        self._make_room(int(jobs.index.max(initial=0)))
        new = np.flatnonzero(np.isnan(self._expected_s[jobs.index]))
        traits = (jobs.index, jobs.user, jobs.queue, jobs.kind, jobs.gpus, jobs.submitted)
        for job in zip(*(column[new].tolist() for column in traits)):
            self._durations.arrives(*job)
        rows = np.arange(len(jobs)) if self._durations.refresh(view.now) else new
        if len(rows):
            self._expected_s[jobs.index[rows]] = self._durations.expect(jobs.index[rows].tolist())
        return np.asarray(jobs.gpus * self._expected_s[jobs.index])

    def _make_room(self, job: int) -> None:
        while job >= len(self._expected_s):
            self._expected_s = np.concatenate([self._expected_s, np.full(len(self._expected_s), np.nan)])

    def state(self) -> dict[str, Any]:
        active = self._durations.active()
        return {"durations": self._durations.state(), "expected_s": [active, self._expected_s[active].tolist()]}

    def restore(self, state: dict[str, Any]) -> None:
        self._durations.restore(state["durations"])
        jobs, expected_s = state["expected_s"]
        self._make_room(max(jobs, default=0))
        self._expected_s[jobs] = expected_s


@dataclass(slots=True)
class ActiveJob:
    """A job that has not ended."""

    groups: list[str]  # groups in which its duration will count, most specific first
    features: list[float]
    ran_s: float = 0.0  # in runs that are over
    since_s: float | None = None  # when its current run began


class DurationPredictor:
    """Predicts how long a job will run, from the jobs that have ended; it learns while the jobs run.

        expected = blend · rolling + (1 − blend) · trees

    *Rolling* is the first that exists of: the decayed mean over the user's jobs of the same kind and size, the user's
    mean at that size, the queue's mean, the mean over all jobs, `DEFAULT_S`. *Trees* are a LightGBM model that predicts
    the logarithm of the duration from user, queue, GPUs, hour and weekday of submission, kind, and the rolling means
    when the job was first seen. It is fitted again every `refresh_s` to the jobs that have ended by then; before
    `MIN_JOBS` have ended, the rolling mean is used alone.
    """

    def __init__(self, blend: float, decay: float, refresh_s: float) -> None:
        self.blend, self.refresh_s = blend, refresh_s
        self._jobs: dict[int, ActiveJob] = {}
        self._means: RollingMeans[str] = RollingMeans(decay)
        self._ended: deque[list[float]] = deque(maxlen=MAX_JOBS)  # features, then the logarithm of the duration
        self._period = 0
        self._trees: Any = None

    def arrives(self, job: int, user: int, queue: int, kind: int, gpus: float, submitted: float) -> None:
        """Record that a job has arrived."""
        groups = [f"{user} {gpus:g} {kind}", f"{user} {gpus:g}", f"{queue}", "all"]
        hour = submitted / 3600.0
        traits = [float(user), float(queue), float(gpus), hour % 24 // 1, hour // 24 % 7, float(kind)]
        means = [-1.0 if math.isnan(mean) else mean for mean in map(self._means.mean, groups)]
        self._jobs[job] = ActiveJob(groups, traits + means)

    def begins(self, job: int, time_s: float) -> None:
        """Record that a run of a job begins."""
        known = self._jobs.get(job)
        if known is not None and known.since_s is None:  # a move does not end a run
            known.since_s = time_s

    def stops(self, job: int, time_s: float) -> None:
        """Record that a run of a job is interrupted."""
        known = self._jobs.get(job)
        if known is not None and known.since_s is not None:
            known.ran_s += time_s - known.since_s
            known.since_s = None

    def ends(self, job: int, time_s: float) -> None:
        """Learn from a job that has ended."""
        self.stops(job, time_s)
        known = self._jobs.pop(job, None)
        if known is None:
            return
        self._means.add(known.groups, known.ran_s)
        if known.ran_s > 0:
            self._ended.append([*known.features, math.log(known.ran_s)])

    def forget(self, job: int) -> None:
        """Drop a withdrawn job, because how long it would have run is not known."""
        self._jobs.pop(job, None)

    def refresh(self, now: float) -> bool:
        """Fit the trees if a new period has begun, and return whether one has: then expectations may have changed."""
        period = int(now // self.refresh_s)
        if period == self._period:
            return False
        self._period = period
        if len(self._ended) >= MIN_JOBS:
            rows = np.array(self._ended)
            self._trees = fit_trees(rows[:, :-1], rows[:, -1])
        return True

    def active(self) -> list[int]:
        """Return the jobs that have arrived and not ended."""
        return sorted(self._jobs)

    def expect(self, jobs: Sequence[int]) -> list[float]:
        """Return the expected durations of jobs that have arrived."""
        known = [self._jobs[job] for job in jobs]
        rolling = [self._rolling(job.groups) for job in known]
        if self._trees is None or not known:
            return rolling
        by_trees = predict_seconds(self._trees, np.array([job.features for job in known])).tolist()
        return [self.blend * r + (1 - self.blend) * t for r, t in zip(rolling, by_trees)]

    def _rolling(self, groups: list[str]) -> float:
        return next((mean for mean in map(self._means.mean, groups) if not math.isnan(mean)), DEFAULT_S)

    def state(self) -> dict[str, Any]:
        return {
            "jobs": [[job, asdict(known)] for job, known in self._jobs.items()],
            "groups": {name: list(sums) for name, sums in self._means.sums.items()},
            "ended": list(self._ended),
            "period": self._period,
            "trees": None if self._trees is None else self._trees.model_to_string(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._jobs = {int(job): ActiveJob(**known) for job, known in state["jobs"]}
        self._means.sums = {name: (sums[0], sums[1]) for name, sums in state["groups"].items()}
        self._ended = deque(state["ended"], maxlen=MAX_JOBS)
        self._period = int(state["period"])
        self._trees = None
        if state["trees"] is not None:
            import lightgbm

            self._trees = lightgbm.Booster(model_str=state["trees"])
