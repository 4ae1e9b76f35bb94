"""Predict how long jobs run from how long similar jobs have run (Hu et al., Helios, SC'21).

Three modules predict durations: the estimator `history` of a simulation, the policy `qssf`, and the planner of a live
cluster. They see different columns of a job and remember different things. This module has what they share: the rolling
means and the regression trees.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

DEFAULT_S = 3600.0  # the expected duration before any job has ended
DECAY = 0.8  # weight of a job relative to the next newer one of its most specific group
MIN_JOBS = 100  # jobs that must have ended before trees are fitted
MAX_JOBS = 20_000  # at most this many of the latest jobs count, so that a fit takes a fraction of a second
TREES = 60
# Reproducible to the bit: one thread, a fixed seed, a fixed order of summation.
TREE_SETTINGS: dict[str, Any] = {
    "objective": "regression",
    "num_leaves": 15,
    "learning_rate": 0.1,
    "min_data_in_leaf": 10,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
Group = TypeVar("Group", bound=Hashable)


def level_decays(decay: float = DECAY) -> tuple[float, float, float, float]:
    """Return the decay of each level of groups, most specific first; newer jobs count more only in the first level."""
    return decay, 1.0, 1.0, 1.0


class RollingMeans(Generic[Group]):
    """Mean durations of groups of jobs; a job counts in several groups, which are given most specific first."""

    def __init__(self, decay: float = DECAY) -> None:
        self._decays = level_decays(decay)
        self.sums: dict[Group, tuple[float, float]] = {}  # sum of seconds, sum of weights

    def add(self, groups: Iterable[Group], seconds: float) -> None:
        """Count the duration of a job that has ended."""
        for group, decay in zip(groups, self._decays):
            total, weight = self.sums.get(group, (0.0, 0.0))
            self.sums[group] = (decay * total + seconds, decay * weight + 1.0)

    def mean(self, group: Group) -> float:
        """Return the mean of a group; NaN if no job of it has ended."""
        total, weight = self.sums.get(group, (math.nan, 1.0))
        return total / weight


def fit_trees(features: NDArray[np.float64], log_seconds: NDArray[np.float64]) -> Any:
    """Fit gradient-boosted trees to the logarithms of durations."""
    import lightgbm  # imported late, because it is slow to load

    return lightgbm.train(TREE_SETTINGS, lightgbm.Dataset(features, log_seconds), TREES)


def predict_seconds(trees: Any, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the durations that trees predict."""
    return np.asarray(np.exp(trees.predict(features, num_threads=1)))
