"""Draws how long a job may take: from what jobs like it took, or from how wrong its user's estimates have been.

Of a job that has run for a while only those lengths are possible with which it would not have ended yet: that is the
distribution conditional on its age.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KEPT = 200  # of the latest values of each group
ENOUGH = 8  # values that a group needs
GUESS = np.exp(np.linspace(-2.0, 2.0, 41))  # ratios before anything has ended: from a seventh to sevenfold
LEAST_LATER = 0.05  # a job that outlives all that is known takes at least this part of its age longer


class Draws:
    """The latest values of groups of jobs: seconds that they took, or ratios of real to estimated seconds."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._sorted: dict[Hashable, Floats] = {}

    def learn(self, groups: Iterable[Hashable], value: float) -> None:
        """Note the value of a job that has ended, in all its groups."""
        for group in groups:
            self._seen[group].append(max(value, 1e-3))
            self._sorted.pop(group, None)

    def of(self, group: Hashable) -> Floats:
        """Return the values of a group in order."""
        if group not in self._sorted:
            self._sorted[group] = np.sort(np.array(self._seen.get(group, ())))
        return self._sorted[group]

    def draw(self, groups: Iterable[Hashable], unit: float, done: float, uniform: Floats) -> Floats:
        """Return values above `done`, in units of `unit`, one for each number between 0 and 1.

        The first group is used, which are given the most specific first, in which enough jobs took longer than that.
        """
        for group in groups:
            values = self.of(group)
            first = int(np.searchsorted(values, done / unit, side="right"))
            if len(values) >= ENOUGH and len(values) - first >= 2:
                return _between(values[first:] * unit, uniform)
        if done <= 0.0:
            return _between(GUESS * unit, uniform)
        return np.asarray(done * np.maximum(1.0 / (1.0 - 0.99 * uniform), 1.0 + LEAST_LATER))


def _between(values: Floats, uniform: Floats) -> Floats:
    """Return quantiles of these values."""
    at = uniform * (len(values) - 1)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, len(values) - 1)
    return np.asarray(values[low] + (at - low) * (values[high] - values[low]))
