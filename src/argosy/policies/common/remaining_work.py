"""How much work a job may have left, where its user declared it and where nobody knows.

An undeclared job's length is known in distribution only: from the jobs that have ended in this run, and a broad prior.
The Gittins index of what it has done so far gives the work that it is best to reckon with: the inverse of the largest
chance of ending per unit of work spent on it.

Work may be counted in time or, as Tiresias does, in GPU-time. Time is better where lengths are alike, GPU-time where
they differ by orders of magnitude, as in logs with jobs that run for weeks. So the more the logarithms of the lengths
of ended jobs spread, the more GPU-time counts:

    left = by_time^(1 - g) · by_gpu_time^g        g: from 0 to 1 as the standard deviation goes through `SPREADS`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from argosy._jit import entry_point
from argosy.cluster.view import View
from argosy.errors import PolicyError
from argosy.policies.base import Event, Floats
from argosy.policies.tiresias.gittins import Gittins

SHORTEST_S, LONGEST_S = 60.0, 2 * 86400.0  # lengths of the prior, even on a logarithmic scale
LEAST_S = 10.0  # less work is not told apart
REMEMBERED = 4096  # jobs that have ended
SPREADS = 2.1, 2.5  # of natural logarithms of lengths; from the second on only GPU-time counts
MANY = 100  # ended jobs from which on their spread is believed
ENDS = frozenset({"finish", "fail", "kill"})


class RemainingWork:
    """Estimates work left; policies with one declare `progress`, `declared` and `history`, and hand it all events."""

    def __init__(self, prior: int) -> None:
        """`prior`: how many ended jobs the prior counts as."""
        self._prior = np.exp(np.linspace(np.log(SHORTEST_S), np.log(LONGEST_S), prior))
        self._ended: list[float] = []  # work of each job, in seconds at its requested size
        self._gpus: list[float] = []  # what each of them asked for, at least 1
        self._known = 0  # of them are in the indices
        self._index()

    def on_event(self, event: Event) -> None:
        """Learn from jobs that end."""
        if event.kind in ENDS:
            self.learn([event.done_s], [event.gpus])

    def learn(self, done_s: Sequence[float], gpus: Sequence[float]) -> None:
        """Learn how much work jobs had done when they ended, and how many GPUs they had asked for."""
        for done, asked in zip(done_s, gpus, strict=True):
            if done > 0:
                self._ended.append(done)
                self._gpus.append(max(asked, 1.0))
        del self._ended[:-REMEMBERED], self._gpus[:-REMEMBERED]

    def of(self, view: View) -> Floats:
        """Return the work left of each job, in seconds at its requested size."""
        n, jobs = len(view.jobs), view.jobs
        if abs(len(self._ended) - self._known) * 10 > self._known or len(self._ended) == REMEMBERED > self._known:
            self._known = len(self._ended)
            self._index()
        done, gpus = jobs.done_s[:n], np.maximum(jobs.gpus[:n], 1.0)
        left = self._by_time.best(done)
        by_gpu_time = self._by_gpu_time.best(done * gpus) if self._share else left
        compiled(work_left)(left, by_gpu_time, gpus, self._share, done, jobs.declared_s)
        return left

    def _index(self) -> None:
        """Compute the indices of the jobs that are known, and how much GPU-time counts."""
        done, gpus = np.array(self._ended[: self._known]), np.array(self._gpus[: self._known])
        low, high = SPREADS
        spread = float(np.log(np.maximum(done, LEAST_S)).std()) if len(done) >= MANY else 0.0
        self._share = min(max((spread - low) / (high - low), 0.0), 1.0)
        self._by_time = Gittins(np.concatenate([self._prior, done]))
        if self._share:
            self._by_gpu_time = Gittins(np.concatenate([self._prior, done * gpus]))

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        return {"ended": self._ended, "gpus": self._gpus, "known": self._known}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        self._ended, self._known = [float(x) for x in state["ended"]], int(state["known"])
        self._gpus = [float(x) for x in state.get("gpus", [1.0] * len(self._ended))]
        if self._known > len(self._ended) or len(self._gpus) != len(self._ended):
            raise PolicyError(
                f"{self._known} jobs are in the index, {len(self._ended)} have ended, with {len(self._gpus)} sizes"
            )
        self._index()


@cache
def compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Compile a function on first use, because that imports Numba."""
    return entry_point(function)


def work_left(index: Floats, gpu_index: Floats, gpus: Floats, share: float, done: Floats, declared: Floats) -> None:
    """Replace the Gittins index of each job by the work that it is thought to have left."""
    for j in range(len(done)):
        left = declared[j] - done[j]
        if not left > -LEAST_S:  # undeclared; so counts a job that has done more than its user declared
            beyond = max(done[j], LEAST_S)  # longer than any before it: as much again
            left = 1.0 / index[j] if index[j] > 0.0 else beyond
            if share > 0.0:
                by_gpu_time = 1.0 / (gpu_index[j] * gpus[j]) if gpu_index[j] > 0.0 else beyond
                left = left ** (1.0 - share) * by_gpu_time**share
        index[j] = max(left, LEAST_S)
