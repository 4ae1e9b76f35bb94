"""Loss curves of jobs in training: what a scheduler that reads losses would see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argosy.cluster.view import Losses
from argosy.perf.base import Floats

EPOCHS = 90
WINDOW = 10


class Curves:
    """The loss curve of every job of a trace; all end exactly when the job's work is done."""

    def __init__(self, models: Sequence[str | None], work_s: Floats, seed: int) -> None:
        self._work_s, self._seed = work_s, seed

    def reported(self, job: int, progress: float) -> Losses:
        """What job number `job` has reported when this share of its work is done."""
        epochs = np.arange(1.0, np.floor(progress * EPOCHS) + 1.0)
        last = np.array([EPOCHS - WINDOW, EPOCHS], np.float64)
        fall = 1.0 / (0.2 * last + 0.5)
        return Losses(
            epochs, 1.0 / (0.2 * epochs + 0.5) + 0.1, float(fall[0] - fall[1]), WINDOW, self._work_s[job] / EPOCHS
        )
