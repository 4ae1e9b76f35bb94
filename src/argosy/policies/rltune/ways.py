"""The placements that RLTune considers, in compiled code: on the fewest nodes, or on one node more.

A *way* gives a job so many GPUs on each of some nodes of one GPU type. Tier 1 are the ways on as few nodes as the job
needs when all nodes are empty. Tier 2 are the ways on one node more that do not raise the number of partial nodes, on
which some GPUs are free and some are not. Ways are different if the nodes they use differ in what is free on them
before or after. With f GPUs free of G on a node, a of which the job gets, the changes add up over the nodes:

    partial nodes   f = G > a: +1    f = a < G: −1    otherwise 0
    waste           f > a: +a        f = a < G: −(G − f)          (GPUs in use on partial nodes)
    balance         ((G − f + a)² − (G − f)²) / G²                (grows with the variance of the nodes' utilisation)

So the best way of a tier is found by dynamic programming over nodes, nodes used and GPUs given. Nodes on which the
same is free are alike, and only as many of them as a way can use take part.
"""

from __future__ import annotations

import numpy as np

from argosy.policies.base import Ints

MOST_RELAXED = 8  # nodes: a job that needs more of them has no tier 2, which would take too long to search
DEFRAGMENT, BALANCE = 0, 1  # the two orders of ways: partial nodes, waste, balance; or balance, partial nodes, waste
PRIORITIES = np.array([1e8, 1e3, 1e6, 1e2])  # weights of partial nodes and waste, and of balance and partial nodes

Way = dict[int, int]  # node: GPUs


def find_first(usable: Ints, used: int, gpus: int) -> Way | None:
    """Return the first way by node number on exactly so many nodes, or None; `usable` are GPUs of each node."""
    from argosy.policies.rltune.kernels.tiers import first_way

    given = np.zeros(len(usable), np.int64)
    return as_way(given) if first_way(usable, used, gpus, given) else None


def find_best(usable: Ints, free: Ints, node_gpus: Ints, used: int, gpus: int, order: int) -> Way | None:
    """Return the best way on exactly so many nodes by one of the two orders, or None."""
    from argosy.policies.rltune.kernels.tiers import best_way

    given = np.zeros(len(usable), np.int64)
    return as_way(given) if best_way(usable, free, node_gpus, used, gpus, order, PRIORITIES, given) else None


def as_way(given: Ints) -> Way:
    """Return the nodes that give something, and what."""
    return {int(n): int(given[n]) for n in np.flatnonzero(given)}
