"""Let time pass: arrivals, ends, external events, and when the policy is asked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import (
    derive_one,
    expect_end,
    log_one,
    measure,
    next_part,
    price,
    retire,
    settle,
    start,
    stop,
)
from argosy.mechanism.kernels.groups import rotate, schedule_rotation
from argosy.mechanism.kernels.heap import pop
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import set_state
from argosy.mechanism.kernels.place import choose
from argosy.mechanism.kernels.queues import enqueue
from argosy.slack import GPU_SLACK

PULSE_EVERY = 20000  # events between two returns to the host, for progress bars and Ctrl-C


@kernel
def seat(w: World, job: int) -> int:
    """Give an arriving job a slot, with new accounts."""
    jf, ji, tr, si = w.jf, w.ji, w.tr, w.si
    if si[HOLES]:
        si[HOLES] -= 1
        s = w.wq[WQ_HOLES, si[HOLES]]
    else:
        s = si[ACTIVE]
        si[ACTIVE] = s + 1
    for r in range(STATIC_F):
        jf[r, s] = tr[r, job]
    for r in range(STATIC_F, JF_ROWS):
        jf[r, s] = 0.0
    for r in range(STATIC_I):
        ji[r, s] = int(tr[STATIC_F + r, job])
    for r in range(STATIC_I, JI_ROWS):
        ji[r, s] = 0
    jf[LEFT, s] = jf[SAFE_LEFT, s] = jf[NOW_LEFT, s] = jf[WORK, s]
    jf[NOW_EXPECTED_LEFT, s] = jf[EXPECTED, s]
    jf[WAIT_SINCE, s] = jf[SUBMIT, s]
    ji[ID, s], ji[HEAD, s], ji[FORMER, s], ji[PEER, s], ji[GROUP, s] = job, -1, -1, -1, -1
    ji[WANT, s] = max(1, int(jf[GPUS, s]))
    ji[WANT_PS, s] = ji[WANT_PS_ASKED, s]
    ji[WANT_TYPES, s] = ji[HELD_TYPE, s] = -1
    ji[BATCH_CLASS, s] = ji[CLASS, s]
    jf[BATCH, s], jf[NOISE_SCALE, s] = w.cb[ji[CLASS, s]], np.nan
    w.so[job] = s
    return s


@kernel
def is_stale(w: World) -> bool:
    """Return whether the first heap entry belongs to a run that is over."""
    if int(w.hp[0, H_KIND]) == DUE_SLICE:
        return bool(w.gq[int(w.hp[0, H_JOB]), G_GEN] != w.hp[0, H_GEN])
    s = w.so[int(w.hp[0, H_JOB])]
    return bool(s < 0 or w.ji[GEN, s] != int(w.hp[0, H_GEN]))


def advancing(static: bool) -> Callable[[World], int]:
    """Make `advance`, for ordinary runs or for those of the static path.

    On the static path, jobs wait in queues, nothing happens to running jobs but that they end, and nothing to nodes but
    that they are drained and opened again. What it cannot need is not compiled for it: Numba leaves out the branches of
    a condition that is known when it compiles.
    """

    @kernel
    def advance(w: World) -> int:
        """Let time pass until the policy must be asked, the host must do something, or no event is left.

        Events of one instant are handled together: ends first, then external events, then arrivals.
        """
        sf, si, hp, ex = w.sf, w.si, w.hp, w.ex
        while True:
            si[EVENTS] += 1
            if si[EVENTS] == PULSE_EVERY:
                si[EVENTS] = 0
                return PULSE
            while si[HEAP_N] and is_stale(w):
                pop(hp, si)
            due = hp[0, H_TIME] if si[HEAP_N] else np.inf
            external = ex[X_TIME, si[EX_NEXT]] if si[EX_NEXT] < si[EX_N] else np.inf
            arrival = w.tr[SUBMIT, si[NEXT_JOB]] if si[NEXT_JOB] < si[JOBS] else np.inf
            t = min(min(due, external), min(arrival, sf[WAKE]))
            if si[DIRTY] and t > sf[NOW]:
                si[DIRTY] = 0
                if static or not settled_without_policy(w):
                    return DECIDE
                continue
            over = si[NEXT_JOB] >= si[JOBS] and si[FINISHED] >= si[JOBS]
            if t == np.inf or t > sf[UNTIL] or over:
                if sf[UNTIL] < np.inf and not over:
                    sf[NOW] = max(sf[NOW], sf[UNTIL])
                return DONE
            busy = 4 * si[ACTIVE] + 3 * si[TOTAL_GPUS] + 64  # more than one instant can add
            if si[LOG_N] + busy > w.lg.shape[0]:
                return GROW_LOG
            if si[HEAP_N] + busy > hp.shape[0]:
                return GROW_HEAP
            if not static and t == arrival and si[ACTIVE] >= w.jf.shape[1] - 1:
                return GROW_JOBS
            sf[NOW] = t
            if t == due:
                happen(w)
            elif t == external:
                i = si[EX_NEXT]
                si[EX_NEXT] += 1
                kind = int(ex[X_KIND, i])
                if kind == EXTERNAL_TICK:
                    return TICK
                if kind == EXTERNAL_REFILL:
                    return REFILL
                if static:
                    open_or_drain(w, kind, int(ex[X_TARGET, i]))
                else:
                    external_event(w, kind, int(ex[X_TARGET, i]), ex[X_VALUE, i])
                si[DIRTY] = 1
            elif t == arrival:
                arrive(w)
            else:
                sf[WAKE] = np.inf
                si[DIRTY] = 1

    @kernel
    def happen(w: World) -> None:
        """Take the first entry from the heap and carry it out."""
        hp, si, t = w.hp, w.si, w.sf[NOW]
        kind, job = int(hp[0, H_KIND]), int(hp[0, H_JOB])
        pop(hp, si)
        if not static and kind == DUE_SLICE:
            rotate(w, job)
            return
        s = w.so[job]
        if kind == DUE_PART:
            next_part(w, s)
            return
        if not static and kind == DUE_CRASH:
            crash(w, s)
        else:
            w.jf[LEFT, s] = 0.0 if w.jf[READY, s] <= t else w.jf[LEFT, s]
            end_of(w, s)
        si[DIRTY] = 1

    @kernel
    def arrive(w: World) -> None:
        """Let the next job arrive."""
        si, t = w.si, w.sf[NOW]
        job = si[NEXT_JOB]
        si[NEXT_JOB] += 1
        log_one(w.lg, si, t, K_SUBMIT, job, -1, 0.0)
        if w.rs[R_STATUS, job] != UNFINISHED:  # refused before the run, or cancelled since
            refused = w.rs[R_STATUS, job] == ENDED_REFUSED
            log_one(w.lg, si, t, K_REFUSE if refused else K_CANCEL, job, -1, 0.0)
            if not refused:
                w.rs[R_FINISH, job] = t
            si[FINISHED] += 1
            return
        if static:
            enqueue(w, job)
        else:
            seat(w, job)
        si[DIRTY] = 1

    return advance


@kernel
def end_of(w: World, s: int) -> None:
    """End a job that has done its work; its status may be failed or killed, if the trace says so."""
    status, group = w.ji[ENDING, s], w.ji[GROUP, s]
    settle(w.jf, w.sf, s, w.sf[NOW])
    w.jf[LEFT, s] = 0.0
    retire(w, s, K_FINISH + status, status)
    if group >= 0:  # its turn ends here, so the next member need not wait for the end of the quantum
        schedule_rotation(w, group, w.sf[NOW])


@kernel
def crash(w: World, s: int) -> None:
    """Let a job crash: it is retried from its last checkpoint, or it fails for good."""
    if w.ji[FAULTS, s] >= w.si[MAX_CRASHES]:
        settle(w.jf, w.sf, s, w.sf[NOW])
        retire(w, s, K_FAIL, ENDED_FAILED)
    else:
        stop(w, s, K_CRASH, False)


@kernel
def open_or_drain(w: World, kind: int, node: int) -> None:
    """Open a node, or let no more jobs start there."""
    ni, si = w.ni, w.si
    if kind == EXTERNAL_UP:
        set_state(ni, w.bk, si, node, NODE_UP)
        si[RELEASED] = 1
    elif ni[N_STATE, node] == NODE_UP:
        set_state(ni, w.bk, si, node, NODE_DRAINING)
    log_one(w.lg, si, w.sf[NOW], K_NODE_UP if kind == EXTERNAL_UP else K_NODE_DRAIN, -1, node, 0.0)


@kernel
def evict_all(w: World, node: int, orderly: bool, except_queue: int) -> None:
    e = w.ni[N_HEAD, node]
    while e >= 0:
        s = w.so[w.en[e, E_JOB]]
        if w.ji[QUEUE, s] == except_queue:
            e = w.en[e, E_NODE_NEXT]
            continue
        stop(w, s, K_EVICT, orderly)
        e = w.ni[N_HEAD, node]


@kernel
def external_event(w: World, kind: int, target: int, value: float) -> None:
    """Handle an external event: a node fails, returns, is drained or reserved; a job is cancelled."""
    ni, si, t = w.ni, w.si, w.sf[NOW]
    if kind == EXTERNAL_CANCEL:
        s = w.so[target]
        if s >= 0:
            retire(w, s, K_CANCEL, ENDED_CANCELLED)
        elif target >= si[NEXT_JOB]:
            w.rs[R_STATUS, target] = ENDED_CANCELLED
        return
    if kind == EXTERNAL_DOWN:
        if ni[N_STATE, target] == NODE_DOWN:
            return
        log_one(w.lg, si, t, K_NODE_DOWN, -1, target, 0.0)
        evict_all(w, target, False, -1)
        set_state(ni, w.bk, si, target, NODE_DOWN)
    elif kind in (EXTERNAL_UP, EXTERNAL_DRAIN):
        open_or_drain(w, kind, target)
    elif kind == EXTERNAL_RESERVE:
        ni[N_OWNER, target] = int(value)
        log_one(w.lg, si, t, K_NODE_RESERVE, -1, target, value)
        evict_all(w, target, True, int(value))
    elif kind == EXTERNAL_RELEASE:
        ni[N_OWNER, target] = -1
        log_one(w.lg, si, t, K_NODE_RELEASE, -1, target, 0.0)
        si[RELEASED] = 1


@kernel
def settled_without_policy(w: World) -> bool:
    """Return whether an `eager` policy need not be asked: no job waits, or the only waiting job fits."""
    ji, si = w.ji, w.si
    if not si[EAGER]:
        return False
    waiting = si[ACTIVE] - si[RUNNING_N]
    if waiting == 0:
        return True
    s = si[ACTIVE] - 1  # newcomers take the last slot
    if waiting > 1 or ji[STATE, s] != WAITING or ji[RUNS, s] > 0:
        return False
    if w.qu[Q_HELD, ji[QUEUE, s]] + w.jf[GPUS, s] > w.qu[Q_LIMIT, ji[QUEUE, s]] + GPU_SLACK:
        return False
    parts = choose(w, s, ji[WANT, s], ji[WANT_PS, s], False)
    if parts:
        start(w, s, parts)
    return parts > 0


@kernel
def reprice(w: World) -> None:
    """Apply changed machine speeds: settle every job at the old rate, and continue at the new one."""
    for s in range(w.si[ACTIVE]):
        if w.ji[STATE, s] == RUNNING:
            settle(w.jf, w.sf, s, w.sf[NOW])
            price(w, s)
            expect_end(w, s)
            measure(w, s, False)


@kernel
def derive(w: World) -> None:
    """Fill the columns that change as time passes; those of waiting jobs were filled when they stopped."""
    jf, ji, t = w.jf, w.ji, w.sf[NOW]
    service = w.si[DERIVE] & D_SERVICE
    for s in range(w.si[ACTIVE]):
        if ji[STATE, s] == RUNNING:
            derive_one(w, s)
            jf[NOW_WAITING, s] = 0.0
        elif service:
            jf[NOW_WAITING, s] = t - jf[WAIT_SINCE, s]


advance, advance_static = advancing(False), advancing(True)
