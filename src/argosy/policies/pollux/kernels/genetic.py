"""The genetic search over allocations: crossover, mutation, repair and selection of whole populations (NSGA-II).

An allocation says how many GPUs each job has on each node. Most of these numbers are 0, so a job's row is a short list
of (node, GPUs), sorted by node: `node` and `gpus` are [allocation, job, entry], `count` is [allocation, job]. The first
half of the alive allocations are parents, the others their offspring; nothing is copied when they change roles.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel

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
    with_room = 0  # free[nodes:] lists the nodes with room
    for n in range(nodes):
        if free[n] > 0:
            free[nodes + with_room] = n
            with_room += 1
    if with_room == 0:
        return
    for j in range(jobs):
        own = 0
        for e in range(count[a, j]):
            own += free[node[a, j, e]] > 0
        for e in range(count[a, j]):
            n = node[a, j, e]
            if free[n] > 0 and draw(rng) * own < 1.0:
                gpus[a, j, e] += int(draw(rng) * (capacity[n] + 1 - gpus[a, j, e]))
        chance = draw(rng)  # a cell of every job is drawn once on average: with 0, 1, 2 or 3 cells as Poisson has it
        for _ in range((chance > 0.368) + (chance > 0.736) + (chance > 0.920)):
            n = free[nodes + int(draw(rng) * with_room)]
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
                    most = min(most, int(np.floor((room_left[r, n] + 1e-6) / unit[r, j] - servers)))
            gpus[a, j, e] = max(most, 0)
        total = 0
        for e in range(count[a, j] - 1, -1, -1):
            if gpus[a, j, e] <= 0:
                clear_entry(node, gpus, count, a, j, e)
            else:
                total += gpus[a, j, e]
        if total < low[j] or total > limit_left[queue[j]] + 1e-9:
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
    node: Any, gpus: Any, count: Any, a: int, base: int, speedup: Any, restart: Any, weight: float, p: float, out: Any
) -> None:
    """Set out[0] to the fitness, the power mean of the speed-ups, and out[1] to the utility, speed-up per GPU.

    speedup[j, 0, K] is for one node, speedup[j, 1, K] for several; restart[j] is the factor of a row that changes.
    """
    jobs = count.shape[1]
    total, speed, used = 0.0, 0.0, 0
    for j in range(jobs):
        k = 0
        for e in range(count[a, j]):
            k += gpus[a, j, e]
        value = speedup[j, 1 if count[a, j] > 1 else 0, k] if k else 0.0
        speed += value
        used += k
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


@partial(entry_point, allocates=True)
def search(
    node: Any,
    gpus: Any,
    count: Any,
    first: int,
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
    speedup: Any,
    restart: Any,
    weight: float,
    p: float,
    avoid: bool,
    generations: int,
    patience: int,
    seed: int,
    slots: Any,
    score: Any,
) -> int:
    """Search for the fittest allocation; return its number. Of the allocations the first `first` are given.

    `slots` are the numbers of parents and offspring; the last allocation of `node`, `gpus` and `count` is what runs
    now. The search ends after `generations`, or if the best fitness has not grown for `patience` of them.
    """
    base = count.shape[0] - 1
    both = len(slots)
    parents = both // 2
    jobs, nodes = count.shape[1], len(capacity)
    rng = np.empty(1, np.uint64)
    rng[0] = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    free, left = np.zeros(2 * nodes, np.int64), np.zeros(2 * nodes, np.int64)
    room_left, limit_left = np.zeros((2, nodes)), np.zeros(len(limit))
    rank, crowd, scratch = np.zeros(both + 1, np.int64), np.zeros(both + 1), np.zeros(both, np.int64)
    for i in range(parents):
        a = slots[i]
        if i >= first:
            for j in range(jobs):
                copy_row(node, gpus, count, a, base if first == 0 else slots[i % first], j)
            mutate(node, gpus, count, a, base, capacity, allowed, group, free, rng)
        repair(node, gpus, count, a, base, capacity, room, of_type, allowed, group, low, high, unit, queue,
               limit, left, room_left, limit_left, avoid, rng)  # fmt: skip
        evaluate(node, gpus, count, a, base, speedup, restart, weight, p, score[a])
    fronts_of(slots[:parents], score, rank, crowd)
    best, since = -np.inf, 0
    for _ in range(generations):
        for i in range(parents, both, 2):
            mother = tournament(slots, parents, rank, crowd, rng)
            father = tournament(slots, parents, rank, crowd, rng)
            point = int(draw(rng) * jobs)
            other = slots[i + 1] if i + 1 < both else -1
            for j in range(jobs):
                copy_row(node, gpus, count, slots[i], mother if j < point else father, j)
                if other >= 0:
                    copy_row(node, gpus, count, other, father if j < point else mother, j)
        for i in range(parents, both):
            a = slots[i]
            mutate(node, gpus, count, a, base, capacity, allowed, group, free, rng)
            repair(node, gpus, count, a, base, capacity, room, of_type, allowed, group, low, high, unit,
                   queue, limit, left, room_left, limit_left, avoid, rng)  # fmt: skip
            evaluate(node, gpus, count, a, base, speedup, restart, weight, p, score[a])
        fronts_of(slots, score, rank, crowd)
        survive(slots, rank, crowd, scratch)
        found = -np.inf
        for i in range(parents):
            found = max(found, score[slots[i], 0])
        since = 0 if found > best * (1.0 + 1e-9) else since + 1
        best = max(best, found)
        if since >= patience:
            break
    fittest = slots[0]
    for i in range(parents):
        if score[slots[i], 0] > score[fittest, 0]:
            fittest = slots[i]
    return int(fittest)
