"""The sizes implied by policies that do not size jobs, so that they can teach a learner that does.

A policy that only ranks gives every job the requested size, as far as there is room. A policy that plans gives jobs
what they would hold after its plan.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Sizes
from argosy.policies.common.demands import Demands
from argosy.policies.common.sizes import current_sizes


def requested_sizes(
    view: View, key: Floats, needs: Demands, there: Floats, *, preemptive: bool, backfill: bool
) -> Sizes:
    """Return the requested sizes, granted in the order of `key`; running jobs go first if nobody is preempted."""
    jobs, rows = view.jobs, needs.rows
    workers = np.clip(jobs.gpus[rows], needs.low, needs.high).astype(np.int64)
    servers = np.clip(jobs.ps[rows], np.minimum(needs.servers, 1), needs.servers)
    takes = (needs.first + (workers - needs.low) * needs.worker + servers * needs.server).T
    behind = (jobs.state[rows] != 1) & (not preemptive)
    wanted, free = np.zeros((2, len(rows)), np.int64), there.copy()
    for i in np.lexsort((key[rows], behind)).tolist():
        if (takes[i] <= free).all():
            free -= takes[i]
            wanted[:, rows[i]] = workers[i], servers[i] if needs.servers[i] else needs.fixed[i]
        elif not backfill:
            break
    return Sizes(wanted[0], wanted[1])


def planned_sizes(view: View, plan: Plan) -> Sizes:
    """Return what jobs would hold; jobs that share devices in space or time each count in full."""
    wanted = np.stack([current_sizes(view).workers, view.jobs.servers]) * plan.keeps
    wanted[:, list(plan.stops)] = 0
    for row, placement in plan.placements.items():
        wanted[:, row] = max(sum(placement.gpus.values()), 1), sum(placement.servers.values())
    for guest, host in plan.packs.items():
        wanted[:, guest] = wanted[:, host]
    return Sizes(wanted[0], wanted[1])
