"""A linear model of results that are correlated in groups, which predicts those of new groups.

    result = features · weights + scale · (effects of the groups + noise)

Networks and data sets have peculiarities that no feature describes. Here they are random effects: a model that is asked
about a network it has never seen adds their variances to its own uncertainty. The scale depends on the situation, since
some results are more uncertain than others. `mixed_linear_fit.py` learns all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LARGEST_SCALE = 1.2  # its logarithm, so that no situation is taken as certain or as hopeless


@dataclass(frozen=True)
class Fitted:
    """Holds the posterior of the weights, the variances of effects and noise, and what their scale depends on."""

    mean: Floats
    covariance: Floats
    variances: dict[str, float]  # of each effect, "noise", and "weights" (their prior)
    scales: Floats  # how the logarithm of the scale depends on the numbers of a situation

    def scale(self, numbers: Floats) -> Floats:
        """Return the factor on effects and noise, for each row of numbers."""
        return np.asarray(np.exp(np.clip(numbers @ self.scales, -LARGEST_SCALE, LARGEST_SCALE)))

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and covariance of features · weights."""
        return features @ self.mean, features @ self.covariance @ features.T


def conditioned(mean: Floats, covariance: Floats, results: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of the first of some numbers, after the last ones were observed.

    `mean` and `covariance` are those of all; `results` are the observations, known up to these variances.
    """
    n = len(mean) - len(results)
    across = covariance[:n, n:]
    inside = covariance[n:, n:] + np.diag(variances)
    solved = np.linalg.solve(inside, np.column_stack([results - mean[n:], across.T]))
    return mean[:n] + across @ solved[:, 0], covariance[:n, :n] - across @ solved[:, 1:]
