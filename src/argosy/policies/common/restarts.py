"""Count how often each job was given other GPUs, for policies that weigh what a change costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Floats, Ints


class Restarts:
    """Compares what jobs hold at every decision. The policy must declare `demand` and `placement`."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, int, int, float]] = {}  # index → GPUs, type, changes, time of the last

    def of(self, view: View) -> tuple[Ints, Floats]:
        """Return how often each job was restarted on other GPUs, and when it last got what it has."""
        jobs = view.jobs
        new: dict[int, tuple[float, int, int, float]] = {}
        index, held, kind = jobs.index.tolist(), jobs.held.tolist(), jobs.held_type.tolist()
        for i, gpus, gpu_type in zip(index, held, kind):
            before = self._seen.get(i)
            if before is None:
                new[i] = (gpus, gpu_type, 0, view.now if gpus else -np.inf)
            elif gpus and (gpus, gpu_type) != before[:2]:
                first = before[3] == -np.inf
                new[i] = (gpus, gpu_type, before[2] + (not first), view.now)
            else:
                new[i] = (gpus if gpus else before[0], gpu_type if gpus else before[1], *before[2:])
        self._seen = new
        return np.array([new[i][2] for i in index], np.int64), np.array([new[i][3] for i in index], np.float64)

    def state(self) -> list[Any]:
        """Return what was seen, as JSON."""
        return [[i, gpus, t, n, None if at == -np.inf else at] for i, (gpus, t, n, at) in self._seen.items()]

    def restore(self, state: list[Any]) -> None:
        self._seen = {
            int(i): (float(gpus), int(t), int(n), -np.inf if at is None else float(at)) for i, gpus, t, n, at in state
        }
