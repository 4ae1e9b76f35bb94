"""Kernels for a live cluster, where time is real and the host reports what happens to jobs and nodes."""

from __future__ import annotations

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import fall_back, log_one, retire, settle, stop
from argosy.mechanism.kernels.clock import external_event, is_stale, seat
from argosy.mechanism.kernels.groups import rotate, schedule_rotation
from argosy.mechanism.kernels.heap import pop
from argosy.mechanism.kernels.layout import *


@kernel
def pass_time(w: World) -> int:
    """Advance the clock to UNTIL: groups take turns and reservations begin and end meanwhile, jobs do not end.

    Sets DIRTY if the policy must be asked. Returns DONE, or what the host must do before this is called again.
    """
    sf, si, hp, ex = w.sf, w.si, w.hp, w.ex
    until = sf[UNTIL]
    outlive(w, until)
    while True:
        while si[HEAP_N] and (is_stale(w) or (int(hp[0, H_KIND]) != DUE_SLICE and hp[0, H_TIME] <= until)):
            pop(hp, si)  # a job ends when the host reports it, not when it was expected to
        due = hp[0, H_TIME] if si[HEAP_N] else np.inf
        external = ex[X_TIME, si[EX_NEXT]] if si[EX_NEXT] < si[EX_N] else np.inf
        t = min(due, external)
        if t > until:
            break
        busy = 4 * si[ACTIVE] + 3 * si[TOTAL_GPUS] + 64  # more than one instant can add
        if si[LOG_N] + busy > w.lg.shape[0]:
            return GROW_LOG
        if si[HEAP_N] + busy > hp.shape[0]:
            return GROW_HEAP
        sf[NOW] = max(sf[NOW], t)
        if t == due and int(hp[0, H_KIND]) == DUE_SLICE:
            group = int(hp[0, H_JOB])
            pop(hp, si)
            rotate(w, group)
            continue
        i = si[EX_NEXT]
        si[EX_NEXT] += 1
        if int(ex[X_KIND, i]) == EXTERNAL_REFILL:
            return REFILL
        external_event(w, int(ex[X_KIND, i]), int(ex[X_TARGET, i]), ex[X_VALUE, i])
        si[DIRTY] = 1
    outlive(w, until)
    sf[NOW] = max(sf[NOW], until)
    if sf[WAKE] <= sf[NOW]:
        sf[WAKE] = np.inf
        si[DIRTY] = 1
    return DONE


@kernel
def outlive(w: World, until: float) -> None:
    """Expect jobs that will have run longer than expected by `until` to need as much work again as done by then."""
    jf = w.jf
    for s in range(w.si[ACTIVE]):
        if w.ji[STATE, s] == RUNNING:
            more = max(until - max(jf[MARK, s], jf[READY, s]), 0.0) * jf[RATE, s]
            if more >= jf[LEFT, s]:
                done = max(jf[WORK, s] - jf[LEFT, s] + more, 1.0)
                jf[WORK, s] += done + more - jf[LEFT, s]
                jf[LEFT, s] = done + more


@kernel
def told(w: World, news: I1) -> None:
    """Apply reported rows of (what, job or node, value), all of which happened now."""
    si = w.si
    for i in range(news.shape[0]):
        what, target, value = news[i, T_WHAT], news[i, T_TARGET], news[i, T_VALUE]
        if what == TOLD_ARRIVED:
            while si[NEXT_JOB] < si[JOBS]:
                job = si[NEXT_JOB]
                si[NEXT_JOB] += 1
                log_one(w.lg, si, w.sf[NOW], K_SUBMIT, job, -1, 0.0)
                seat(w, job)
            si[DIRTY] = 1
        elif what == TOLD_SEATED:  # a new planner takes over a job that arrived earlier
            seat(w, target)
        elif what == TOLD_NODE:
            if w.ni[N_STATE, target] != value:
                kind = EXTERNAL_UP if value == NODE_UP else EXTERNAL_DRAIN if value == NODE_DRAINING else EXTERNAL_DOWN
                external_event(w, kind, target, 0.0)
                si[DIRTY] = 1
        elif w.so[target] >= 0:
            about_job(w, what, w.so[target], value)


@kernel
def about_job(w: World, what: int, s: int, value: int) -> None:
    jf, ji, si = w.jf, w.ji, w.si
    if what == TOLD_SETTLE:
        if ji[STATE, s] == RUNNING:
            settle(jf, w.sf, s, w.sf[NOW])
        return
    group = ji[GROUP, s]
    if what == TOLD_ENDED:
        if ji[STATE, s] == RUNNING:
            settle(jf, w.sf, s, w.sf[NOW])
        retire(w, s, K_FINISH + value, value)
    elif ji[STATE, s] == RUNNING:  # its run failed, and it waits again
        stop(w, s, K_CRASH, False)
    elif ji[STATE, s] == PAUSED:
        ji[STATE, s], ji[GROUP, s] = WAITING, -1
        ji[FAULTS, s] += 1
        fall_back(jf, s)
    else:
        return
    si[DIRTY] = 1
    if group >= 0:  # the next one need not wait for the end of the quantum
        schedule_rotation(w, group, w.sf[NOW])
