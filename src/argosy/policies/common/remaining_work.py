"""How much work a job may have left, where its user declared it and where nobody knows.

An undeclared job's length is known in distribution only: from the jobs that have ended in this run, and a broad prior.
The Gittins index of what it has done so far gives the work that it is best to reckon with: the inverse of the largest
chance of ending per unit of work spent on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import View
from argosy.errors import PolicyError
from argosy.policies.base import Event, Floats
from argosy.policies.tiresias.gittins import Gittins

SHORTEST_S, LONGEST_S = 60.0, 2 * 86400.0  # lengths of the prior, even on a logarithmic scale
LEAST_S = 10.0  # less work is not told apart
REMEMBERED = 4096  # jobs that have ended
ENDS = frozenset({"finish", "fail", "kill"})


class RemainingWork:
    """Estimates work left; policies with one declare `progress`, `declared` and `history`, and hand it all events."""

    def __init__(self, prior: int) -> None:
        """`prior`: how many ended jobs the prior counts as."""
        self._prior = np.exp(np.linspace(np.log(SHORTEST_S), np.log(LONGEST_S), prior))
        self._ended: list[float] = []
        self._known = 0  # of them are in the index
        self._gittins = Gittins(self._prior)

    def on_event(self, event: Event) -> None:
        """Learn from jobs that end."""
        if event.kind in ENDS and event.done_s > 0:
            self._ended.append(event.done_s)
            del self._ended[:-REMEMBERED]

    def of(self, view: View) -> Floats:
        """Return the work left of each job, in seconds at its requested size."""
        jobs = view.jobs
        if abs(len(self._ended) - self._known) * 10 > self._known or len(self._ended) == REMEMBERED > self._known:
            self._known = len(self._ended)
            self._gittins = Gittins(np.concatenate([self._prior, self._ended]))
        index = self._gittins.best(jobs.done_s)
        beyond = np.maximum(jobs.done_s, LEAST_S)  # longer than any before it: as much again
        unknown = np.divide(1.0, index, out=beyond, where=index > 0)
        declared = jobs.declared_s - jobs.done_s
        believed = declared > -LEAST_S  # a job that has done more than its user declared counts as undeclared
        left: Floats = np.maximum(np.where(believed, declared, unknown), LEAST_S)
        return left

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        return {"ended": self._ended, "known": self._known}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        self._ended, self._known = [float(x) for x in state["ended"]], int(state["known"])
        if self._known > len(self._ended):
            raise PolicyError(f"{self._known} jobs are in the index, and {len(self._ended)} have ended")
        self._gittins = Gittins(np.concatenate([self._prior, self._ended[: self._known]]))
