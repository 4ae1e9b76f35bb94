"""How wrong estimates of durations have been, and what that says about jobs that are still running.

For each source of estimates the ratios of real to estimated durations are kept. A job's duration is then its estimate
times one of these ratios. Of a job that has already run for a while only those ratios are possible with which it would
not have ended yet: that is the distribution conditional on its age.
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KEPT = 500  # of the latest errors of each source
ENOUGH = 20  # errors of its own that a source needs
FIRST_GUESS = np.linspace(-2.0, 2.0, 41)  # logarithms of ratios before anything has ended: from a seventh to sevenfold
LEAST_LATER = 0.05  # a job takes at least this part of its age longer, if none of the ratios is possible any more


class Errors:
    """The logarithms of real over estimated durations, by the source of the estimate."""

    def __init__(self) -> None:
        self._by_source: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._sorted: dict[str, Floats] = {}

    def learn(self, source: str, expected_s: float, real_s: float) -> None:
        """Note how long a job took that was expected to take `expected_s`."""
        error = float(np.log(max(real_s, 1e-3) / max(expected_s, 1e-3)))
        for name in (source, ""):
            self._by_source[name].append(error)
            self._sorted.pop(name, None)

    def of(self, source: str) -> Floats:
        """Return the errors of a source in order; of all sources together while it has few."""
        for name in (source, ""):
            found = self._by_source.get(name)
            if found is not None and len(found) >= ENOUGH:
                if name not in self._sorted:
                    self._sorted[name] = np.sort(np.array(found))
                return self._sorted[name]
        known = self._by_source.get("", ())
        return np.sort(np.concatenate([np.array(list(known)), FIRST_GUESS]))

    def draw(self, source: str, expected_s: float, done_s: float, uniform: Floats) -> Floats:
        """Return durations of a job that has done `done_s` already, one for each number between 0 and 1."""
        errors = self.of(source)
        first = int(np.searchsorted(errors, np.log(max(done_s, 1e-9) / expected_s), side="right"))
        left = len(errors) - first
        if left < 2:  # it has outlived all that is known: the longer it has run, the longer it will
            return np.asarray(done_s * np.maximum(1.0 / (1.0 - 0.99 * uniform), 1.0 + LEAST_LATER))
        at = first + uniform * (left - 1)
        low = at.astype(np.int64)
        high = np.minimum(low + 1, len(errors) - 1)
        log_ratio = errors[low] + (at - low) * (errors[high] - errors[low])
        return np.asarray(np.maximum(expected_s * np.exp(log_ratio), done_s))
