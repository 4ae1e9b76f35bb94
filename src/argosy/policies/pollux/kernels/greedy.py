"""A good allocation to begin the search with: what runs goes on, waiting jobs and free GPUs find each other.

Every job without GPUs gets the fewest that it accepts, where they leave least free. If that is one GPU and none is
free, the running job that loses least by it gives one up. Then each node gives its free GPUs one by one to the job
there that gains most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import kernel
from argosy.policies.pollux.kernels.genetic import STABLE, copy_row, put, same_row


@kernel
def place_whole(
    node: Any, gpus: Any, count: Any, a: int, j: int, low: int, capacity: Any, free: Any, of_type: Any, usable: Any
) -> None:
    """Place a job on the node where least is left free; if none can hold it, on empty nodes of one type."""
    nodes, best = len(capacity), -1
    for n in range(nodes):
        if usable[n] and free[n] >= low and (best < 0 or free[n] < free[best]):
            best = n
    if best >= 0:
        put(node, gpus, count, a, j, best, low)
        free[best] -= low
        return
    for first in range(nodes):
        if not usable[first] or free[first] == 0 or free[first] < capacity[first]:
            continue
        found = 0
        for n in range(first, nodes):
            if usable[n] and of_type[n] == of_type[first] and free[n] == capacity[n]:
                found += free[n]
        if found < low:
            continue
        need = low
        for n in range(first, nodes):
            if need > 0 and usable[n] and of_type[n] == of_type[first] and free[n] == capacity[n] and free[n] > 0:
                taken = min(free[n], need)
                put(node, gpus, count, a, j, n, taken)
                free[n] -= taken
                need -= taken
        return


@kernel
def term(value: float, p: float) -> float:
    """Return a speed-up's term in the fitness, which is better the smaller it is."""
    return float(-np.log(max(value, STABLE))) if p == 0.0 else float((value + STABLE) ** p)


@kernel
def value_of(
    node: Any, gpus: Any, count: Any, a: int, base: int, j: int, change: int, speedup: Any, restart: Any
) -> float:
    """Return the speed-up of a job that has GPUs, with so many of them more on its last node."""
    k = change
    for e in range(count[a, j]):
        k += gpus[a, j, e]
    several = count[a, j] > 1 and not (count[a, j] == 2 and gpus[a, j, count[a, j] - 1] + change == 0)
    same = change == 0 and same_row(node, gpus, count, a, base, j)
    return float(speedup[j, 1 if several else 0, k] * (1.0 if same else restart[j]))


@kernel
def take_one(
    node: Any,
    gpus: Any,
    count: Any,
    a: int,
    base: int,
    j: int,
    allowed: Any,
    low: Any,
    speedup: Any,
    restart: Any,
    weight: float,
    p: float,
) -> None:
    """Give a job without GPUs one of the job that loses least by it, if the fitness grows."""
    victim, least = -1, term(0.0, p) - term(weight * speedup[j, 0, 1] * restart[j], p)
    for v in range(count.shape[1]):
        held = 0
        for e in range(count[a, v]):
            held += gpus[a, v, e]
        if held <= low[v] or not allowed[node[a, v, count[a, v] - 1]]:
            continue
        now = value_of(node, gpus, count, a, base, v, 0, speedup, restart)
        loss = term(weight * value_of(node, gpus, count, a, base, v, -1, speedup, restart), p) - term(weight * now, p)
        if loss < least:
            victim, least = v, loss
    if victim >= 0:
        e = count[a, victim] - 1
        put(node, gpus, count, a, j, node[a, victim, e], 1)
        gpus[a, victim, e] -= 1
        if gpus[a, victim, e] == 0:
            count[a, victim] -= 1


@kernel
def fill_up(
    node: Any,
    gpus: Any,
    count: Any,
    a: int,
    base: int,
    capacity: Any,
    of_type: Any,
    allowed: Any,
    group: Any,
    low: Any,
    high: Any,
    speedup: Any,
    restart: Any,
    weight: float,
    p: float,
    free: Any,
) -> None:
    """Write the allocation into the one numbered `a`.

    `free` is scratch: twice as many numbers as nodes, and as many more as jobs.
    """
    jobs, nodes = count.shape[1], len(capacity)
    for n in range(nodes):
        free[n] = capacity[n]
    for j in range(jobs):
        copy_row(node, gpus, count, a, base, j)
        for e in range(count[a, j]):
            free[node[a, j, e]] -= gpus[a, j, e]
    for j in range(jobs):
        if count[a, j] == 0:
            place_whole(node, gpus, count, a, j, low[j], capacity, free, of_type, allowed[group[j]])
            if count[a, j] == 0 and low[j] == 1:
                take_one(node, gpus, count, a, base, j, allowed[group[j]], low, speedup, restart, weight, p)
    here = free[nodes:]  # the first job on each node, and behind them the next job on the same node
    here[:] = -1
    for j in range(jobs):
        if count[a, j] == 1:
            n = node[a, j, 0]
            here[nodes + j], here[n] = here[n], j
    for n in range(nodes):
        while free[n] > 0:
            best, most, j = -1, 0.0, -1
            while True:
                j = here[n] if j < 0 else here[nodes + j]
                if j < 0:
                    break
                k = gpus[a, j, 0]
                if k >= high[j]:
                    continue
                now = weight * value_of(node, gpus, count, a, base, j, 0, speedup, restart)
                gain = term(now, p) - term(weight * speedup[j, 0, k + 1] * restart[j], p)
                if gain > most:
                    best, most = j, gain
            if best < 0:
                break
            gpus[a, best, 0] += 1
            free[n] -= 1
