"""Telling policies what has happened: rows of the event log that they have not heard of yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.kernels import layout as L
from argosy.policies.base import Event, Policy
from argosy.sim.result import EventKind


class EventFeed:
    """Hands log rows to `Policy.on_event`, each once, if the policy answers that."""

    def __init__(self, policy: Policy) -> None:
        self.is_used = "on_event" in policy.answers
        self._told = 0  # log rows that the policy has heard of

    def tell(self, policy: Policy, w: L.World) -> None:
        """Tell the policy all that is new."""
        if not self.is_used:
            return
        n = int(w.si[L.LOG_N])
        for row in w.lg[self._told : n]:
            kind = EventKind(int(row[L.L_KIND])).name.lower()
            time_s, info = float(row[L.L_TIME]), float(row[L.L_INFO])
            policy.on_event(Event(time_s, kind, int(row[L.L_JOB]), int(row[L.L_NODE]), info))
        self._told = n

    def untold(self, w: L.World) -> NDArray[np.float64]:
        """Return the log rows that the policy has not heard of; none if it does not listen."""
        return w.lg[self._told : w.si[L.LOG_N]] if self.is_used else w.lg[:0]

    def forget_told(self, w: L.World) -> None:
        """Drop the log rows that nobody needs any more: for hosts that run for ever."""
        rest = self.untold(w).copy()
        w.lg[: len(rest)] = rest
        w.si[L.LOG_N], self._told = len(rest), 0

    def replace(self, w: L.World, rows: NDArray[np.float64]) -> None:
        """Let the log hold these rows and no others; the policy hears them when it is next asked."""
        self._told = 0
        w.lg[: len(rows)] = rows
        w.si[L.LOG_N] = len(rows)
