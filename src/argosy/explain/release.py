"""Find the running jobs whose end would let a waiting job start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argosy.mechanism.supply import Bools, Demand, Floats, Holdings, Ints, Supply

MOST_TRIED = 64  # jobs that are tried one by one when a set is made as small as possible


@dataclass(frozen=True, slots=True)
class Release:
    """Running jobs (by row) all of which must go, and when the last of them is expected to be gone."""

    rows: tuple[int, ...]
    at_s: float  # inf: not known


def first_release(
    supply: Supply, holdings: Holdings, demand: Demand, held: Bools, gone_s: Floats, gpus: Floats
) -> Release | None:
    """Return the earliest time at which the job fits if no other job starts, and which jobs must be gone by then.

    `held` are the rows of jobs that hold resources, `gone_s` when each is expected to release them. Jobs without an
    expected time come last, among them those on the most promising nodes first, and large before small.
    """
    rows = np.flatnonzero(held)
    far = ~touches(supply, holdings, demand, len(held))
    order = rows[np.lexsort((-gpus[rows], far[rows], gone_s[rows]))]
    few, enough = 0, len(order)
    if not fits_without(supply, holdings, demand, order, len(held)):
        return None
    while enough - few > 1:
        half = (few + enough) // 2
        if fits_without(supply, holdings, demand, order[:half], len(held)):
            enough = half
        else:
            few = half
    needed = smallest(supply, holdings, demand, order[:enough], len(held))
    return Release(tuple(int(row) for row in needed), float(gone_s[needed].max()))


def smallest(supply: Supply, holdings: Holdings, demand: Demand, rows: Ints, slots: int) -> Ints:
    """Return the set without the jobs that need not go."""
    gone = np.zeros(slots, bool)
    gone[rows] = True
    after = supply.without(holdings, gone)
    near = rows[touches(after, holdings, demand, slots)[rows]]
    if fits_without(supply, holdings, demand, near, slots):
        rows = near
    for row in rows[:MOST_TRIED]:
        others = rows[rows != row]
        if fits_without(supply, holdings, demand, others, slots):
            rows = others
    return rows


def fits_without(supply: Supply, holdings: Holdings, demand: Demand, rows: Ints, slots: int) -> bool:
    gone = np.zeros(slots, bool)
    gone[rows] = True
    return supply.without(holdings, gone).fits(demand)


def touches(supply: Supply, holdings: Holdings, demand: Demand, slots: int) -> Bools:
    """Return which rows hold something on the nodes where the job would be placed."""
    _, nodes = supply.best(demand)
    rooms = supply.rooms(demand)[nodes]
    enough = int(np.searchsorted(np.cumsum(rooms), demand.units)) + 1
    there = np.isin(holdings.node, nodes[:enough])
    yes = np.zeros(slots, bool)
    yes[holdings.slot[there]] = True
    return yes
