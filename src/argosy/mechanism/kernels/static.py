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
    wq, si = w.wq, w.si
    if si[RELEASED]:
        si[RELEASED] = 0
        for c in range(si[CLASSES]):
            wq[WQ_FAILED, c] = 0
    while True:
        best = -1
        for c in range(si[CLASSES]):
            if wq[WQ_SIZE, c] == 0 or (wq[WQ_FAILED, c] and si[BACKFILL]):
                continue
            if best < 0 or wq[WQ_HEAP, wq[WQ_OFFSET, c]] < wq[WQ_HEAP, wq[WQ_OFFSET, best]]:
                best = c
        if best < 0 or wq[WQ_FAILED, best]:
            return True
        if si[ACTIVE] >= w.jf.shape[1] - 1 and si[HOLES] == 0:
            return False
        job = wq[WQ_RANKED, wq[WQ_HEAP, wq[WQ_OFFSET, best]]]
        if w.tr[GPUS, job] >= 1.0 and w.tr[GPUS, job] > si[FREE_GPUS]:
            wq[WQ_FAILED, best] = 1
            continue
        s = seat(w, job)
        parts = choose(w, s, w.ji[WANT, s], w.ji[WANT_PS, s], False)
        if parts:
            dequeue(w, best)
            start(w, s, parts)
        else:
            w.so[job] = -1
            leave_hole(w, s)
            wq[WQ_FAILED, best] = 1
