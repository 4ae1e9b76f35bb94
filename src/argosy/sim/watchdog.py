"""Detect runs that would never end, because simulated time goes on as long as any job waits for something."""

from __future__ import annotations

from argosy.errors import InputError
from argosy.mechanism.kernels import layout as L

PATIENCE = 2_000_000  # a run counts as endless after this many events without a finished job


class Watchdog:
    """Remembers the progress of a run at the last check."""

    def __init__(self) -> None:
        self._logged = 0  # log rows at the last check
        self._finished = (0, 0)  # jobs finished, and log rows when that number last changed

    def check_that_it_will_end(self, w: L.World) -> None:
        """Raise an error if faults destroy work faster than it is done."""
        finished, logged = int(w.si[L.FINISHED]), int(w.si[L.LOG_N])
        if finished != self._finished[0]:
            self._finished = (finished, logged)
        elif logged - self._finished[1] > PATIENCE:
            raise InputError(
                f"no job has finished during {logged - self._finished[1]:,} events,"
                f" up to t = {float(w.sf[L.NOW]):.0f} s: work is lost faster than it is done",
                hint="shorten checkpoint_every_s, make faults rarer, or set until_s",
            )

    def is_stuck(self, w: L.World) -> bool:
        """Return whether no job runs, nothing has happened since the last check, and no event is left."""
        si = w.si
        quiet = int(si[L.LOG_N]) == self._logged and not si[L.RUNNING_N]
        self._logged = int(si[L.LOG_N])
        return quiet and bool(si[L.NEXT_JOB] >= si[L.JOBS] and si[L.EX_NEXT] >= si[L.EX_N])
