"""Count the GPU-time that each queue had lately, so that queues which had little come first."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Event, Floats

KEPT = 512  # moments that are remembered in one window


class Usage:
    """GPU-time of each queue over a sliding window.

    The policy must declare `demand` and `service` in `uses`, and pass on every event.
    """

    def __init__(self, queues: int, window_s: float, half_life_s: float) -> None:
        self._window_s, self._half_life_s = window_s, half_life_s
        self._ended = np.zeros(queues)  # GPU-seconds of jobs that have ended
        self._queue_of: dict[int, int] = {}  # of active jobs
        self._moments: list[tuple[float, list[float]]] = []  # time, GPU-seconds of each queue until then

    def on_event(self, event: Event) -> None:
        """Count a job that has ended."""
        if event.job in self._queue_of:
            self._ended[self._queue_of.pop(event.job)] += event.info

    def of(self, view: View, gpus: float) -> Floats:
        """Return what each queue had in the window, as a part of what the cluster had."""
        jobs = view.jobs
        self._queue_of = dict(zip(jobs.index.tolist(), jobs.queue.tolist()))
        total = self._ended + np.bincount(jobs.queue, jobs.attained, len(self._ended))
        if not self._moments or view.now - self._moments[-1][0] >= self._window_s / KEPT:
            self._moments.append((view.now, total.tolist()))
        begin = view.now - self._window_s
        while len(self._moments) > 1 and self._moments[1][0] <= begin:
            del self._moments[0]
        times = np.array([t for t, _ in self._moments] + [view.now])
        spent = np.diff(np.array([held for _, held in self._moments] + [total.tolist()]), axis=0)
        if self._half_life_s > 0:
            spent = spent * 0.5 ** ((view.now - times[1:]) / self._half_life_s)[:, None]
        return np.asarray(spent.sum(axis=0) / (max(gpus, 1.0) * self._window_s))

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        return {"ended": self._ended.tolist(), "queues": sorted(self._queue_of.items()), "moments": self._moments}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        self._ended = np.array(state["ended"], np.float64)
        self._queue_of = {int(job): int(queue) for job, queue in state["queues"]}
        self._moments = [(float(t), list(held)) for t, held in state["moments"]]
