"""Noticing runs that would never end: simulated time goes on for as long as anybody waits for something."""

from __future__ import annotations

from argosy.errors import InputError
from argosy.mechanism.kernels import layout as L

PATIENCE = 2_000_000  # events without any job finishing after which a run is taken to be endless


class Watchdog:
    """Remembers how far a run had come when it was last looked at."""

    def __init__(self) -> None:
        self._logged = 0  # log rows when last looked at
        self._finished = (0, 0)  # jobs finished, and log rows when that number last changed

    def check_that_it_will_end(self, w: L.World) -> None:
        """Raise an error where faults destroy work faster than it is done."""
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
        """Say whether nobody runs, nothing has happened since the last look, and nothing is left to come."""
        si = w.si
        quiet = int(si[L.LOG_N]) == self._logged and not si[L.RUNNING_N]
        self._logged = int(si[L.LOG_N])
        return quiet and bool(si[L.NEXT_JOB] >= si[L.JOBS] and si[L.EX_NEXT] >= si[L.EX_N])
