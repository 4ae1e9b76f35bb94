"""Change the size of running jobs: shrink in place, grow in place where there is room, else move."""

from __future__ import annotations

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import (
    count_held,
    drop,
    finish_move,
    hold,
    hold_chosen,
    old_enough_at,
    save_if_asked,
    settle,
    unpack,
)
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import first_bits, pick_devices, popcount, words_of
from argosy.mechanism.kernels.place import choose, count_gpus, propose_these, room
from argosy.mechanism.kernels.taken import log_taken, take_away
from argosy.slack import GPU_SLACK, TIME_SLACK_S


@kernel
def shrink_all(w: World) -> None:
    """Stop jobs that are no longer wanted and shrink those that are too large, before any job grows or starts.

    A job with a lease without an end keeps its least size for ever; what it has beyond that is taken like any other.
    """
    jf, ji = w.jf, w.ji
    for s in range(w.si[ACTIVE]):
        if ji[STATE, s] != RUNNING:
            continue
        if jf[LEASE, s] == np.inf and ji[WANT, s] < jf[MIN_GPUS, s]:
            ji[WANT, s] = int(jf[MIN_GPUS, s])
        if ji[WANT, s] == 0 or ji[YIELDS, s] or not is_on_wanted_type(w, s, ji[HEAD, s]):
            stays_until = max(old_enough_at(w, s), jf[LEASE, s])
            if stays_until <= w.sf[NOW] + TIME_SLACK_S:
                take_away(w, s)
                log_taken(w, s)
            else:
                w.sf[WAKE] = min(w.sf[WAKE], stays_until)
        else:
            too_large = ji[WANT, s] < count_gpus(w, s) or ji[WANT_PS, s] < ji[PS_HELD, s]
            if too_large and jf[GPUS, s] >= 1.0 and ji[PEER, s] < 0:
                shrink(w, s)


@kernel
def is_on_wanted_type(w: World, s: int, e: int) -> bool:
    """Return whether this entry of the job is on a GPU type that the job should be on now."""
    if w.ji[WANT_TYPES, s] == -1 or e < 0:
        return True
    return bool(w.ji[WANT_TYPES, s] >> w.ni[N_TYPE, w.en[e, E_NODE]] & 1)


@kernel
def lay_down(w: World, s: int) -> int:
    """Settle a running job, free all it holds and write that into W_OLD_…; return the number of parts."""
    settle(w.jf, w.sf, s, w.sf[NOW])
    en, wk = w.en, w.wk
    n = 0
    e = w.ji[HEAD, s]
    while e >= 0:
        n += 1
        e = en[e, E_NEXT]
    i = n
    e = w.ji[HEAD, s]
    while e >= 0:  # the list is in reverse order
        i -= 1
        wk[W_OLD_NODE, i], wk[W_OLD_WORD, i], wk[W_OLD_MASK, i] = en[e, E_NODE], en[e, E_WORD], en[e, E_MASK]
        wk[W_OLD_MILLI, i], wk[W_OLD_PS, i] = en[e, E_MILLI], en[e, E_PS]
        e = en[e, E_NEXT]
    count_held(w, s, -1.0)
    drop(w, s)
    if w.ji[PEER, s] >= 0:
        unpack(w, s)
    return n


@kernel
def shrink(w: World, s: int) -> None:
    """Keep the nodes with most of the job's devices, draining ones last, and of the last node only what is needed."""
    ji, wk = w.ji, w.wk
    want, want_ps = min(ji[WANT, s], count_gpus(w, s)), min(ji[WANT_PS, s], ji[PS_HELD, s])
    n = lay_down(w, s)
    old, worth = wk[W_OLD_MASK], wk[W_WORTH]
    for i in range(n):
        wk[W_KEPT, i] = 0
    weigh(w, n)
    while want > 0:
        best = -1
        for i in range(n):
            if wk[W_KEPT, i] == 0 and old[i] and (best < 0 or worth[i] > worth[best]):
                best = i
        here = min(popcount(old[best]), want)
        wk[W_KEPT, best] = first_bits(old[best], here)
        want -= here
    for i in range(n):
        here = min(wk[W_OLD_PS, i], want_ps)
        want_ps -= here
        if wk[W_KEPT, i] or here:
            hold(w, s, wk[W_OLD_NODE, i], wk[W_OLD_WORD, i], wk[W_KEPT, i], wk[W_OLD_MILLI, i], here)
    save_if_asked(w.jf, s, w.sf[NOW])
    finish_move(w, s, K_RESIZE)


@kernel
def weigh(w: World, n: int) -> None:
    """Write into W_WORTH the devices that a job had on each part's node, plus a large number if the node is up."""
    node, worth = w.wk[W_OLD_NODE], w.wk[W_WORTH]
    for i in range(n):  # parts on one node are adjacent: add them up, then give all of them the sum
        stays = 0 if w.ni[N_STATE, node[i]] != NODE_UP else w.si[DEVICES] + 1
        before = worth[i - 1] if i > 0 and node[i - 1] == node[i] else stays
        worth[i] = before + popcount(w.wk[W_OLD_MASK, i])
    for i in range(n - 2, -1, -1):
        if node[i + 1] == node[i]:
            worth[i] = worth[i + 1]


@kernel
def grow(w: World, s: int) -> None:
    """Give a running job what it wants if there is room; otherwise it stays as it is."""
    jf, ji, en = w.jf, w.ji, w.en
    if jf[GPUS, s] < 1.0 or ji[PEER, s] >= 0:
        return
    have = count_gpus(w, s)
    extra, extra_ps = ji[WANT, s] - have, ji[WANT_PS, s] - ji[PS_HELD, s]
    if extra <= 0 and extra_ps <= 0:
        return
    if extra > 0 and w.qu[Q_HELD, ji[QUEUE, s]] + extra > w.qu[Q_LIMIT, ji[QUEUE, s]] + GPU_SLACK:
        return
    if extra_ps <= 0:  # more devices on the nodes it is on
        here, last = 0, -1
        e = ji[HEAD, s]
        while e >= 0 and here < extra:
            if en[e, E_MASK] and en[e, E_NODE] != last and w.ni[N_STATE, en[e, E_NODE]] == NODE_UP:
                last = en[e, E_NODE]
                here += room(w.ni, w.nf, last, extra - here, jf[CPU_UNIT, s], jf[MEM_UNIT, s])
            e = en[e, E_NEXT]
        if here >= extra:
            extend(w, s, extra)
            return
    if extra > w.si[FREE_GPUS]:
        return
    n = lay_down(w, s)
    parts = choose(w, s, ji[WANT, s], ji[WANT_PS, s], False)
    if parts:
        hold_chosen(w, s, parts)
        save_if_asked(jf, s, w.sf[NOW])
        finish_move(w, s, K_RESIZE)
        return
    wk = w.wk
    for i in range(n):
        hold_old(w, s, i, wk[W_OLD_MASK, i])
    count_held(w, s, 1.0)


@kernel
def hold_old(w: World, s: int, i: int, mask: int) -> None:
    """Give a job the i-th part of what it held before again, with these devices."""
    wk = w.wk
    hold(w, s, wk[W_OLD_NODE, i], wk[W_OLD_WORD, i], mask, wk[W_OLD_MILLI, i], wk[W_OLD_PS, i])


@kernel
def extend(w: World, s: int, extra: int) -> None:
    """Add devices on the nodes on which a job runs."""
    jf, ji, en, wk = w.jf, w.ji, w.en, w.wk
    more, last = 0, -1  # what is added stands in the scratch rows as a proposal
    e = ji[HEAD, s]
    while e >= 0 and extra > 0:
        node = en[e, E_NODE]
        if en[e, E_MASK] and node != last and w.ni[N_STATE, node] == NODE_UP:
            last = node
            here = room(w.ni, w.nf, node, extra, jf[CPU_UNIT, s], jf[MEM_UNIT, s])
            extra -= here
            if here:
                pick_devices(w, node, here)
                for word in range(words_of(w.ni, node)):
                    if wk[W_PICKED, word]:
                        propose_these(w, more, node, 0, word, wk[W_PICKED, word], WHOLE)
                        more += 1
        e = en[e, E_NEXT]
    n = lay_down(w, s)
    for i in range(n):
        mask, node = wk[W_OLD_MASK, i], wk[W_OLD_NODE, i]
        for p in range(more):
            if wk[W_NODE, p] == node and wk[W_WORD, p] == wk[W_OLD_WORD, i]:
                mask |= wk[W_MASK, p]
                wk[W_MASK, p] = 0
        hold_old(w, s, i, mask)
        if i == n - 1 or wk[W_OLD_NODE, i + 1] != node:  # words of the node in which it had nothing
            for p in range(more):
                if wk[W_NODE, p] == node and wk[W_MASK, p]:
                    hold(w, s, node, wk[W_WORD, p], wk[W_MASK, p], WHOLE, 0)
    save_if_asked(jf, s, w.sf[NOW])
    finish_move(w, s, K_RESIZE)
