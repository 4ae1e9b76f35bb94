"""The Gittins index of a job whose length is only known in distribution, from samples.

With S a random sample and a the service that a job has attained, the index is the chance of finishing within
one more quantum D, per unit of service that this is expected to take. A job with a high index is worth running.

    G(a, D) = P(S − a ≤ D | S > a) / E[min(S − a, D) | S > a],        G(a) = max over D of G(a, D)

Let s_1 ≤ … ≤ s_n be the samples, i the number of those ≤ a and A(x) = Σ min(s, x). Then G(a, D) is a slope,
(k − i) / (A(a + D) − A(a)) where k samples are ≤ a + D. The best quantum ends at a sample, and the best slope is
the tangent from (A(a), i) to the upper hull of the points (A(s_k), k) after it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from argosy._jit import entry_point

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Gittins:
    """Computes the index for many ages at once; beyond the largest sample, where nothing is known, it is 0."""

    def __init__(self, samples: ArrayLike) -> None:
        found = np.asarray(samples, np.float64)
        self.samples = np.sort(found[found > 0])
        self._sums = np.zeros(len(self.samples) + 1)
        self.samples.cumsum(out=self._sums[1:])

    def within(self, ages: Floats, quanta: Floats) -> Floats:
        """Return G(a, D) for ages a and quanta D, which may be ∞."""
        index = np.empty(len(ages))
        compiled(index_within)(self.samples, self._sums, ages, quanta, index)
        return index

    def best(self, ages: Floats) -> Floats:
        """Return G(a), the maximum over all quanta."""
        index = np.empty(len(ages))
        compiled(index_at_best)(self.samples, self._sums, *self._hull, ages, index)
        return index

    @cached_property
    def _hull(self) -> tuple[Floats, Ints]:
        """Return A(s_k) of each sample, and which sample follows it on the upper hull of its point and later ones."""
        n = len(self.samples)
        points = self._sums[1:] + np.arange(n - 1, -1, -1) * self.samples
        following = np.empty(n, np.int64)
        compiled(link_hull)(points, following)
        return points, following


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that loops over jobs and samples at each decision; NumPy would take ten times as long."""
    return entry_point(function, allocates=True)


def index_within(samples: Floats, sums: Floats, ages: Floats, quanta: Floats, index: Floats) -> None:
    n = len(samples)
    for row in range(len(ages)):
        a, quantum = ages[row], quanta[row]
        i = np.searchsorted(samples, a, "right")
        k = np.searchsorted(samples, a + quantum, "right")
        expected = sums[k] - sums[i] - (k - i) * a
        if k < n:
            expected += (n - k) * quantum
        index[row] = (k - i) / expected if k > i else 0.0


def link_hull(points: Floats, following: Ints) -> None:
    """Link the points of the upper hulls, from the last point to the first; -1 follows the last point."""
    n = len(points)
    for k in range(n - 1, -1, -1):
        near = k + 1 if k + 1 < n else -1
        while near >= 0 and following[near] >= 0:
            far = following[near]
            if (near - k) * (points[far] - points[k]) > (far - k) * (points[near] - points[k]):
                break
            near = far
        following[k] = near


def index_at_best(samples: Floats, sums: Floats, points: Floats, following: Ints, ages: Floats, index: Floats) -> None:
    n = len(samples)
    for row in range(len(ages)):
        i = np.searchsorted(samples, ages[row], "right")
        x = sums[i] + (n - i) * ages[row]
        index[row] = 0.0
        k = i if i < n else -1
        while k >= 0:
            slope = (k + 1 - i) / (points[k] - x)
            if slope < index[row]:
                break
            index[row], k = slope, following[k]
