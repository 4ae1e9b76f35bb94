"""Gang admission: one walk through the jobs in the policy's order.

Running jobs that the walk has reached keep their places. Under a preemptive policy, those that it has not reached yet
may be taken from their places, from the end of the order forwards, and only as many as necessary. A job that was taken
goes on where it was if that is still free when the walk reaches it, moves if there is room elsewhere, and waits
otherwise. A demand that failed once in a walk would fail again, so jobs that ask for no less are skipped. Policies
without back-filling stop at the first job that does not fit, the others go on.
"""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import old_enough_at, start
from argosy.mechanism.kernels.faster import seek_faster
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import are_left, lowest, popcount
from argosy.mechanism.kernels.order import cheapest_last, guarantee, refresh_order, smallest
from argosy.mechanism.kernels.pack import pack_wanted
from argosy.mechanism.kernels.place import choose, holds, is_open, is_strict, largest_node
from argosy.mechanism.kernels.resize import grow, is_on_wanted_type, shrink_all
from argosy.mechanism.kernels.taken import forget_void, log_taken, move, preempt, put_back, take_away
from argosy.slack import GPU_SLACK, RESOURCE_SLACK, TIME_SLACK_S

REMEMBERED = 32  # failed demands that are remembered during a walk


@kernel
def admit(w: World) -> None:
    """Start, preempt and resize as the keys and wants in the job matrices say."""
    jf, ji, si, so = w.jf, w.ji, w.si, w.so
    si[STAMP] += 1
    stamp = si[STAMP]
    si[TAKEN] = 0
    logged = si[LOG_N]
    if si[ELASTIC]:
        shrink_all(w)
    refresh_order(w)
    if si[QUOTAS]:
        guarantee(w)
    if si[BY_STAKE]:
        cheapest_last(w)
    n = si[ORDER_N]
    order = w.wk[W_ORDER]
    n_failed = 0
    counted_at = -1  # position behind which N_TAKE counts jobs; later in the walk it is too high, never too low
    behind = w.sf[TOTAL_HELD]  # GPUs that those jobs hold
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
        amount = min(float(gpus), jf[GPUS, s]) if jf[GPUS, s] < 1.0 else float(gpus)
        if is_over_limit(w, s, amount):
            continue
        if ji[FORMER, s] >= 0 and is_on_wanted_type(w, s, ji[FORMER, s]) and put_back(w, s):
            if si[ELASTIC]:
                grow(w, s)
            continue
        least = smallest(w, s)
        if is_hopeless(w, n_failed, s, least):
            continue
        parts = choose(w, s, gpus, servers, False)
        if (
            parts == 0
            and may_reclaim
            and (si[PREEMPTIVE] or ji[GUARANTEED, s])
            and (amount < 1.0 or si[SHARES] or behind + si[FREE_GPUS] >= amount - RESOURCE_SLACK)
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
        if parts and ji[FORMER, s] >= 0:
            move(w, s, parts)
            continue
        if parts:
            start(w, s, parts)
            continue
        if not si[BACKFILL]:
            break
        if n_failed < REMEMBERED:
            remember(w, n_failed, s, least)
            n_failed += 1
        if least <= w.sf[LEAST] and is_easiest(w, s) and (least <= 1.0 or not (si[STRICT] or si[PLACES])):
            break
    if si[TAKEN]:
        conclude(w, logged)
    if si[PACKS]:
        pack_wanted(w)
    if si[FASTER]:
        seek_faster(w)


@kernel
def is_over_limit(w: World, s: int, amount: float) -> bool:
    """Return whether this many more GPUs would exceed the limit of the job's queue."""
    q = w.ji[QUEUE, s]
    return bool(w.qu[Q_HELD, q] + amount > w.qu[Q_LIMIT, q] + GPU_SLACK)


@kernel
def conclude(w: World, logged: int) -> None:
    """End the walk: a job that was taken and found no other place goes back to its own, or waits."""
    jf, ji, so = w.jf, w.ji, w.so
    for i in range(w.si[ORDER_N]):
        s = so[w.wk[W_ORDER, i]]
        if ji[FORMER, s] < 0:
            continue
        wanted = ji[WANT, s] > 0 and (w.si[BIDS] or is_on_wanted_type(w, s, ji[FORMER, s]))
        amount = min(float(ji[WANT, s]), jf[GPUS, s]) if jf[GPUS, s] < 1.0 else float(ji[WANT, s])
        if not wanted or is_over_limit(w, s, amount) or not put_back(w, s):
            preempt(w, s)
    forget_void(w, logged)


@kernel
def remember(w: World, i: int, s: int, amount: float) -> None:
    """Note a demand that does not fit, as seven numbers."""
    jf, ji, failed = w.jf, w.ji, w.sk[S_FAILED]
    i *= 7
    failed[i], failed[i + 1], failed[i + 2] = amount, jf[CPU_UNIT, s], jf[MEM_UNIT, s]
    failed[i + 3], failed[i + 4] = ji[TYPES, s] & ji[WANT_TYPES, s], ji[QUEUE, s]
    failed[i + 5], failed[i + 6] = fewest_servers(w, s, amount), ji[WANT_PLACE, s]


@kernel
def fewest_servers(w: World, s: int, amount: float) -> int:
    """Return the parameter servers that a job needs beside the fewest GPUs with which it would start."""
    return min(w.ji[WANT_PS, s], int(amount)) if w.si[ELASTIC] else w.ji[WANT_PS, s]


@kernel
def is_hopeless(w: World, n: int, s: int, amount: float) -> bool:
    """Return whether a job of the same kind that asks for no more than this one has already failed.

    Under strict consolidation, more GPUs may be allowed more nodes, so only equal numbers of GPUs are compared.
    """
    jf, ji, failed = w.jf, w.ji, w.sk[S_FAILED]
    types = ji[TYPES, s] & ji[WANT_TYPES, s]
    by_queue = w.si[QUOTAS] or w.si[RESERVED]  # whether the job's queue matters
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
            and fewest_servers(w, s, amount) >= failed[i + 5]
            and ji[WANT_PLACE, s] == failed[i + 6]
        ):
            return True
    return False


@kernel
def is_easiest(w: World, s: int) -> bool:
    """Return whether no job of this size in the trace is easier to place than this one."""
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
    """Return whether better ranked jobs may preempt this running job, apart from how recently it started."""
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
    """Add the GPUs of a running job to those that may be reclaimed, node by node."""
    if w.jf[SPARED, v] > 0.0 and w.jf[LEASE, v] > w.sf[NOW] and w.ji[STATE, v] == RUNNING:
        w.sf[WAKE] = min(w.sf[WAKE], w.jf[LEASE, v])  # then it may be taken
    elif is_reclaimable(w, v):
        e = w.ji[HEAD, v]
        while e >= 0:
            w.ni[N_TAKE, w.en[e, E_NODE]] += sign * popcount(w.en[e, E_MASK])
            e = w.en[e, E_NEXT]


@kernel
def count_reclaimable(w: World, position: int) -> None:
    """Return what the jobs behind this position hold."""
    for node in range(w.si[NODES]):
        w.ni[N_TAKE, node] = 0
    for j in range(position + 1, w.si[ORDER_N]):
        count_one(w, w.so[w.wk[W_ORDER, j]], 1)


@kernel
def could_fit(w: World, s: int, gpus: int, amount: float) -> bool:
    """Return whether the job might fit if all jobs behind it gave way; it counts only GPUs, so False is certain."""
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
def mark_reclaimable(w: World, v: int, sign: int) -> None:
    """Add to (or subtract from) the reclaimable resources what a running job holds."""
    ni, nf, en = w.ni, w.nf, w.en
    spare = 2 * w.si[DEVICES]
    e = w.ji[HEAD, v]
    while e >= 0:
        node, milli = en[e, E_NODE], en[e, E_MILLI]
        rest = en[e, E_MASK]
        while rest:
            d = DEVICE0 + en[e, E_WORD] * WORD + lowest(rest)
            rest &= rest - 1
            if sign < 0 and ni[d, node] + ni[spare + d, node] == WHOLE:
                ni[N_REC, node] -= 1
            ni[spare + d, node] += sign * milli
            if sign > 0 and ni[d, node] + ni[spare + d, node] == WHOLE:
                ni[N_REC, node] += 1
        nf[REC_CPU, node] += sign * en[e, E_UNITS] * w.jf[CPU_UNIT, v]
        nf[REC_MEM, node] += sign * en[e, E_UNITS] * w.jf[MEM_UNIT, v]
        e = en[e, E_NEXT]
    if sign < 0:  # after adding and subtracting floats the sum need not be zero
        e = w.ji[HEAD, v]
        while e >= 0:
            nf[REC_CPU, en[e, E_NODE]] = 0.0
            nf[REC_MEM, en[e, E_NODE]] = 0.0
            e = en[e, E_NEXT]


@kernel
def reclaim(w: World, position: int, s: int, gpus: int, servers: int, amount: float) -> int:
    """Propose a placement for a job by taking away running jobs, lowest rank first; return the number of its parts.

    A job that started too recently ends the search: no job before it in the order is taken instead, because jobs would
    then displace each other in a chain. The function returns -1, and the policy is asked again when that job is old
    enough.

    Jobs that would lose all their work are considered last, after all that can save theirs.
    """
    jf, ji, si, so = w.jf, w.ji, w.si, w.so
    order, scan = w.wk[W_ORDER], w.wk[W_SCAN]
    types = ji[TYPES, s] & ji[WANT_TYPES, s] if amount > 0.0 else -1
    whole = gpus if amount >= 1.0 else 0
    one_node = amount < 1.0 or gpus <= largest_node(w, types)
    cpus, memory = jf[CPU_UNIT, s] * max(whole, 1), jf[MEM_UNIT, s] * max(whole, 1)
    scanned, parts, check_at, available = 0, 0, 1, float(si[FREE_GPUS])
    too_few = 0  # with this many of the scanned jobs gone, it does not fit
    barred_until = 0.0
    n, fragile, turns = si[ORDER_N], False, 1
    j = n
    while True:
        j -= 1
        if j == position:  # all are considered; now those that would lose their work, if there are any
            if turns == 2 or not fragile or parts:
                break
            turns, j = 2, n
            continue
        v = so[order[j]]
        if ji[SEEN, v] == si[STAMP] or ji[STATE, v] != RUNNING:
            continue
        loses = jf[SAVES, v] == SAVES_NOTHING
        fragile |= loses
        if loses != (turns == 2) or not is_reclaimable(w, v):
            continue
        if old_enough_at(w, v) > w.sf[NOW] + TIME_SLACK_S:
            barred_until = old_enough_at(w, v)
            break
        mark_reclaimable(w, v, 1)
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
        elif available < gpus:
            too_few = scanned
        elif scanned >= check_at:
            promising = True
            check_at = scanned * 2
        if promising:
            parts = choose(w, s, gpus, servers, True)
            if parts:
                break
            too_few = scanned
    if parts == 0 and too_few < scanned and not (one_node and is_strict(w, s)):
        parts = choose(w, s, gpus, servers, True)
        one_node = False
    while parts and not one_node and scanned - too_few > 1:  # bisect for the smallest number that suffices
        middle = (too_few + scanned) // 2
        lend_first(w, scanned, middle)
        fewer = choose(w, s, gpus, servers, True)
        if fewer:
            parts, scanned = fewer, middle
        else:
            too_few = middle
            lend_first(w, middle, scanned)
            parts = choose(w, s, gpus, servers, True)
    lend_first(w, scanned, 0)
    if parts:
        clear_the_way(w, s, parts, scanned)
        if fragile and turns == 1:
            spare_fragile(w, position)
        return parts
    if barred_until > 0.0:
        w.sf[WAKE] = min(w.sf[WAKE], barred_until)
        return -1
    return 0


@kernel
def spare_fragile(w: World, position: int) -> None:
    """Protect jobs that were passed over because they would lose their work, for as long again as they have run.

    Otherwise the jobs that were taken in their place would take theirs in the next decision, and both would have been
    stopped.
    """
    jf, ji, so, order = w.jf, w.ji, w.so, w.wk[W_ORDER]
    passed = False
    for j in range(position + 1, w.si[ORDER_N]):
        v = so[order[j]]
        if ji[FORMER, v] >= 0:
            passed = True
        elif passed and ji[STATE, v] == RUNNING and jf[SAVES, v] == SAVES_NOTHING and is_reclaimable(w, v):
            jf[SPARED, v] = max(jf[SPARED, v], w.sf[NOW] - jf[STARTED, v])
            jf[LEASE, v] = w.sf[NOW] + jf[SPARED, v]


@kernel
def lend_first(w: World, had: int, wanted: int) -> None:
    """Count the first `wanted` of the scanned jobs as reclaimable instead of the first `had`."""
    scan = w.wk[W_SCAN]
    for i in range(had):
        mark_reclaimable(w, w.so[scan[i]], -1)
    for i in range(wanted):
        mark_reclaimable(w, w.so[scan[i]], 1)


@kernel
def clear_the_way(w: World, s: int, parts: int, scanned: int) -> None:
    """Take away the scanned jobs that are in the way of the proposal, and put back those that need not go.

    Jobs are taken, lowest rank first, from nodes on which a part of the proposal does not fit yet, and put back,
    highest rank first, if the whole proposal still fits then.
    """
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
            take_away(w, v)
    for i in range(scanned - 1, -1, -1):
        v = so[wk[W_SCAN, i]]
        if ji[FORMER, v] < 0:
            continue
        if put_back(w, v):
            fits = True
            for p in range(parts):
                fits &= part_fits(w, s, p)
            if fits:
                count_one(w, v, 1)
                continue
            take_away(w, v)
        log_taken(w, v)


@kernel
def part_fits(w: World, s: int, p: int) -> bool:
    """Return whether part p of the proposal fits into what is really free."""
    jf, ni, wk = w.jf, w.ni, w.wk
    node, mask, milli = wk[W_NODE, p], wk[W_MASK, p], wk[W_MILLI, p]
    units = wk[W_COUNT, p] + wk[W_PS, p] if jf[GPUS, s] >= 1.0 else 1
    if mask:  # a share of a given device
        if not are_left(ni, node, wk[W_WORD, p], mask, milli):
            return False
        return holds(ni, w.nf, node, 0, units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s])
    return holds(ni, w.nf, node, wk[W_COUNT, p], units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s])
