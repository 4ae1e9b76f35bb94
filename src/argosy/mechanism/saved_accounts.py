"""Save and restore the accounts of jobs: all values that do not follow from a job's placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import Floats, Ints

SAVED_F = [L.PRIORITY, L.WORK, L.EXPECTED, *(r for r in range(L.STATIC_F, L.JF_ROWS) if r != L.HELD)]
# follow from where a job is, or matter only while a decision is made
PLACED = {L.ID, L.STATE, L.HEAD, L.GEN, L.PS_HELD, L.PEER, L.GROUP, L.SEEN, L.FORMER, L.FORMER_LOG, L.WANT_PEER}
SAVED_I = [L.WANT_PLACE, *(r for r in range(L.STATIC_I, L.JI_ROWS) if r not in PLACED)]


class SavedAccounts(NamedTuple):
    """The accounts of one job."""

    measured: Floats  # SAVED_F
    counted: Ints  # SAVED_I

    def value(self, column: str) -> float:
        """Return one measured value by the name of its column."""
        return float(self.measured[SAVED_F.index(L.COLUMNS_F[column])])


def save(w: L.World, rows: Sequence[int]) -> tuple[Floats, Ints]:
    """Return the accounts of the jobs in these rows, one column for each."""
    return w.jf[np.ix_(SAVED_F, rows)], w.ji[np.ix_(SAVED_I, rows)]


def split(measured: Floats, counted: Ints) -> list[SavedAccounts]:
    """Return the accounts of each job from the flat contents of what `save` returned."""
    f, i = measured.reshape(len(SAVED_F), -1), counted.reshape(len(SAVED_I), -1)
    return [SavedAccounts(f[:, k], i[:, k]) for k in range(f.shape[1])]


def restore(w: L.World, row: int, accounts: SavedAccounts) -> None:
    """Restore a job's accounts; its placement does not change."""
    w.jf[SAVED_F, row], w.ji[SAVED_I, row] = accounts.measured, accounts.counted
