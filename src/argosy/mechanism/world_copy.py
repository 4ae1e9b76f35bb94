"""Copies of a world in which time may go on without the original: for questions about the future.

All copies of one original share the arrays that never change, and one copy is used again and again: to begin anew is
to copy the changing arrays back, which takes less than a millisecond for a thousand jobs.
"""

from __future__ import annotations

import numpy as np

from argosy.mechanism import capacity
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import Floats, Ints

CHANGING = ("jf", "ji", "nf", "ni", "bk", "en", "hp", "sf", "si", "wk", "sk", "qu", "gp", "gq")
SHARES_OUT = L.WEIGHT  # a row that only policies read: it may hold the fixed rank of jobs


class WorldCopy:
    """A world of its own, with the active jobs of another and more jobs that arrive later."""

    def __init__(self, w: L.World, more: Floats | None = None) -> None:
        """Copy a world. `more` are jobs that arrive later, as columns of the trace in the order of their arrival."""
        count = int(w.si[L.JOBS])
        extra = 0 if more is None else more.shape[1]
        room = count + extra
        tr = np.zeros((L.TR_ROWS, max(room, 1)))
        active = w.ji[L.ID, : w.si[L.ACTIVE]]
        tr[:, active] = w.tr[:, active]
        if more is not None:
            tr[:, count:room] = more
        so = np.full(max(room, 1), -1, np.int64)
        so[active] = np.arange(len(active))
        slots = w.jf.shape[1]
        self.jobs = np.concatenate([active, np.arange(count, room)])
        template = w._replace(tr=tr, so=so, rs=capacity.empty_results(max(room, 1)), lg=np.empty((4 * slots, 9)))
        for name in CHANGING:
            template = template._replace(**{name: getattr(w, name).copy()})
        while int(template.si[L.ACTIVE]) + extra >= template.jf.shape[1] - 1:
            template = capacity.with_more_slots(template)
        template.si[L.JOBS], template.si[L.NEXT_JOB] = room, count
        template.si[L.FINISHED] = template.si[L.LOG_N] = template.si[L.STATIC] = template.si[L.EAGER] = 0
        template.si[L.ORACLE] = 0  # policies see estimates, not what was drawn for this copy
        self._before = template
        self.world = self._fresh()

    def _fresh(self) -> L.World:
        before = self._before
        return before._replace(
            **{name: getattr(before, name).copy() for name in CHANGING},
            tr=before.tr.copy(),
            so=before.so.copy(),
            rs=before.rs.copy(),
        )

    def begin_anew(self, w: L.World) -> L.World:
        """Return the world as it was when it was copied; `w` is what has become of the copy."""
        before = self._before
        for name in (*CHANGING, "so"):
            here, there = getattr(w, name), getattr(before, name)
            if name == "hp" and len(here) > len(there):  # it has grown meanwhile
                here[: len(there)] = there
            elif here.shape != there.shape:
                w = w._replace(**{name: there.copy()})
            else:
                np.copyto(here, there)
        w.rs[:, self.jobs] = before.rs[:, self.jobs]
        return w

    def keep(self, w: L.World) -> None:
        """Make this world the state that `begin_anew` returns to."""
        self._before = w._replace(
            **{name: getattr(w, name).copy() for name in CHANGING}, so=w.so.copy(), rs=w.rs.copy()
        )


def rank_by(w: L.World, ranks: Floats, jobs: Ints) -> None:
    """Let compiled code order these jobs by fixed ranks, without asking the policy."""
    w.tr[SHARES_OUT, jobs] = ranks
    active = int(w.si[L.ACTIVE])
    w.jf[SHARES_OUT, :active] = w.tr[SHARES_OUT, w.ji[L.ID, :active]]
    w.si[L.KEY_ROW] = SHARES_OUT


def set_work(w: L.World, left: Floats, jobs: Ints, work: Floats) -> None:
    """Set the work that active jobs have left, by row, and the whole work of jobs that arrive later."""
    active = len(left)
    w.jf[L.WORK, :active] += left - w.jf[L.LEFT, :active]
    w.jf[L.LEFT, :active] = left
    w.tr[L.WORK, jobs] = work


def first_starts(w: L.World, jobs: int) -> Floats:
    """Return when each job started next, by index, from the event log; NaN for those that did not."""
    lg = w.lg[: w.si[L.LOG_N]]
    started = lg[lg[:, L.L_KIND] <= L.K_RESUME]
    found, first = np.unique(started[:, L.L_JOB].astype(np.int64), return_index=True)
    at = np.full(jobs, np.nan)
    at[found] = started[first, L.L_TIME]
    return at
