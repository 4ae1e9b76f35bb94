"""Place jobs on shares of a GPU, and those without a GPU, before the search divides the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argosy.cluster.view import NodeState, View
from argosy.mechanism.compose import compose
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Ints


@dataclass(slots=True)
class Reserved:
    """What the search must leave alone on each node."""

    gpus: Ints
    room: Floats  # [CPUs, memory; node]
    held: Floats  # by queue: GPUs that small jobs have, or get now


def place_small(view: View, queues: int) -> tuple[Plan, Reserved]:
    """Return a plan that starts small jobs on what is free now.

    A job on a share of a GPU that finds no room has a GPU reserved, which is then free at the next decision.
    """
    jobs, nodes = view.jobs, view.nodes
    small = jobs.gpus < 1
    held = np.bincount(jobs.queue[small], jobs.held[small], queues).astype(np.float64)
    reserved = Reserved(np.zeros(len(nodes), np.int64), np.zeros((2, len(nodes))), held)
    waiting = np.flatnonzero(small & (jobs.state == 0))
    if not len(waiting):
        return Plan.keep(view), reserved
    sizes = np.where(small, 1, jobs.held).astype(np.int64)
    plan = compose(view, np.where(small, jobs.submitted, np.inf), _choose, sizes=sizes, fitting=True)
    plan.placements = {row: place for row, place in plan.placements.items() if small[row]}
    plan.reasons = {row: why for row, why in plan.reasons.items() if small[row]}
    for row in waiting.tolist():
        place = plan.placements.get(row)
        if place is not None:
            reserved.held[jobs.queue[row]] += jobs.gpus[row]
            for node, gpus in place.gpus.items():
                reserved.gpus[node] += gpus if node not in place.devices else 0
                reserved.room[:, node] += jobs.cpus[row], jobs.memory_gib[row]
            continue
        fits = (nodes.state == NodeState.UP) & ((nodes.owner < 0) | (nodes.owner == jobs.queue[row]))
        fits &= (nodes.cpus >= jobs.cpus[row]) & (nodes.memory_gib >= jobs.memory_gib[row])
        worth = nodes.cpus
        if jobs.gpus[row] > 0:
            fits &= (jobs.types[row] >> nodes.type & 1 == 1) & (nodes.gpus > 0) & (not reserved.gpus.any())
            worth = nodes.gpus + nodes.free / 100
        if fits.any():
            node = int(np.argmax(np.where(fits, worth, -1)))
            reserved.gpus[node] += jobs.gpus[row] > 0
            reserved.room[:, node] += jobs.cpus[row], jobs.memory_gib[row]
    return plan, reserved


def _choose(view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
    """Put a job on a share of a GPU on the node that has fewest GPUs free."""
    return {int(np.argmin(np.where(free > 0, free, 1 << 30))): gpus} if free.any() else None
