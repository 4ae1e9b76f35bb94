"""Compiled code that counts and finds RLTune's ways to place a job; `argosy.policies.rltune.ways` explains them."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from argosy._jit import entry_point, kernel
from argosy.policies.base import Floats, Ints

WHOLE = 1000  # thousandths of a device
NO_WAY = 1000  # more partial nodes than any way can add


@kernel
def room_on(g: int, milli: int, free: int, shared: int, units: Floats, spare: Floats, slack: float) -> int:
    """Return how many GPUs of an open node a job can use; -1: too few CPUs or too little memory for a job without."""
    usable = free
    if milli < WHOLE and shared >= milli:  # a device that others share has room for this share
        usable = max(usable, 1)
    for r in range(len(units)):
        if units[r] > 0:
            if g == 0:
                usable = usable if spare[r] + slack >= units[r] else -1
            else:
                usable = min(usable, int((spare[r] + slack) / units[r]))
        if usable < 0:
            break
    return usable


@kernel
def least_rise(usable: Ints, free: Ints, node_type: Ints, node_gpus: Ints, t: int, g: int, best: Ints) -> int:
    """Return by how much partial nodes rise at least if len(best) - 1 nodes of a type hold a job; or NO_WAY."""
    used, nodes = len(best) - 1, len(usable)
    best[:] = NO_WAY
    best[0, 0] = 0
    for n in range(nodes):
        if node_type[n] != t or usable[n] <= 0:
            continue
        same = 0
        for m in range(n):
            if node_type[m] == t and usable[m] == usable[n] and free[m] == free[n] and node_gpus[m] == node_gpus[n]:
                same += 1
                if same >= used:
                    break
        if same >= used:
            continue
        whole = free[n] == node_gpus[n]
        for i in range(used - 1, -1, -1):
            for s in range(g):
                if best[i, s] >= NO_WAY:
                    continue
                for a in range(1, min(usable[n], g - s) + 1):
                    rise = 0
                    if whole and a < free[n]:
                        rise = 1
                    elif not whole and a == free[n]:
                        rise = -1
                    best[i + 1, s + a] = min(best[i + 1, s + a], best[i, s] + rise)
    return int(best[used, g])


@partial(entry_point, allocates=True)
def count_ways(
    gpus: Ints,  # by kind of demand: GPUs, 1 for a share of one, 0 for none
    milli: Ints,  # thousandths of each device
    units: Floats,  # [kind, 2] CPUs and memory that come with a GPU
    pool: Ints,  # which row of `is_open` holds for the kind
    fewest: Ints,  # [kind, type] nodes needed if all are empty; 0: nodes of this type cannot hold it
    is_open: NDArray[np.bool_],  # [pool, node]
    node_type: Ints,
    node_gpus: Ints,
    free: Ints,  # whole GPUs of each node
    shared: Ints,  # thousandths left on the device of each node that is shared and has most room
    spare: Floats,  # [node, 2] CPUs and memory that are free
    slack: float,
    most_relaxed: int,
    found: Ints,  # [kind, 2] out: ways of tier 1 (2: several) and of tier 2 (1: there are some)
) -> None:
    """Count the ways of each kind of demand."""
    nodes = len(node_gpus)
    usable = np.zeros(nodes, np.int64)
    for c in range(len(gpus)):
        g = gpus[c]
        found[c, 0] = found[c, 1] = 0
        for n in range(nodes):
            usable[n] = -1
            if is_open[pool[c], n]:
                usable[n] = room_on(g, milli[c], free[n], shared[n], units[c], spare[n], slack)
                if g == 0 and usable[n] >= 0:
                    found[c, 0] = min(2, found[c, 0] + 1)
        for t in range(fewest.shape[1]):
            k = fewest[c, t]
            if g == 0 or k == 0:
                continue
            top = np.zeros(k + 1, np.int64)  # the k + 1 nodes with most room
            seen_gpus, seen_free, alike, candidates = -1, -1, True, 0
            for n in range(nodes):
                u = usable[n]
                if node_type[n] != t or u <= 0:
                    continue
                candidates += 1
                if u >= g:
                    alike = alike and (seen_gpus < 0 or (seen_gpus == node_gpus[n] and seen_free == free[n]))
                    seen_gpus, seen_free = node_gpus[n], free[n]
                if u > top[k]:
                    i = k
                    while i > 0 and top[i - 1] < u:
                        top[i] = top[i - 1]
                        i -= 1
                    top[i] = u
            over = top[:k].sum() - g
            if over >= 0:
                several = not alike
                if k > 1:  # GPUs to spare can be left on one node or another, or another node can do
                    differ = top[0] != top[k - 1] or (top[k] > 0 and top[k] == top[k - 1] - 1)
                    several = over > 1 or (over == 1 and differ)
                found[c, 0] = min(2, found[c, 0] + (2 if several else 1))
            if found[c, 1] == 0 and k <= most_relaxed and g > k and candidates > k:
                best = np.empty((k + 2, g + 1), np.int64)
                if least_rise(usable, free, node_type, node_gpus, t, g, best) <= 0:
                    found[c, 1] = 1


@partial(entry_point, allocates=True)
def best_way(
    usable: Ints, free: Ints, node_gpus: Ints, used: int, g: int, order: int, weights: Floats, given: Ints
) -> bool:
    """Find the best way on exactly `used` nodes; `given` has the GPUs of each node. Return whether there is one."""
    nodes = len(usable)
    inf = 1e300
    best = np.full((used + 1, g + 1), inf)
    best[0, 0] = 0.0
    took = np.zeros((nodes, used + 1, g + 1), np.int16)  # what node n gives in the best way with nodes up to n
    for n in range(nodes):
        given[n] = 0
        if usable[n] <= 0:
            continue
        same = 0
        for m in range(n):
            if usable[m] == usable[n] and free[m] == free[n] and node_gpus[m] == node_gpus[n]:
                same += 1
        if same >= used:
            continue
        whole, gpus = free[n] == node_gpus[n], float(node_gpus[n])
        busy = (gpus - free[n]) / gpus
        for i in range(used - 1, -1, -1):
            for s in range(g - 1, -1, -1):
                if best[i, s] >= inf:
                    continue
                for a in range(1, min(usable[n], g - s) + 1):
                    part = a / gpus
                    balance = 2.0 * busy * part + part * part
                    if a < free[n]:
                        rise, waste = (1.0 if whole else 0.0), float(a)
                    else:
                        rise, waste = (0.0, 0.0) if whole else (-1.0, free[n] - gpus)
                    if order == 0:
                        cost = weights[0] * rise + weights[1] * waste + balance
                    else:
                        cost = weights[2] * balance + weights[3] * rise + waste
                    if best[i, s] + cost < best[i + 1, s + a] - 1e-6:
                        best[i + 1, s + a] = best[i, s] + cost
                        took[n, i + 1, s + a] = a
    if best[used, g] >= inf:
        return False
    i, s = used, g
    for n in range(nodes - 1, -1, -1):
        if i > 0 and took[n, i, s] > 0:
            given[n] = took[n, i, s]
            s -= given[n]
            i -= 1
    return i == 0 and s == 0


@partial(entry_point, allocates=True)
def first_way(usable: Ints, used: int, g: int, given: Ints) -> bool:
    """Find the way on exactly `used` nodes whose node numbers come first; earlier nodes are filled up first."""
    nodes = len(usable)
    left, chosen = g, 0
    top = np.zeros(used + 1, np.int64)
    given[:] = 0
    for n in range(nodes):
        if chosen == used or usable[n] <= 0 or g < used:  # every node gives at least one
            continue
        more = used - chosen - 1  # nodes that follow
        top[:] = 0
        for m in range(n + 1, nodes):
            u = usable[m]
            if more > 0 and u > top[more - 1]:
                i = more - 1
                while i > 0 and top[i - 1] < u:
                    top[i] = top[i - 1]
                    i -= 1
                top[i] = u
        room = 0
        for i in range(more):
            room += top[i]
        if (more == 0 or top[more - 1] > 0) and usable[n] + room >= left:
            given[n] = min(usable[n], left - more)
            left -= given[n]
            chosen += 1
    return chosen == used and left == 0
