"""Report events to policies: those rows of the event log that they have not received yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.kernels import layout as L
from argosy.policies.base import Event, Policy
from argosy.sim.result import EventKind

NAMES = {int(kind): kind.name.lower() for kind in EventKind}


class EventFeed:
    """Passes each log row to `Policy.on_event` once, if the policy implements it and hears events of this kind."""

    def __init__(self, policy: Policy) -> None:
        self.is_used = "on_event" in policy.answers
        self._heard = None if policy.hears is None else [k for k, name in NAMES.items() if name in policy.hears]
        self._told = 0  # log rows that the policy has received

    def tell(self, policy: Policy, w: L.World) -> None:
        """Pass all new log rows to the policy."""
        if not self.is_used:
            return
        n = int(w.si[L.LOG_N])
        rows = w.lg[self._told : n]
        if self._heard is not None:
            rows = rows[np.isin(rows[:, L.L_KIND], self._heard)]
        for row in rows:
            kind = NAMES[int(row[L.L_KIND])]
            time_s, info, job = float(row[L.L_TIME]), float(row[L.L_INFO]), int(row[L.L_JOB])
            ended = L.K_FINISH <= row[L.L_KIND] <= L.K_CANCEL
            done_s, gpus = (float(w.rs[L.R_DONE, job]), float(w.tr[L.GPUS, job])) if ended else (0.0, 0.0)
            policy.on_event(Event(time_s, kind, job, int(row[L.L_NODE]), info, done_s, gpus))
        self._told = n

    def untold(self, w: L.World) -> NDArray[np.float64]:
        """Return the log rows that the policy has not received; none if it does not implement `on_event`."""
        return w.lg[self._told : w.si[L.LOG_N]] if self.is_used else w.lg[:0]

    def forget_told(self, w: L.World) -> None:
        """Drop the log rows that are no longer needed, for hosts that run without end."""
        rest = self.untold(w).copy()
        w.lg[: len(rest)] = rest
        w.si[L.LOG_N], self._told = len(rest), 0

    def replace(self, w: L.World, rows: NDArray[np.float64]) -> None:
        """Replace the log by these rows, which the policy receives when it is next asked."""
        self._told = 0
        w.lg[: len(rows)] = rows
        w.si[L.LOG_N] = len(rows)
