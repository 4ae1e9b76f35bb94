"""Intervals: how sure a mean, or a difference of means, is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from argosy.seeding import stream

LEVEL = 0.95
MOST_BLOCKS = 200
RESAMPLES = 2000


class Interval(NamedTuple):
    """A mean with the interval that covers the true one at the chosen level; its bounds are NaN where one
    value is all there is."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def excludes_zero(self) -> bool:
        """Whether the sign is certain at the chosen level (never, without an interval)."""
        return self.low > 0 or self.high < 0


def interval(values: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Student-t over independent values, such as a metric over seeds; NaN (nothing measured) is left out."""
    x = _numbers(values)
    x = x[~np.isnan(x)]
    if x.size < 2:
        return Interval(float(x[0]) if x.size else float("nan"), float("nan"), float("nan"), x.size)
    from scipy.special import stdtrit  # a tenth of the import time of scipy.stats

    mean, spread = float(x.mean()), float(x.std(ddof=1))
    reach = float(stdtrit(x.size - 1, (1 + level) / 2)) * spread / x.size**0.5
    return Interval(mean, mean - reach, mean + reach, x.size)


def paired_difference(a: ArrayLike, b: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Mean of a − b for values that belong together, such as runs with equal seeds: what is common to a pair
    cancels."""
    return interval(_numbers(a) - _numbers(b), level=level)


def bootstrap_difference(a: ArrayLike, b: ArrayLike, *, level: float = LEVEL, seed: int = 0) -> Interval:
    """Mean of a − b for jobs in the order of their submission, when one run of each policy is all there is.

    Jobs that follow each other meet the same queue, so single jobs are not independent: whole blocks of
    neighbours are drawn again instead. Few jobs make blocks of one, which is the plain bootstrap.
    """
    difference = _numbers(a) - _numbers(b)
    if difference.size < 2:
        return interval(difference, level=level)
    count = min(difference.size, MOST_BLOCKS)
    edges = np.linspace(0, difference.size, count + 1).astype(np.int64)
    sums, sizes = np.add.reduceat(difference, edges[:-1]), np.diff(edges)
    drawn = stream(seed, "bootstrap").integers(count, size=(RESAMPLES, count))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(difference.mean()), float(low), float(high), difference.size)


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
