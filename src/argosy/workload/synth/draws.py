"""Random draws whose marginal distributions are right for any number of draws.

A few thousand draws from a heavy tail miss its mean by tens of per cent. So a generator here only draws a latent
score, which may carry habits and correlations, and the rank of the score decides the value: `ranks` spreads any
score evenly over (0, 1), and quantile functions turn that into durations, sizes or outcomes. Correlations come
from the score and the distribution from the profile, independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def ranks(score: Floats, rng: np.random.Generator, weights: Floats | None = None) -> Floats:
    """Return each item's place in (0, 1) when sorted by score, drawn uniformly in its stratum (ties keep their order).

    With weights an item's stratum is as wide as its weight, and its place is the middle of it, because a random
    place could be far from that in a wide stratum.
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
    """Divide (0, 1) into consecutive intervals as long as the shares; return the interval in which each place is."""
    cuts = np.cumsum(shares)[:-1] / np.sum(shares)
    return np.searchsorted(cuts, place, side="right").astype(np.int64)


def zipf(items: int, exponent: float, flat: float) -> Floats:
    """Return Zipf–Mandelbrot shares: item k has weight (k + flat)^-exponent; `flat` reduces the share of the first."""
    weight = (np.arange(items) + flat) ** -exponent
    return np.asarray(weight / weight.sum(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of lognormals (weight, median_s, sigma of the logarithm), truncated at one second and `longest_s`."""

    parts: tuple[tuple[float, float, float], ...]
    longest_s: float

    def quantile(self, place: Floats) -> Floats:
        """Return the inverse distribution function, from a grid (0.2%) fine enough for all promised statistics."""
        from scipy.special import ndtr  # imported late, because it is slow to load

        log_s = np.linspace(0.0, np.log(self.longest_s), 8000)
        below = sum(w * ndtr((log_s - np.log(median_s)) / sigma) for w, median_s, sigma in self.parts)
        below = (below - below[0]) / (below[-1] - below[0])
        return np.asarray(np.exp(np.interp(place, below, log_s)), dtype=np.float64)
