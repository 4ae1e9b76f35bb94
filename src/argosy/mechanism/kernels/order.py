"""The active jobs in the policy's order, kept from one decision to the next."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *

MOVES_A_JOB = 12  # beyond so many moves for each job, sorting everything takes less time


@kernel
def refresh_order(w: World) -> None:
    """Sort the active jobs by (KEY, id) into W_ORDER; LEAST becomes the smallest demand among those that wait.

    Keys change little between decisions, so the old order is repaired by insertion, within a budget of moves; beyond
    the budget everything is sorted again. Both give the same result.
    """
    si, so = w.si, w.so
    order = w.wk[W_ORDER]
    w.sf[LEAST] = 1e300
    kept, budget, n = si[ORDER_N], MOVES_A_JOB * (si[ORDER_N] + si[NEXT_JOB] - si[ORDER_UPTO]), 0
    for i in range(kept):
        job = order[i]
        if so[job] >= 0:
            budget -= insert(w, n, job, budget >= 0)
            n += 1
    for job in range(si[ORDER_UPTO], si[NEXT_JOB]):
        if so[job] >= 0:
            budget -= insert(w, n, job, budget >= 0)
            n += 1
    si[ORDER_N], si[ORDER_UPTO] = n, si[NEXT_JOB]
    if budget < 0:
        merge_sort(w, n)


@kernel
def insert(w: World, n: int, job: int, in_place: bool) -> int:
    """Put a job into the order of the first n, or behind them; return how many others have moved."""
    jf, ji, si = w.jf, w.ji, w.si
    order, keys = w.wk[W_ORDER], w.sk[S_KEYS]
    s = w.so[job]
    k = jf[KEY, s]
    if k != k:
        si[BAD_KEY] = job + 1
    if ji[STATE, s] == WAITING and ji[WANT, s] > 0:
        w.sf[LEAST] = min(w.sf[LEAST], smallest(w, s))
    j = n - 1
    while in_place and j >= 0 and (keys[j] > k or (keys[j] == k and order[j] > job)):
        keys[j + 1], order[j + 1] = keys[j], order[j]
        j -= 1
    keys[j + 1], order[j + 1] = k, job
    return n - 1 - j


@kernel
def smallest(w: World, s: int) -> float:
    """Return the fewest GPUs with which a waiting job would start now."""
    asked, want = w.jf[GPUS, s], w.ji[WANT, s]
    if asked < 1.0:
        return asked
    return float(min(want, max(1, int(w.jf[MIN_GPUS, s])))) if w.si[ELASTIC] else float(want)


@kernel
def merge_sort(w: World, n: int) -> None:
    """Sort W_ORDER and its keys by (key, id), bottom up."""
    keys, order, other_keys, other = w.sk[S_KEYS], w.wk[W_ORDER], w.sk[S_SORT], w.wk[W_SORT]
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            i, middle, high = low, min(low + width, n), min(low + 2 * width, n)
            j = middle
            for k in range(low, high):
                left = i < middle and (j >= high or keys[i] < keys[j] or (keys[i] == keys[j] and order[i] < order[j]))
                a = i if left else j
                other_keys[k], other[k] = keys[a], order[a]
                i, j = i + left, j + (not left)
        for k in range(n):
            keys[k], order[k] = other_keys[k], other[k]
        width *= 2


@kernel
def guarantee(w: World) -> None:
    """Move the jobs within their queue's quota before all others, keeping the order inside both parts."""
    jf, ji, qu, so = w.jf, w.ji, w.qu, w.so
    n = w.si[ORDER_N]
    order = w.wk[W_ORDER]
    for q in range(qu.shape[1]):
        qu[Q_SUM, q] = 0.0
    others = w.wk[W_SORT]
    first = rest = 0
    for i in range(n):
        s = so[order[i]]
        q = ji[QUEUE, s]
        gpus = jf[HELD, s] if ji[STATE, s] == RUNNING else jf[GPUS, s]
        if qu[Q_SUM, q] + gpus <= qu[Q_QUOTA, q]:
            qu[Q_SUM, q] += gpus
            ji[GUARANTEED, s] = 1
            order[first] = order[i]
            first += 1
        else:
            ji[GUARANTEED, s] = 0
            others[rest] = order[i]
            rest += 1
    for i in range(rest):
        order[first + i] = others[i]


@kernel
def at_stake(w: World, s: int) -> float:
    """Return the GPU-seconds that stopping a running job costs: its work since the last checkpoint, and the restart."""
    cls = w.ji[CLASS, s]
    restart = w.ov[cls, O_SUSPEND] + w.ov[cls, O_RESUME]
    return (max(w.sf[NOW] - w.jf[SAFE_AT, s], 0.0) + restart) * w.jf[HELD, s]


@kernel
def cheapest_last(w: World) -> None:
    """Sort running jobs of equal rank by the cost of preempting them, the cheapest last, where it is taken first."""
    jf, ji, so, order = w.jf, w.ji, w.so, w.wk[W_ORDER]
    n = w.si[ORDER_N]
    places, stakes = w.wk[W_SORT], w.sk[S_SORT]
    first = 0
    while first < n:
        head = so[order[first]]
        alike, last = 0, first
        while (
            last < n
            and jf[KEY, so[order[last]]] == jf[KEY, head]
            and (ji[GUARANTEED, so[order[last]]] == ji[GUARANTEED, head])
        ):
            if ji[STATE, so[order[last]]] == RUNNING:
                places[alike] = last
                stakes[alike] = at_stake(w, so[order[last]])
                alike += 1
            last += 1
        for i in range(1, alike):  # few jobs have equal rank, or all are new: insertion sort is fast enough
            job, stake = order[places[i]], stakes[i]
            j = i - 1
            while j >= 0 and stakes[j] < stake:
                order[places[j + 1]], stakes[j + 1] = order[places[j]], stakes[j]
                j -= 1
            order[places[j + 1]], stakes[j + 1] = job, stake
        first = last
