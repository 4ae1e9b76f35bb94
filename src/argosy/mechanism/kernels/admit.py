"""Gang admission: one walk in the policy's order.

Running jobs met on the way are confirmed; those not yet met are reclaimable for a preemptive policy, from the end of
the order forwards, and only as many as it takes. What failed once in a walk can only fail again, so jobs that ask for
no less are passed over. Strict policies stop at the first job that does not fit, back-filling ones go on.
"""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.book import old_enough_at, start, stop
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import lowest, popcount
from argosy.mechanism.kernels.order import cheapest_last, guarantee, refresh_order
from argosy.mechanism.kernels.place import choose, holds, is_open, is_strict, largest_node
from argosy.mechanism.kernels.resize import grow, shrink_all

REMEMBERED = 32  # failed demands kept in mind during a walk


@kernel
def admit(w: World) -> None:
    """Start, preempt and resize as the keys and wants in the job matrices say."""
    jf, ji, si, so, qu = w.jf, w.ji, w.si, w.so, w.qu
    si[STAMP] += 1
    stamp = si[STAMP]
    if si[ELASTIC]:
        shrink_all(w)
    least = refresh_order(w)
    if si[QUOTAS]:
        guarantee(w)
    if si[BY_STAKE]:
        cheapest_last(w)
    n = si[ORDER_N]
    order = w.wk[W_ORDER]
    n_failed = 0
    counted_at = -1  # position behind which N_TAKE counts; further down it counts too much, never too little
    behind = w.sf[TOTAL_HELD]  # GPUs that they hold
    may_reclaim = bool(si[PREEMPTIVE] or si[QUOTAS])
    for i in range(n):
        s = so[order[i]]
        if ji[STATE, s] == RUNNING:
            ji[SEEN, s] = stamp
            behind -= jf[HELD, s]
            if si[ELASTIC] and ji[WANT, s] > 0:
                grow(w, s)
            continue
        if ji[STATE, s] != WAITING or ji[WANT, s] == 0:
            continue
        gpus, servers = ji[WANT, s], ji[WANT_PS, s]
        q = ji[QUEUE, s]
        amount = min(float(gpus), jf[GPUS, s]) if jf[GPUS, s] < 1.0 else float(gpus)
        if qu[Q_HELD, q] + amount > qu[Q_LIMIT, q] + 1e-9:
            continue
        if is_hopeless(w, n_failed, s, amount):
            continue
        parts = choose(w, s, gpus, servers, False)
        if (
            parts == 0
            and may_reclaim
            and (si[PREEMPTIVE] or ji[GUARANTEED, s])
            and (amount < 1.0 or si[SHARES] or behind + si[FREE_GPUS] >= amount - 1e-6)
        ):
            if counted_at < 0:
                count_reclaimable(w, i)
                counted_at = i
            hope = could_fit(w, s, gpus, amount)
            if hope and counted_at < i:
                count_reclaimable(w, i)
                counted_at = i
                hope = could_fit(w, s, gpus, amount)
            if hope:
                parts = reclaim(w, i, s, gpus, servers, amount)
                may_reclaim = parts >= 0
                parts = max(parts, 0)
        while parts == 0 and si[ELASTIC] and gpus > max(1, int(jf[MIN_GPUS, s])):  # less is better than nothing
            gpus = max(gpus // 2, int(jf[MIN_GPUS, s]))
            parts = choose(w, s, gpus, min(servers, gpus), False)
        if parts:
            start(w, s, parts)
            continue
        if not si[BACKFILL]:
            break
        if n_failed < REMEMBERED:
            remember(w, n_failed, s, amount)
            n_failed += 1
        if amount <= least and is_easiest(w, s) and (amount <= 1.0 or not (si[STRICT] or si[PLACES])):
            break


@kernel
def remember(w: World, i: int, s: int, amount: float) -> None:
    """Note a demand that does not fit, as seven numbers."""
    jf, ji, failed = w.jf, w.ji, w.sk[S_FAILED]
    i *= 7
    failed[i], failed[i + 1], failed[i + 2] = amount, jf[CPU_UNIT, s], jf[MEM_UNIT, s]
    failed[i + 3], failed[i + 4] = ji[TYPES, s] & ji[WANT_TYPES, s], ji[QUEUE, s]
    failed[i + 5], failed[i + 6] = ji[WANT_PS, s], ji[WANT_PLACE, s]


@kernel
def is_hopeless(w: World, n: int, s: int, amount: float) -> bool:
    """Has a job of the same kind that asks for no more than this one failed already?

    Where consolidation is strict, more GPUs may be allowed more nodes, so that only equal numbers compare.
    """
    jf, ji, failed = w.jf, w.ji, w.sk[S_FAILED]
    types = ji[TYPES, s] & ji[WANT_TYPES, s]
    by_queue = w.si[QUOTAS] or w.si[RESERVED]  # whether it matters whose job it is
    strict = is_strict(w, s)
    for i in range(0, 7 * n, 7):
        same_kind = (failed[i] >= 1.0) == (amount >= 1.0) and (failed[i] > 0.0) == (amount > 0.0)
        if (
            same_kind
            and (amount >= failed[i] if not strict else amount == failed[i])
            and jf[CPU_UNIT, s] >= failed[i + 1]
            and jf[MEM_UNIT, s] >= failed[i + 2]
            and types & ~int(failed[i + 3]) == 0
            and (ji[QUEUE, s] == failed[i + 4] or not by_queue)
            and ji[WANT_PS, s] >= failed[i + 5]
            and ji[WANT_PLACE, s] == failed[i + 6]
        ):
            return True
    return False


@kernel
def is_easiest(w: World, s: int) -> bool:
    """No job of this size in the trace is easier to place than this one."""
    jf, ji = w.jf, w.ji
    return bool(
        jf[CPU_UNIT, s] <= w.sf[MIN_CPU_UNIT]
        and jf[MEM_UNIT, s] <= w.sf[MIN_MEM_UNIT]
        and ji[TYPES, s] & ji[WANT_TYPES, s] == (1 << w.si[TYPES_N]) - 1
        and ji[WANT_PS, s] == 0
        and w.si[QUOTAS] == 0
        and w.si[RESERVED] == 0
    )


@kernel
def is_reclaimable(w: World, v: int) -> bool:
    """Is this a running job that may give way to better ranked ones, unless it is too young?"""
    ji = w.ji
    return bool(
        ji[STATE, v] == RUNNING
        and ji[GROUP, v] < 0
        and (w.si[PREEMPTIVE] or not ji[GUARANTEED, v])
        and ji[PREEMPTIONS, v] < w.si[MAX_PREEMPTIONS]
        and w.jf[LEASE, v] <= w.sf[NOW]
    )


@kernel
def count_one(w: World, v: int, sign: int) -> None:
    """Add the GPUs of a running job to those that may be taken, node by node."""
    if is_reclaimable(w, v):
        e = w.ji[HEAD, v]
        while e >= 0:
            w.ni[N_TAKE, w.en[e, E_NODE]] += sign * popcount(w.en[e, E_MASK])
            e = w.en[e, E_NEXT]


@kernel
def count_reclaimable(w: World, position: int) -> None:
    """What the jobs behind this position hold."""
    for node in range(w.si[NODES]):
        w.ni[N_TAKE, node] = 0
    for j in range(position + 1, w.si[ORDER_N]):
        count_one(w, w.so[w.wk[W_ORDER, j]], 1)


@kernel
def could_fit(w: World, s: int, gpus: int, amount: float) -> bool:
    """Might the job fit if everybody behind it gave way? Never wrongly no; looks at GPUs only."""
    ni, si = w.ni, w.si
    types = w.ji[TYPES, s] & w.ji[WANT_TYPES, s] if amount > 0.0 else -1
    wanted = gpus if amount >= 1.0 else int(amount > 0.0)
    total, most = 0, 0
    for node in range(si[NODES]):
        here = ni[N_FREE, node] + ni[N_TAKE, node]
        if here > 0 and is_open(ni, node, types, w.ji[QUEUE, s]):
            total += here
            most = max(most, here)
    if is_strict(w, s) and wanted <= largest_node(w, types):
        return most >= wanted
    return total >= wanted


@kernel
def lend(w: World, v: int, sign: int) -> None:
    """Count (or no longer count) what a running job holds as reclaimable."""
    ni, nf, en = w.ni, w.nf, w.en
    spare = DEVICE0 + 2 * w.si[DEVICES]
    e = w.ji[HEAD, v]
    while e >= 0:
        node, milli = en[e, E_NODE], en[e, E_MILLI]
        rest = en[e, E_MASK]
        while rest:
            d = lowest(rest)
            rest &= rest - 1
            if sign < 0 and ni[DEVICE0 + d, node] + ni[spare + d, node] == WHOLE:
                ni[N_REC, node] -= 1
            ni[spare + d, node] += sign * milli
            if sign > 0 and ni[DEVICE0 + d, node] + ni[spare + d, node] == WHOLE:
                ni[N_REC, node] += 1
        nf[REC_CPU, node] += sign * en[e, E_UNITS] * w.jf[CPU_UNIT, v]
        nf[REC_MEM, node] += sign * en[e, E_UNITS] * w.jf[MEM_UNIT, v]
        e = en[e, E_NEXT]
    if sign < 0:  # sums of floats taken apart again need not end at zero
        e = w.ji[HEAD, v]
        while e >= 0:
            nf[REC_CPU, en[e, E_NODE]] = 0.0
            nf[REC_MEM, en[e, E_NODE]] = 0.0
            e = en[e, E_NEXT]


@kernel
def reclaim(w: World, position: int, s: int, gpus: int, servers: int, amount: float) -> int:
    """Find room for a job by taking the lowest-ranked running jobs; propose, and preempt those in the way.

    A job that has just started bars the way: nobody before it in the order is taken in its place, or jobs would push
    each other out in a chain. Returns -1 then, and the policy is asked again when that job is old enough.
    """
    jf, ji, si, so = w.jf, w.ji, w.si, w.so
    order, scan = w.wk[W_ORDER], w.wk[W_SCAN]
    types = ji[TYPES, s] & ji[WANT_TYPES, s] if amount > 0.0 else -1
    whole = gpus if amount >= 1.0 else 0
    one_node = amount < 1.0 or gpus <= largest_node(w, types)
    cpus, memory = jf[CPU_UNIT, s] * max(whole, 1), jf[MEM_UNIT, s] * max(whole, 1)
    scanned, parts, check_at, available = 0, 0, 1, float(si[FREE_GPUS])
    barred = False
    for j in range(si[ORDER_N] - 1, position, -1):
        v = so[order[j]]
        if ji[SEEN, v] == si[STAMP] or not is_reclaimable(w, v):
            continue
        if old_enough_at(w, v) > w.sf[NOW] + 1e-9:
            w.sf[WAKE] = min(w.sf[WAKE], old_enough_at(w, v))
            barred = True
            break
        lend(w, v, 1)
        scan[scanned] = order[j]
        scanned += 1
        available += jf[HELD, v]
        promising = False
        if one_node:
            e = ji[HEAD, v]
            while e >= 0 and not promising:
                node = w.en[e, E_NODE]
                promising = is_open(w.ni, node, types, ji[QUEUE, s]) and holds(w.ni, w.nf, node, whole, cpus, memory)
                e = w.en[e, E_NEXT]
        elif available >= gpus and scanned >= check_at:
            promising = True
            check_at = scanned * 2
        if promising:
            parts = choose(w, s, gpus, servers, True)
            if parts:
                break
    if parts == 0 and scanned and not (one_node and is_strict(w, s)):
        parts = choose(w, s, gpus, servers, True)
    for i in range(scanned):
        lend(w, so[scan[i]], -1)
    if parts:
        clear_the_way(w, s, parts, scanned)
        return parts
    return -1 if barred else 0


@kernel
def clear_the_way(w: World, s: int, parts: int, scanned: int) -> None:
    """Preempt, lowest rank first, the scanned jobs on nodes that do not hold their part of the proposal yet."""
    ji, wk, so = w.ji, w.wk, w.so
    for i in range(scanned):
        v = so[wk[W_SCAN, i]]
        in_the_way = False
        e = ji[HEAD, v]
        while e >= 0 and not in_the_way:
            node = w.en[e, E_NODE]
            for p in range(parts):
                if wk[W_NODE, p] == node and not part_fits(w, s, p):
                    in_the_way = True
            e = w.en[e, E_NEXT]
        if in_the_way:
            count_one(w, v, -1)
            stop(w, v, K_PREEMPT, True)


@kernel
def part_fits(w: World, s: int, p: int) -> bool:
    """Does part p of the proposal fit what is really free?"""
    jf, ni, wk = w.jf, w.ni, w.wk
    node, mask, milli = wk[W_NODE, p], wk[W_MASK, p], wk[W_MILLI, p]
    units = wk[W_COUNT, p] + wk[W_PS, p] if jf[GPUS, s] >= 1.0 else 1
    if mask:  # a share of a given device
        if ni[DEVICE0 + lowest(mask), node] < milli:
            return False
        return holds(ni, w.nf, node, 0, units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s])
    return holds(ni, w.nf, node, wk[W_COUNT, p], units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s])
