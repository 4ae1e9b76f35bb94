"""Random draws whose marginals come out right at any size.

A few thousand draws from a heavy tail miss its mean by tens of per cent. So a generator here only decides
*who ranks where* (a latent score, which may carry habits and correlations), and the rank decides the value:
`ranks` spreads any score evenly over (0, 1), and quantile functions turn that into durations, sizes or
outcomes. Correlations come from the score, the distribution from the profile, and neither disturbs the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def ranks(score: Floats, rng: np.random.Generator, weights: Floats | None = None) -> Floats:
    """Return each item's place in (0, 1) when sorted by score, uniform inside its own stratum (ties keep their order).

    With weights an item's stratum is as wide as its weight, and its place is the middle of it: a heavy item
    would otherwise be thrown far from where it belongs.
    """
    order = np.argsort(score, kind="stable")
    place = np.empty(len(score))
    if weights is None:
        place[order] = (np.arange(len(score)) + rng.random(len(score))) / len(score)
    else:
        upper = np.cumsum(weights[order])
        place[order] = (upper - 0.5 * weights[order]) / upper[-1]
    return place


def categories(place: Floats, shares: Floats) -> Ints:
    """Cut (0, 1) into consecutive pieces as long as the shares; which piece is each place in?"""
    cuts = np.cumsum(shares)[:-1] / np.sum(shares)
    return np.searchsorted(cuts, place, side="right").astype(np.int64)


def zipf(items: int, exponent: float, flat: float) -> Floats:
    """Return Zipf–Mandelbrot shares: item k has weight (k + flat)^-exponent, so `flat` tames the top of the list."""
    weight = (np.arange(items) + flat) ** -exponent
    return np.asarray(weight / weight.sum(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Lognormals (weight, median_s, sigma of the logarithm), cut off at `longest_s` and at one second."""

    parts: tuple[tuple[float, float, float], ...]
    longest_s: float

    def quantile(self, place: Floats) -> Floats:
        """Return the inverse distribution function, from a grid fine enough (0.2%) for any statistic we promise."""
        from scipy.special import ndtr  # heavy: late

        log_s = np.linspace(0.0, np.log(self.longest_s), 8000)
        below = sum(w * ndtr((log_s - np.log(median_s)) / sigma) for w, median_s, sigma in self.parts)
        below = (below - below[0]) / (below[-1] - below[0])
        return np.asarray(np.exp(np.interp(place, below, log_s)), dtype=np.float64)
