"""A binary heap of due events, ordered by (time, kind, sequence); of equal events the earlier entry comes first."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *


@kernel
def before(hp: F1, a: int, b: int) -> bool:
    if hp[a, H_TIME] != hp[b, H_TIME]:
        return bool(hp[a, H_TIME] < hp[b, H_TIME])
    if hp[a, H_KIND] != hp[b, H_KIND]:
        return bool(hp[a, H_KIND] < hp[b, H_KIND])
    return bool(hp[a, H_SEQ] < hp[b, H_SEQ])


@kernel
def swap(hp: F1, a: int, b: int) -> None:
    for f in range(HP_FIELDS):
        hp[a, f], hp[b, f] = hp[b, f], hp[a, f]


@kernel
def push(hp: F1, si: I1, time: float, kind: int, job: int, gen: int) -> None:
    i = si[HEAP_N]
    hp[i, H_TIME], hp[i, H_KIND], hp[i, H_SEQ], hp[i, H_JOB], hp[i, H_GEN] = time, kind, si[HEAP_SEQ], job, gen
    si[HEAP_SEQ] += 1
    si[HEAP_N] = i + 1
    while i > 0 and before(hp, i, (i - 1) >> 1):
        swap(hp, i, (i - 1) >> 1)
        i = (i - 1) >> 1


@kernel
def pop(hp: F1, si: I1) -> None:
    """Remove the first event."""
    n = si[HEAP_N] - 1
    si[HEAP_N] = n
    swap(hp, 0, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            return
        if child + 1 < n and before(hp, child + 1, child):
            child += 1
        if not before(hp, child, i):
            return
        swap(hp, i, child)
        i = child
