"""Matchings: which jobs share GPUs, and how a new arrangement is laid over the nodes so that few jobs move.

A new arrangement says which jobs share a node, not which node that is. Of all ways to name its nodes the one is chosen
that leaves most jobs where they are: an assignment problem, with the cost of a (new, present) pair of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from argosy.cluster.view import JobState, View
from argosy.mechanism.compose import Walk
from argosy.policies.base import Floats, Ints

IMPOSSIBLE = 1e9  # cost of putting a group of jobs on a node that is too small


def most_weight(weight: Floats, least: float = 0.0) -> list[tuple[int, int]]:
    """Return the (row, column) pairs with the largest total weight, each row and column once, each above `least`."""
    from scipy.optimize import linear_sum_assignment  # imported late, because it is slow to load

    rows, columns = linear_sum_assignment(np.where(weight > least, weight, 0.0), maximize=True)
    return [(r, c) for r, c in zip(rows.tolist(), columns.tolist()) if weight[r, c] > least]


def move_costs(new: Sequence[Mapping[int, int]], old: Sequence[Mapping[int, int]], ran: Mapping[int, int]) -> Floats:
    """Return the cost of naming each new node as each old one; nodes are {job: GPUs}, `ran` are GPUs of jobs that ran.

    Every GPU of a job that ran and was not on that node costs one part of the job. Each GPU has one job, so the best
    assignment of GPUs within two nodes keeps as many of a job's GPUs as both nodes have.
    """
    cost = np.zeros((len(new), len(old)))
    for v, there in enumerate(new):
        for u, here in enumerate(old):
            cost[v, u] = sum((n - min(n, here.get(j, 0))) / ran[j] for j, n in there.items() if j in ran)
    return cost


def fewest_moves(costs: Floats) -> Ints:
    """Return for each new node the old one that it becomes."""
    from scipy.optimize import linear_sum_assignment

    new, old = linear_sum_assignment(costs)
    named = np.zeros(len(costs), np.int64)
    named[new] = old
    return named


def decreasing(gangs: Mapping[int, int], room: Sequence[int]) -> list[dict[int, int]] | None:
    """Pack gangs into nodes, the largest first, each where it leaves least room; gangs above a node take whole ones."""
    left, nodes = list(room), [dict[int, int]() for _ in room]
    for job, gpus in sorted(gangs.items(), key=lambda gang: (-gang[1], gang[0])):
        needs = gpus
        while needs:
            fits = [u for u, n in enumerate(left) if n >= needs]
            u = min(fits, key=lambda u: (left[u], u)) if fits else max(range(len(left)), key=lambda u: (left[u], -u))
            count = min(left[u], needs)
            if count < needs and left[u] < max(room):
                return None  # it would use more nodes than it needs
            nodes[u][job] = nodes[u].get(job, 0) + count
            left[u] -= count
            needs -= count
    return nodes


@dataclass(frozen=True, slots=True)
class Repacking:
    """Where jobs go so that a gang finds room: GPUs by node, of the gang and of the jobs that move."""

    places: dict[int, dict[int, int]]
    moved: tuple[int, ...]


def make_room(view: View, walk: Walk, row: int, movable: Ints, most_moves: int) -> Repacking | None:
    """Return how to rearrange the movable jobs of one GPU type so that a waiting gang fits, or None.

    Only gangs on whole GPUs without parameter servers take part.
    """
    jobs, nodes = view.jobs, view.nodes
    gpus = int(jobs.gpus[row])
    if jobs.gpus[row] < 1 or jobs.ps[row]:
        return None
    common = (nodes.state == 0) & (nodes.owner < 0)
    here = {
        int(r): {part.node: part.devices.bit_count() for part in view.placement(int(r))}
        for r in movable
        if jobs.state[r] == JobState.RUNNING and jobs.gpus[r] >= 1 and not jobs.servers[r] and jobs.peer[r] < 0
        if walk.runs(int(r)) and int(r) not in walk.plan.placements
    }
    for gpu_type in np.flatnonzero(jobs.types[row] >> np.arange(int(nodes.type.max()) + 1) & 1).tolist():
        there = np.flatnonzero(common & (nodes.type == gpu_type) & (nodes.gpus > 0)).tolist()
        free = {u: int(walk.free.gpus[u]) for u in there}
        if sum(free.values()) < gpus:
            continue
        inside = {r: parts for r, parts in here.items() if parts.keys() <= free.keys()}
        old = [{r: parts[u] for r, parts in inside.items() if u in parts} for u in there]
        room = [free[u] + sum(held.values()) for u, held in zip(there, old)]
        ran = {r: sum(parts.values()) for r, parts in inside.items()}
        new = decreasing(ran | {row: gpus}, room)
        if new is None:
            continue
        costs = move_costs(new, old, ran)
        needs = np.array([sum(jobs_there.values()) for jobs_there in new])
        costs += np.where(needs[:, None] > np.array(room), IMPOSSIBLE, 0.0)
        named = fewest_moves(costs)
        if (costs[np.arange(len(new)), named] >= IMPOSSIBLE).any():
            continue
        places: dict[int, dict[int, int]] = {}
        for v, there_now in enumerate(new):
            for r, count in there_now.items():
                places.setdefault(r, {})[there[named[v]]] = count
        moved = tuple(r for r, parts in sorted(inside.items()) if places[r] != parts)
        if len(moved) <= most_moves:
            return Repacking({r: places[r] for r in (row, *moved)}, moved)
    return None
