"""Handle jobs that the current decision has taken from their places.

Whether such a job is preempted, moved or left alone is known only at the end of the walk: its place may still be free,
or there may be room for it elsewhere. Until then it keeps the list of what it held (FORMER), and the log row of its
preemption can be taken back.
"""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import (
    count_held,
    derive_one,
    finish_move,
    free_entries,
    hold_chosen,
    link,
    log,
    save_if_asked,
    settle,
    unlink,
    unpack,
)
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import are_left, popcount
from argosy.mechanism.kernels.order import smallest
from argosy.mechanism.kernels.place import holds


@kernel
def take_away(w: World, s: int) -> None:
    """Free what a running job holds; the caller logs it as soon as it is certain."""
    ji, en = w.ji, w.en
    settle(w.jf, w.sf, s, w.sf[NOW])
    count_held(w, s, -1.0)
    e = ji[HEAD, s]
    while e >= 0:
        unlink(w, s, e)
        e = en[e, E_NEXT]
    ji[FORMER, s], ji[HEAD, s], ji[FORMER_LOG, s] = ji[HEAD, s], -1, -1
    ji[STATE, s], ji[GROUP, s] = WAITING, -1
    w.si[RUNNING_N] -= 1
    w.si[TAKEN] += 1
    if ji[PEER, s] >= 0:
        unpack(w, s)


@kernel
def log_taken(w: World, s: int) -> None:
    """Log the preemption, in case the job finds no other place."""
    w.ji[FORMER_LOG, s] = w.si[LOG_N]
    w.sf[LEAST] = min(w.sf[LEAST], smallest(w, s))
    log(w.lg, w.si, w.sf[NOW], K_PREEMPT, w.ji[ID, s], -1, 0, 0, 0, 0.0)
    w.si[LOG_SEQ] += 1


@kernel
def is_free(w: World, s: int, e: int) -> bool:
    """Return whether the job can take back what this entry stands for."""
    ni, en = w.ni, w.en
    node, units = en[e, E_NODE], en[e, E_UNITS]
    return bool(
        are_left(ni, node, en[e, E_WORD], en[e, E_MASK], en[e, E_MILLI])
        and ni[N_STATE, node] != NODE_DOWN
        and holds(ni, w.nf, node, 0, units * w.jf[CPU_UNIT, s], units * w.jf[MEM_UNIT, s])
    )


@kernel
def put_back(w: World, s: int) -> bool:
    """Let a taken job go on in its place without interruption, if that is still free."""
    ji, en = w.ji, w.en
    e = ji[FORMER, s]
    while e >= 0 and is_free(w, s, e):
        link(w, s, e)
        e = en[e, E_NEXT]
    if e >= 0:
        linked = ji[FORMER, s]
        while linked != e:
            unlink(w, s, linked)
            linked = en[linked, E_NEXT]
        return False
    ji[HEAD, s], ji[FORMER, s], ji[STATE, s] = ji[FORMER, s], -1, RUNNING
    count_held(w, s, 1.0)
    w.si[RUNNING_N] += 1
    take_back_log(w, s)
    return True


@kernel
def take_back_log(w: World, s: int) -> None:
    if w.ji[FORMER_LOG, s] >= 0:
        w.lg[w.ji[FORMER_LOG, s], L_KIND] = K_VOID


@kernel
def move(w: World, s: int, parts: int) -> None:
    """Run a taken job on the placement in the scratch rows, as a move or a resize."""
    ji, en = w.ji, w.en
    gpus, servers = 0, 0
    e = ji[FORMER, s]
    while e >= 0:
        gpus += popcount(en[e, E_MASK])
        servers += en[e, E_PS]
        e = en[e, E_NEXT]
    free_entries(en, w.si, ji[FORMER, s])
    ji[FORMER, s] = -1
    take_back_log(w, s)
    hold_chosen(w, s, parts)
    save_if_asked(w.jf, s, w.sf[NOW])
    ji[STATE, s] = RUNNING
    w.si[RUNNING_N] += 1
    e = ji[HEAD, s]
    while e >= 0:
        gpus -= popcount(en[e, E_MASK])
        servers -= en[e, E_PS]
        e = en[e, E_NEXT]
    finish_move(w, s, K_MIGRATE if gpus == 0 and servers == 0 else K_RESIZE)


@kernel
def preempt(w: World, s: int) -> None:
    """Send a taken job that found no place back to waiting."""
    jf, ji, t = w.jf, w.ji, w.sf[NOW]
    free_entries(w.en, w.si, ji[FORMER, s])
    ji[FORMER, s] = -1
    save_if_asked(jf, s, t)
    ji[PREEMPTIONS, s] += 1
    ji[GEN, s] += 1
    jf[WAIT_SINCE, s] = t
    jf[RATE, s] = jf[MEASURED, s] = 0.0
    ji[HELD_TYPE, s] = -1
    derive_one(w, s)


@kernel
def forget_void(w: World, first: int) -> None:
    """Remove the log rows of preemptions that were taken back."""
    lg, si = w.lg, w.si
    n = first
    for i in range(first, si[LOG_N]):
        if lg[i, L_KIND] != K_VOID:
            if n != i:
                for f in range(LG_FIELDS):
                    lg[n, f] = lg[i, f]
            n += 1
    si[LOG_N] = n
