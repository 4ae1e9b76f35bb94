"""The genetic search over allocations: crossover, mutation, repair and selection of whole populations (NSGA-II).

An allocation says how many GPUs each job has on each node. Most of these numbers are 0, so a job's row is a short list
of (node, GPUs), sorted by node: `node` and `gpus` are [allocation, job, entry], `count` is [allocation, job]. The first
half of the alive allocations are parents, the others their offspring; nothing is copied when they change roles.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from argosy._jit import kernel
from argosy.slack import GPU_SLACK, RESOURCE_SLACK

RESET, ZERO_ROW, ZERO_CELL = 0.1, 0.1, 0.1  # probabilities of the mutations, as in the authors' code
STABLE = 1e-3  # added to speed-ups, so that a job without GPUs does not make the fitness 0


@kernel
def draw(state: Any) -> float:
    """Return a uniform number (xorshift64*)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@kernel
def clear_entry(node: Any, gpus: Any, count: Any, a: int, j: int, e: int) -> None:
    for i in range(e, count[a, j] - 1):
        node[a, j, i], gpus[a, j, i] = node[a, j, i + 1], gpus[a, j, i + 1]
    count[a, j] -= 1


@kernel
def put(node: Any, gpus: Any, count: Any, a: int, j: int, n: int, amount: int) -> None:
    """Set a job's GPUs on a node; a row that is full stays as it is."""
    e = 0
    while e < count[a, j] and node[a, j, e] < n:
        e += 1
    if e < count[a, j] and node[a, j, e] == n:
        gpus[a, j, e] = amount
        return
    if count[a, j] == node.shape[2]:
        return
    for i in range(count[a, j], e, -1):
        node[a, j, i], gpus[a, j, i] = node[a, j, i - 1], gpus[a, j, i - 1]
    node[a, j, e], gpus[a, j, e] = n, amount
    count[a, j] += 1


@kernel
def copy_row(node: Any, gpus: Any, count: Any, to: int, of: int, j: int) -> None:
    count[to, j] = count[of, j]
    for e in range(count[of, j]):
        node[to, j, e], gpus[to, j, e] = node[of, j, e], gpus[of, j, e]


@kernel
def mutate(
    node: Any, gpus: Any, count: Any, a: int, base: int, capacity: Any, allowed: Any, group: Any, free: Any, rng: Any
) -> None:
    """Reset rows to what runs now, zero some entries, and increase some where there is room."""
    jobs, nodes = count.shape[1], len(capacity)
    for n in range(nodes):
        free[n] = capacity[n]
    for j in range(jobs):
        if draw(rng) < RESET:
            copy_row(node, gpus, count, a, base, j)
        if draw(rng) < ZERO_ROW:
            for e in range(count[a, j] - 1, -1, -1):
                if draw(rng) < ZERO_CELL:
                    clear_entry(node, gpus, count, a, j, e)
        for e in range(count[a, j]):
            free[node[a, j, e]] -= gpus[a, j, e]
    for n in range(nodes):
        free[nodes + n] = 0  # free[nodes:] counts the jobs on each node
    for j in range(jobs):
        for e in range(count[a, j]):
            free[nodes + node[a, j, e]] += 1
    for j in range(jobs):  # on every node with room, one of the jobs there on average
        for e in range(count[a, j]):
            n = node[a, j, e]
            if free[n] > 0 and draw(rng) * free[nodes + n] < 1.0:
                gpus[a, j, e] += int(draw(rng) * (capacity[n] + 1 - gpus[a, j, e]))
    for n in range(nodes):  # and one of all jobs on average: 0, 1, 2 or 3 as Poisson has it
        if free[n] <= 0:
            continue
        chance = draw(rng)
        for _ in range((chance > 0.368) + (chance > 0.736) + (chance > 0.920)):
            j = int(draw(rng) * jobs)
            if allowed[group[j], n]:
                held = 0
                for e in range(count[a, j]):
                    if node[a, j, e] == n:
                        held = gpus[a, j, e]
                amount = held + int(draw(rng) * (capacity[n] + 1 - held))
                if amount > 0:
                    put(node, gpus, count, a, j, n, amount)


@kernel
def repair(
    node: Any,
    gpus: Any,
    count: Any,
    a: int,
    base: int,
    capacity: Any,
    room: Any,
    of_type: Any,
    allowed: Any,
    group: Any,
    low: Any,
    high: Any,
    unit: Any,
    queue: Any,
    limit: Any,
    left: Any,
    room_left: Any,
    limit_left: Any,
    avoid: bool,
    rng: Any,
) -> None:
    """Make an allocation feasible: earlier jobs keep what they have.

    Nodes on which a job may not start keep at most what it has there. One GPU type to a job; at most one job that spans
    nodes on each node (`avoid`); sizes within `low` and `high`; GPUs, CPUs and memory of nodes; limits of queues.
    `left`, `room_left` and `limit_left` are scratch.
    """
    jobs, nodes = count.shape[1], len(capacity)
    for n in range(nodes):
        left[n], left[nodes + n] = capacity[n], 0  # left[nodes:] says which nodes have a job that spans several
        room_left[0, n], room_left[1, n] = room[0, n], room[1, n]
    for q in range(len(limit)):
        limit_left[q] = limit[q]
    for j in range(jobs):
        for e in range(count[a, j] - 1, -1, -1):
            if not allowed[group[j], node[a, j, e]]:
                held = 0
                for b in range(count[base, j]):
                    if node[base, j, b] == node[a, j, e]:
                        held = gpus[base, j, b]
                gpus[a, j, e] = min(gpus[a, j, e], held)
                if held == 0:
                    clear_entry(node, gpus, count, a, j, e)
        if count[a, j] > 1:
            kind = of_type[node[a, j, int(draw(rng) * count[a, j])]]
            for e in range(count[a, j] - 1, -1, -1):
                if of_type[node[a, j, e]] != kind:
                    clear_entry(node, gpus, count, a, j, e)
        if avoid and count[a, j] > 1:
            for e in range(count[a, j] - 1, -1, -1):
                n = node[a, j, e]
                if left[nodes + n]:
                    clear_entry(node, gpus, count, a, j, e)
                else:
                    left[nodes + n] = 1
        total = 0
        for e in range(count[a, j]):
            total += gpus[a, j, e]
        while total > high[j]:  # nodes lose GPUs in random order
            e = int(draw(rng) * count[a, j])
            drop = min(gpus[a, j, e], total - high[j])
            gpus[a, j, e] -= drop
            total -= drop
            if gpus[a, j, e] == 0:
                clear_entry(node, gpus, count, a, j, e)
        beside = unit[2, j]  # parameter servers, which are on the first node
        for e in range(count[a, j] - 1, -1, -1):
            n = node[a, j, e]
            most = min(gpus[a, j, e], left[n])
            servers = beside if e == 0 else 0.0
            for r in range(2):
                if unit[r, j] > 0.0:
                    most = min(most, int(np.floor((room_left[r, n] + RESOURCE_SLACK) / unit[r, j] - servers)))
            gpus[a, j, e] = max(most, 0)
        total = 0
        for e in range(count[a, j] - 1, -1, -1):
            if gpus[a, j, e] <= 0:
                clear_entry(node, gpus, count, a, j, e)
            else:
                total += gpus[a, j, e]
        if total < low[j] or total > limit_left[queue[j]] + GPU_SLACK:
            count[a, j] = 0
            continue
        limit_left[queue[j]] -= total
        for e in range(count[a, j]):
            n = node[a, j, e]
            left[n] -= gpus[a, j, e]
            servers = beside if e == 0 else 0.0
            for r in range(2):
                room_left[r, n] -= unit[r, j] * (gpus[a, j, e] + servers)


@kernel
def same_row(node: Any, gpus: Any, count: Any, a: int, b: int, j: int) -> bool:
    same = count[a, j] == count[b, j]
    for e in range(count[a, j] if same else 0):
        same = same and node[a, j, e] == node[b, j, e] and gpus[a, j, e] == gpus[b, j, e]
    return bool(same)


@kernel
def evaluate(
    node: Any,
    gpus: Any,
    count: Any,
    a: int,
    base: int,
    capacity: Any,
    left: Any,
    speedup: Any,
    restart: Any,
    weight: float,
    p: float,
    out: Any,
) -> None:
    """Set out[0] to the fitness, the power mean of the speed-ups, and out[1] to the utility.

    The utility is speed-up per GPU of the nodes that are used; `left` are the GPUs that `repair` has left free.
    speedup[j, 0, K] is for one node, speedup[j, 1, K] for several; restart[j] is the factor of a row that changes.
    """
    jobs = count.shape[1]
    total, speed, used = 0.0, 0.0, 0
    for n in range(len(capacity)):
        used += capacity[n] if left[n] < capacity[n] else 0
    for j in range(jobs):
        k = 0
        for e in range(count[a, j]):
            k += gpus[a, j, e]
        value = speedup[j, 1 if count[a, j] > 1 else 0, k] if k else 0.0
        speed += value
        value *= weight
        if not same_row(node, gpus, count, a, base, j):
            value *= restart[j]
        if p == 0.0:
            total += np.log(max(value, STABLE))
        elif p == -1.0:
            total += 1.0 / (value + STABLE)
        else:
            total += (value + STABLE) ** p
    out[0] = np.exp(total / jobs) if p == 0.0 else (total / jobs) ** (1.0 / p)
    out[1] = speed / used if used else 0.0


@partial(kernel, allocates=True)
def fronts_of(slots: Any, score: Any, rank: Any, crowd: Any) -> None:
    """Set the front of each allocation (0: beaten by none in both scores) and how far its neighbours in it are.

    Allocations with equal scores are put into different fronts, so that duplicates die out.
    """
    n = len(slots)
    key, best, last = np.empty(n), np.empty(n), np.empty(n, np.int64)
    for i in range(n):
        key[i] = -score[slots[i], 0]
    fronts = 0
    for i in np.argsort(key, kind="mergesort"):
        s = slots[i]
        low, high = 0, fronts
        while low < high:  # the first front in which nobody has as much utility; they all have as much fitness
            middle = (low + high) // 2
            if best[middle] < score[s, 1]:
                high = middle
            else:
                low = middle + 1
        rank[s] = low
        if low == fronts:
            fronts += 1
            crowd[s] = np.inf
        else:
            gap = score[last[low], 0] - score[s, 0] + score[s, 1] - score[last[low], 1]
            crowd[last[low]] += gap
            crowd[s] = gap
        best[low], last[low] = score[s, 1], s
    for front in range(fronts):
        crowd[last[front]] = np.inf


@partial(kernel, allocates=True)
def survive(slots: Any, rank: Any, crowd: Any, scratch: Any) -> None:
    """Bring the better half of the allocations to the front: by front, and in a front those that are least crowded."""
    n = len(slots)
    key = np.empty(n)
    for i in range(n):
        s = slots[i]
        near = 1.0 / (1.0 + crowd[s]) if crowd[s] < np.inf else 0.0
        key[i] = rank[s] + 0.5 * near
    order = np.argsort(key, kind="mergesort")
    for i in range(n):
        scratch[i] = slots[order[i]]
    for i in range(n):
        slots[i] = scratch[i]


@kernel
def tournament(slots: Any, parents: int, rank: Any, crowd: Any, rng: Any) -> int:
    """Return the better of two parents drawn at random."""
    a, b = slots[int(draw(rng) * parents)], slots[int(draw(rng) * parents)]
    if rank[a] != rank[b]:
        return int(a if rank[a] < rank[b] else b)
    return int(a if crowd[a] >= crowd[b] else b)
