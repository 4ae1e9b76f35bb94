"""Admission for policies whose keys are fixed at arrival: queues per demand class, without asking the policy."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import leave_hole, start
from argosy.mechanism.kernels.clock import seat
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.place import choose
from argosy.mechanism.kernels.queues import dequeue


@kernel
def admit_static(w: World) -> bool:
    """Start waiting jobs in key order; return False if no slots are left."""
    wk, si = w.wk, w.si
    if si[RELEASED]:
        si[RELEASED] = 0
        for c in range(si[CLASSES]):
            wk[W_FAILED, c] = 0
    while True:
        best = -1
        for c in range(si[CLASSES]):
            if wk[W_SIZE, c] == 0 or (wk[W_FAILED, c] and si[BACKFILL]):
                continue
            if best < 0 or wk[W_HEAP, wk[W_OFFSET, c]] < wk[W_HEAP, wk[W_OFFSET, best]]:
                best = c
        if best < 0 or wk[W_FAILED, best]:
            return True
        if si[ACTIVE] >= w.jf.shape[1] - 1 and si[HOLES] == 0:
            return False
        job = wk[W_RANKED, wk[W_HEAP, wk[W_OFFSET, best]]]
        if w.tr[GPUS, job] >= 1.0 and w.tr[GPUS, job] > si[FREE_GPUS]:
            wk[W_FAILED, best] = 1
            continue
        s = seat(w, job)
        parts = choose(w, s, w.ji[WANT, s], w.ji[WANT_PS, s], False)
        if parts:
            dequeue(w, best)
            start(w, s, parts)
        else:
            w.so[job] = -1
            leave_hole(w, s)
            wk[W_FAILED, best] = 1
