"""Checking a policy's bids and handing them to the kernels, which choose among them and place the winners."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InvalidPlan
from argosy.mechanism.bids import Bids, Choice, check_bids, check_shapes
from argosy.mechanism.kernels import layout as L

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

Ints = NDArray[np.int64]

# A bid is for the speed of a gang on as few nodes as it needs, in one rack: a job rather waits than get less. In
# `mixed` that makes mean completion times 9 % shorter than using whatever is free.
TOGETHER = L.RACK_AWARE | L.PLACE_STRICTLY


def carry_out(engine: Engine, bids: Bids) -> Choice:
    """Take the bids that are worth most together; the walk then places those jobs."""
    from argosy.mechanism.bid_check import RIGHT, WRONG, look_at_bids  # imports Numba, as does the next line
    from argosy.mechanism.kernels.bids import carry_out_bids

    w = engine.world
    n, types = int(w.si[L.ACTIVE]), int(w.si[L.TYPES_N])
    check_shapes(bids, n, len(w.ni[0]), engine.policy.name)
    columns = _columns(bids)
    asked = (w.jf[L.GPUS], w.jf[L.MIN_GPUS], w.jf[L.MAX_GPUS], w.ji[L.TYPES])
    found = look_at_bids(*columns, n, types, *asked)
    if found == WRONG:
        _refuse(engine, bids, n, types)
    if found != RIGHT:
        bids = bids.by_job()
        columns = _columns(bids)
    job, of_type, workers, servers, partner, value = columns
    taken, prices = _filled(n, -1), np.zeros(types)
    state = (w.jf, w.ji, w.nf, w.ni, w.sf, w.si, w.qu)
    w.si[L.FASTER], w.si[L.PACKS] = bids.speed is not None, bids.partner is not None
    if bids.speed is not None:
        w.nf[L.BELIEVED, :] = bids.speed
        w.jf[L.LEAST_GAIN, :n] = np.inf if bids.least_gain is None else bids.least_gain
    place = TOGETHER if engine.settings.placer == "policy" else -1
    worth, bound = carry_out_bids(*state, job, of_type, workers, servers, value, partner, taken, prices, place)
    return Choice(taken, prices, float(worth), float(bound))


def _columns(bids: Bids) -> tuple[Ints, Ints, Ints, Ints, Ints, NDArray[np.float64]]:
    """Return job, type, workers, servers, partner and value of the bids, as kernels take them."""
    n = len(bids)
    servers = _filled(n, 0) if bids.servers is None else bids.servers
    partner = _filled(n, -1) if bids.partner is None else bids.partner
    job, of_type, workers = _whole(bids.job), _whole(bids.type), _whole(bids.workers)
    return job, of_type, workers, _whole(servers), _whole(partner), np.ascontiguousarray(bids.value, np.float64)


def _whole(column: Ints) -> Ints:
    return np.ascontiguousarray(column, np.int64)


def _filled(n: int, number: int) -> Ints:
    column = np.empty(n, np.int64)
    column.fill(number)
    return column


def _refuse(engine: Engine, bids: Bids, jobs: int, types: int) -> NoReturn:
    """Raise `InvalidPlan` with what is wrong."""
    check_bids(bids, jobs, types, engine.policy.name)
    _check_sizes(engine, bids.by_job())
    raise InvalidPlan(f"policy {engine.policy.name!r} bids rows, types or sizes that are not whole numbers")


def _check_sizes(engine: Engine, bids: Bids) -> None:
    """Raise `InvalidPlan` for sizes and GPU types that a job does not take."""
    w = engine.world
    low, high = w.jf[L.MIN_GPUS][bids.job], np.maximum(w.jf[L.MAX_GPUS][bids.job], 1.0)
    whole = w.jf[L.GPUS][bids.job] >= 1
    wrong = np.where(whole, (bids.workers < low) | (bids.workers > high), bids.workers != 1)
    refused = (bids.type >= 0) & (w.ji[L.TYPES][bids.job] >> np.maximum(bids.type, 0) & 1 == 0)
    for bad, what in ((wrong, "a size"), (refused, "a GPU type")):
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            row = int(bids.job[at])
            job = engine.job_name(int(w.ji[L.ID, row]))
            types = [t for i, t in enumerate(engine.context.gpu_types) if w.ji[L.TYPES, row] >> i & 1]
            raise InvalidPlan(
                f"policy {engine.policy.name!r} bids {bids.workers[at]} GPUs of type {bids.type[at]} for job {job!r}:"
                f" that is {what} which it does not take; it takes {low[at]:g}..{high[at]:g} of {', '.join(types)}"
            )
