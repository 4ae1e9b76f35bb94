"""Learn estimates during a run: each arriving job gets an estimate from the jobs that have finished by then."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.kernels import layout as L
from argosy.workload.estimate import Estimator


class ArrivalEstimates:
    """Writes the expected durations of jobs that have arrived since the last call."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._upto = 0

    def update(self, w: L.World) -> None:
        upto = int(w.si[L.NEXT_JOB])
        if upto == self._upto:
            return
        rows = np.arange(self._upto, upto)
        self._upto = upto
        finish = w.rs[L.R_FINISH]
        finished = np.flatnonzero(~np.isnan(finish[:upto]))
        finished = finished[np.argsort(finish[finished], kind="stable")]
        expected = unknown_last(self._estimator.estimate(rows, float(w.sf[L.NOW]), finished, finish[finished]))
        slots = w.so[rows]
        here = slots >= 0
        w.jf[L.EXPECTED, slots[here]] = w.jf[L.NOW_EXPECTED_LEFT, slots[here]] = expected[here]


def unknown_last(expected_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace missing estimates by infinity, so that jobs without an estimate come last."""
    return np.where(np.isnan(expected_s), np.inf, expected_s)
