"""How long a job still takes, if it changes its batch size as it trains.

The batch sizes that a job may take (its modes) are known, when it takes them is not. Shares of the epochs are believed
to be Dirichlet distributed: each mode counts as E/modes epochs beforehand, and as one more for each epoch seen in it,
the running one included.
"""

from __future__ import annotations

import numpy as np

from argosy.policies.base import Floats, Ints


def remaining_epochs(epochs: int, observed: Ints) -> Floats:
    """Return the epochs that are expected still to come in each mode; `observed` counts those seen in each."""
    posterior = epochs / len(observed) + observed
    rescaled = epochs * posterior / posterior.sum()
    return np.asarray(np.maximum(rescaled - observed, 0.0))


def remaining_s(epochs: int, done: int, observed: Ints, epoch_s: Floats) -> float:
    """Return the expected seconds that are left; `epoch_s` is the length of an epoch in each mode."""
    left = max(epochs - done, 0)
    expected = remaining_epochs(epochs, observed)
    if not left or not expected.sum() > 0:
        return left * float(epoch_s[int(np.argmax(observed))])
    return float((expected * epoch_s).sum() * left / expected.sum())


class FairFinish:
    """The time at which a job would end on an equal share of the cluster, estimated whenever jobs come or go.

    0.9 of its value is the mean of the estimates, each weighted by how long it was the last one, 0.1 is the last.
    """

    MOMENTUM = 0.9

    def __init__(self, series: list[tuple[float, float]] | None = None) -> None:
        self.series = series or []  # (when, estimate)

    def add(self, now: float, estimate: float) -> None:
        self.series.append((now, estimate))

    def value(self, now: float) -> float:
        times = np.array([at for at, _ in self.series] + [now])
        estimates = np.array([estimate for _, estimate in self.series])
        weights = np.diff(times)
        mean = float((weights * estimates).sum() / weights.sum()) if weights.sum() > 0 else float(estimates[0])
        return self.MOMENTUM * mean + (1 - self.MOMENTUM) * float(estimates[-1])
