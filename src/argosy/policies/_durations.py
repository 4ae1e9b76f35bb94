"""How long will a job run? Learned while the jobs run, from those that have ended.

    expected = blend · rolling + (1 − blend) · trees

*Rolling* is the first that exists of: the decayed mean over the user's jobs of the same kind and size, the user's
mean at that size, the queue's mean, the mean over all, `UNKNOWN_S`. *Trees* are LightGBM's, on the logarithm of the
duration, from user, queue, GPUs, hour and weekday of submission, kind, and the rolling means when the job was first
seen. They are fitted anew every `refresh_s` from the jobs that ended by then; before `MIN_JOBS` have ended the
rolling part stands alone.

References: Hu et al., Characterization and prediction of deep learning workloads in large-scale GPU datacenters,
SC'21 (Helios).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

UNKNOWN_S = 3600.0  # before anything at all has ended
MIN_JOBS = 100
MAX_JOBS = 20_000  # the most recent ones: enough to learn from, and a fit stays a fraction of a second
TREES = 60
# Reproducible to the bit: one thread, a fixed seed, a fixed order of summation.
TREE_SETTINGS: dict[str, Any] = {
    "objective": "regression", "num_leaves": 15, "learning_rate": 0.1, "min_data_in_leaf": 10, "seed": 1,
    "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1,
}  # fmt: skip


@dataclass(slots=True)
class Known:
    """A job that has not ended."""

    groups: list[str]  # in which its duration will count, most specific first
    features: list[float]
    ran_s: float = 0.0  # in runs that are over
    since_s: float | None = None  # begin of the run that is not


class Durations:
    """What past jobs teach about future ones."""

    def __init__(self, blend: float, decay: float, refresh_s: float) -> None:
        self.blend, self.refresh_s = blend, refresh_s
        self._decays = (decay, 1.0, 1.0, 1.0)
        self._jobs: dict[int, Known] = {}
        self._groups: dict[str, tuple[float, float]] = {}  # sum of durations, sum of weights
        self._ended: deque[list[float]] = deque(maxlen=MAX_JOBS)  # features, then the logarithm of the duration
        self._period = 0
        self._trees: Any = None

    def meet(self, job: int, user: int, queue: int, kind: int, gpus: float, submitted: float) -> None:
        """A job has arrived."""
        groups = [f"{user} {gpus:g} {kind}", f"{user} {gpus:g}", f"{queue}", "all"]
        hour = submitted / 3600.0
        traits = [float(user), float(queue), float(gpus), hour % 24 // 1, hour // 24 % 7, float(kind)]
        means = [-1.0 if math.isnan(mean) else mean for mean in self._means(groups)]
        self._jobs[job] = Known(groups, traits + means)

    def begins(self, job: int, time_s: float) -> None:
        known = self._jobs.get(job)
        if known is not None and known.since_s is None:  # moving is not the end of a run
            known.since_s = time_s

    def stops(self, job: int, time_s: float) -> None:
        known = self._jobs.get(job)
        if known is not None and known.since_s is not None:
            known.ran_s += time_s - known.since_s
            known.since_s = None

    def ends(self, job: int, time_s: float) -> None:
        """A job has ended, and its duration counts from now on."""
        self.stops(job, time_s)
        known = self._jobs.pop(job, None)
        if known is None:
            return
        for group, decay in zip(known.groups, self._decays):
            total, weight = self._groups.get(group, (0.0, 0.0))
            self._groups[group] = (decay * total + known.ran_s, decay * weight + 1.0)
        if known.ran_s > 0:
            self._ended.append([*known.features, math.log(known.ran_s)])

    def forget(self, job: int) -> None:
        """A job was withdrawn: how long it would have run is not known."""
        self._jobs.pop(job, None)

    def refresh(self, now: float) -> bool:
        """Fit the trees if it is time; True if it is time to look at expectations again."""
        period = int(now // self.refresh_s)
        if period == self._period:
            return False
        self._period = period
        if len(self._ended) >= MIN_JOBS:
            import lightgbm  # heavy: not before there is something to learn

            rows = np.array(self._ended)
            self._trees = lightgbm.train(TREE_SETTINGS, lightgbm.Dataset(rows[:, :-1], rows[:, -1]), TREES)
        return True

    def met(self) -> list[int]:
        """Jobs that have not ended."""
        return sorted(self._jobs)

    def expect(self, jobs: Sequence[int]) -> list[float]:
        """Expected durations of jobs that have been met."""
        known = [self._jobs[job] for job in jobs]
        rolling = [next((m for m in self._means(k.groups) if not math.isnan(m)), UNKNOWN_S) for k in known]
        if self._trees is None or not known:
            return rolling
        features = np.array([k.features for k in known])
        by_trees = np.exp(self._trees.predict(features, num_threads=1)).tolist()
        return [self.blend * r + (1 - self.blend) * t for r, t in zip(rolling, by_trees)]

    def _means(self, groups: list[str]) -> list[float]:
        """NaN where nothing has ended."""
        sums = [self._groups.get(group, (math.nan, 1.0)) for group in groups]
        return [total / weight for total, weight in sums]

    def state(self) -> dict[str, Any]:
        return {
            "jobs": [[job, asdict(known)] for job, known in self._jobs.items()],
            "groups": {name: list(sums) for name, sums in self._groups.items()},
            "ended": list(self._ended),
            "period": self._period,
            "trees": None if self._trees is None else self._trees.model_to_string(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._jobs = {int(job): Known(**known) for job, known in state["jobs"]}
        self._groups = {name: (sums[0], sums[1]) for name, sums in state["groups"].items()}
        self._ended = deque(state["ended"], maxlen=MAX_JOBS)
        self._period = int(state["period"])
        self._trees = None
        if state["trees"] is not None:
            import lightgbm

            self._trees = lightgbm.Booster(model_str=state["trees"])
