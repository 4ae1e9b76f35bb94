"""Rank jobs without asking the policy: by columns that it declared as its key, or by its own compiled order."""

from __future__ import annotations

import numpy as np

from argosy._by_address import call_order, start_of
from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *


@kernel
def rank_without_policy(w: World) -> None:
    """Do what the policy would do if it were asked: write a key for each job, and when to rank again."""
    if w.si[ORDER_FN]:
        rank_by_order(w)
    else:
        rank_by_column(w)


@kernel
def rank_by_column(w: World) -> None:
    """Rank by the declared column, or by its product with another; 0 where the other is 0, even for infinity."""
    jf, si = w.jf, w.si
    row, factor = si[KEY_ROW], si[KEY_FACTOR]
    for s in range(si[ACTIVE]):
        jf[KEY, s] = jf[row, s]
    if factor >= 0:
        for s in range(si[ACTIVE]):
            jf[KEY, s] = jf[row, s] * jf[factor, s] if jf[factor, s] > 0.0 else 0.0
    w.sf[WAKE] = np.inf
    if si[ACTIVE] > si[RUNNING_N]:
        w.sf[WAKE] = w.sf[NOW] + w.sf[ASK_EVERY]


@kernel
def rank_by_order(w: World) -> None:
    """Let the policy's compiled order fill in the keys; it returns when to rank again."""
    jf, ji, sf, si, sk = w.jf, w.ji, w.sf, w.si, w.sk
    n, reads = si[ACTIVE], si[ORDER_READS_N]
    for i in range(reads):
        row = si[ORDER_READS + i]
        if row >= 0:
            for s in range(n):
                sk[S_ORDER + i, s] = jf[row, s]
        else:
            for s in range(n):
                sk[S_ORDER + i, s] = ji[-1 - row, s]
    columns, stride = start_of(sk[S_ORDER]), sk.shape[1]
    memory, size = si[ORDER_MEMORY], si[ORDER_MEMORY_N]
    sf[WAKE] = call_order(si[ORDER_FN], columns, stride, n, memory, size, si[FREE_GPUS], si[RUNNING_N], sf[NOW])
    for s in range(n):
        jf[KEY, s] = sk[S_ORDER + reads, s]
