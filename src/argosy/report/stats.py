"""Compute confidence intervals of means and of differences of means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from argosy.seeding import stream

LEVEL = 0.95
MOST_BLOCKS = 200
RESAMPLES = 2000


class Interval(NamedTuple):
    """A mean with the interval that covers the true mean at the chosen level; a single value gives bounds of NaN."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def excludes_zero(self) -> bool:
        """Return whether the sign is certain at the chosen level (never, without an interval)."""
        return self.low > 0 or self.high < 0


def interval(values: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Return the Student-t interval over independent values, such as a metric over seeds; NaN values are left out."""
    x = _numbers(values)
    x = x[~np.isnan(x)]
    if x.size < 2:
        return Interval(float(x[0]) if x.size else float("nan"), float("nan"), float("nan"), x.size)
    from scipy.special import stdtrit  # a tenth of the import time of scipy.stats

    mean, spread = float(x.mean()), float(x.std(ddof=1))
    reach = float(stdtrit(x.size - 1, (1 + level) / 2)) * spread / x.size**0.5
    return Interval(mean, mean - reach, mean + reach, x.size)


def paired_difference(a: ArrayLike, b: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Return the mean of a − b over pairs, such as runs with equal seeds, in which common effects cancel."""
    return interval(_numbers(a) - _numbers(b), level=level)


def paired_ratio(a: ArrayLike, b: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Return the geometric mean of a / b for positive values that belong together, with Student-t over the logarithms.

    A seed with a heavy workload weighs no more than others, a ratio and its inverse are treated alike, and the bounds
    are positive, as all ratios are. Pairs with a value that is not positive (nothing measured) are left out.
    """
    x, y = _numbers(a), _numbers(b)
    known = (x > 0) & (y > 0)
    logs = interval(np.log(x[known]) - np.log(y[known]), level=level)
    with np.errstate(over="ignore"):  # with two seeds that differ by much, the bound overflows to infinity
        mean, low, high = np.exp(logs[:3]).tolist()
    return Interval(mean, low, high, logs.n)


def paired_change(a: ArrayLike, b: ArrayLike, *, level: float = LEVEL) -> Interval:
    """Return the change from b to a relative to b, as geometric mean over pairs: −0.3 is 30 % less; never below −1."""
    return _less_one(paired_ratio(a, b, level=level))


def bootstrap_change(a: ArrayLike, b: ArrayLike, *, level: float = LEVEL, seed: int = 0) -> Interval:
    """Return the change from the mean of b to that of a, relative to b's, from one run of each policy; at least −1.

    The values are of jobs in the order of their submission. Consecutive jobs meet the same queue, so single jobs are
    not independent: whole blocks of neighbours are resampled instead. With few jobs the blocks have one job each, which
    is the plain bootstrap.
    """
    x, y = _numbers(a), _numbers(b)
    if x.size < 2 or not y.sum() > 0:
        return paired_change(x, y, level=level)
    count = min(x.size, MOST_BLOCKS)
    edges = np.linspace(0, x.size, count + 1).astype(np.int64)[:-1]
    mine, theirs = np.add.reduceat(x, edges), np.add.reduceat(y, edges)
    drawn = stream(seed, "bootstrap").integers(count, size=(RESAMPLES, count))
    above, below = mine[drawn].sum(axis=1), theirs[drawn].sum(axis=1)
    ratios = above[below > 0] / below[below > 0]
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2]).tolist()
    mean = float(x.sum() / y.sum())
    return _less_one(Interval(mean, min(low, mean), max(high, mean), x.size))  # rounding may put the mean outside


def _less_one(ratio: Interval) -> Interval:
    return Interval(ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.n)


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
