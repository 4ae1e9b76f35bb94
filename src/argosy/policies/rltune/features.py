"""The seven numbers that RLTune's network sees of each queued job; the run time is not among them.

    wait / 12 h
    GPUs / GPUs of a node
    (GPUs / free GPUs) / capacity
    (free GPUs − GPUs − what the other jobs shown ask for + capacity) / (2 · capacity)
    partial nodes / nodes
    ways / 3                 tier 1: 2 if there are several, 1 if there is one; tier 2: 1 more if there are some
    whether it can start     1e-5: no; 1 − 1e-5: yes; 1.5 · (1 − 1e-5): yes, in two ways or more

All but the last are at most 1 − 1e-5, as in the authors' code. Free GPUs, capacity, nodes and partial nodes are those
of the job's pool: the nodes that are open to it. The other jobs that count are those that accept one of its GPU types.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Floats, Ints
from argosy.policies.common.influences import Feature, seconds, yes_or_no
from argosy.policies.rltune.network import INPUTS, Matrix
from argosy.policies.rltune.pools import Room

MOST_WAIT_S = 12 * 3600.0
NEARLY_ONE, NEARLY_ZERO = 1.0 - 1e-5, 1e-5
MOST_WAYS = 3
FEATURES = (
    Feature("waiting time", seconds, lambda x: x * MOST_WAIT_S),
    Feature("GPUs over those of a node"),
    Feature("GPUs over free GPUs, for each GPU of its pool"),
    Feature("share of GPUs that stay free if it starts, others counted"),
    Feature("share of nodes that are partly used"),
    Feature("ways to place it", undo=lambda x: x * MOST_WAYS),
    Feature("whether it can start now", lambda x: yes_or_no(min(x, 1.0))),
)


def features(
    wait_s: Floats,
    gpus: Floats,
    node_gpus: Floats,
    free: Floats,
    capacity: Floats,
    others: Floats,
    partial: Floats,
    nodes: Floats,
    ways: Ints,
) -> Matrix:
    """Return the table of features from one number for each job; `ways` has two columns, as counted by tier."""
    count = ways[:, 0] + ways[:, 1]
    table = np.empty((len(wait_s), INPUTS))
    capacity = np.maximum(capacity, 1.0)
    table[:, 0] = wait_s / MOST_WAIT_S
    table[:, 1] = gpus / np.maximum(node_gpus, 1.0)
    table[:, 2] = gpus / np.maximum(free, NEARLY_ZERO) / capacity
    table[:, 3] = (free - gpus - others + capacity) / (2.0 * capacity)
    table[:, 4] = partial / np.maximum(nodes, 1.0)
    table[:, 5] = np.where(count > 0, count / MOST_WAYS, NEARLY_ZERO)
    np.clip(table, 0.0, NEARLY_ONE, out=table)
    starts = np.where(count >= 2, 1.5 * NEARLY_ONE, NEARLY_ONE)
    table[:, 6] = np.where(can_start(ways), starts, NEARLY_ZERO)
    return table.astype(np.float32)


def can_start(ways: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which jobs can start; tier 1 decides, as in the authors' code."""
    return np.asarray(ways[:, 0] > 0)


def observe(view: View, room: Room, rows: Ints, kinds: Ints) -> Matrix:
    """Return the features of the jobs in these rows, whose kinds of demand these are."""
    pools, jobs = room.pools, view.jobs
    present, of = np.unique(kinds, return_inverse=True)
    ways = room.count_ways(present)
    pool = pools.kinds.pool[present]
    is_open = pools.is_open
    free_nodes, all_gpus = room.free.gpus, room.node_gpus
    # by pool, then by job: each is a sum over the open nodes, or the largest of them
    has_gpus = is_open & (all_gpus > 0)
    free, capacity = has_gpus @ free_nodes, has_gpus @ all_gpus
    partial = has_gpus @ ((free_nodes > 0) & (free_nodes < all_gpus))
    nodes, largest = has_gpus.sum(axis=1), (has_gpus * all_gpus).max(axis=1, initial=0)
    mine = pool[of]
    gpus = np.minimum(jobs.gpus[rows], pools.kinds.gpus[kinds])
    asked = np.bincount(mine, gpus, len(is_open))
    overlap = (has_gpus.astype(np.int64) @ has_gpus.T.astype(np.int64)) > 0
    others = (overlap @ asked)[mine] - gpus
    by_pool = np.array([largest, free, capacity, partial, nodes], np.float64)
    size, supply, all_of_it, frayed, count = by_pool[:, mine]
    wait_s = view.now - jobs.submitted[rows]
    return features(wait_s, gpus, size, supply, all_of_it, others, frayed, count, ways[of])
