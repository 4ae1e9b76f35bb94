"""Put into words why a job that bids for GPUs got none."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import JobState
from argosy.mechanism.bids import Bids, Choice
from argosy.mechanism.plan import Reason, Why
from argosy.sim.engine import Engine


def outbid(engine: Engine, bids: Bids, choice: Choice) -> dict[int, Reason]:
    """Return for each waiting job that won nothing, by its index, what its best bid was worth and what GPUs cost."""
    jobs, told = engine.jobs, {}
    each = bids.value / np.maximum(np.where(jobs.gpus[bids.job] >= 1, bids.workers, jobs.gpus[bids.job]), 1e-9)
    best = np.full(len(jobs), -1, np.int64)
    order = np.argsort(each, kind="stable")
    if bids.partner is not None:  # of bids to share GPUs no price is known
        order = order[bids.partner[order] < 0]
    best[bids.job[order]] = order
    for row in np.flatnonzero((jobs.state == JobState.WAITING) & (choice.taken < 0) & (best >= 0)).tolist():
        at = int(best[row])
        if bids.type[at] < 0:
            continue
        kind, price = engine.context.gpu_types[int(bids.type[at])], float(choice.prices[bids.type[at]])
        size = f"{bids.workers[at]} GPU{'s' if bids.workers[at] > 1 else ''}" if jobs.gpus[row] >= 1 else "a share"
        share = each[at] / max(price, 1e-300)
        worth = f"its best bid, {size} of type {kind}, is worth {share:.2f} of what a GPU there costs"
        if share > 1:
            worth = f"its best bid, {size} of type {kind}, would pay for itself, but others use the room better"
        if bids.because is not None:
            worth += f"; {bids.because(at)}"
        told[int(jobs.index[row])] = Reason(Why.OUTBID, worth, "a job that bids more must end, or its own bid rise")
    return told
