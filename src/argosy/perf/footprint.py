"""How much of a GPU a network uses when it has one for itself: utilisation and memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argosy.perf.base import Floats

UTILISATION, MEMORY_GIB = 0.6, 6.0  # of a network nobody measured


def of(models: Sequence[str | None]) -> tuple[Floats, Floats]:
    """Utilisation (0..1) and GPU memory (GiB) of each network at its usual batch."""
    return np.full(len(models), UTILISATION), np.full(len(models), MEMORY_GIB)
