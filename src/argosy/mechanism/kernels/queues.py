"""Queues of waiting jobs for policies whose keys are fixed at arrival: one heap per demand class.

A heap holds the places of its jobs in the order of all jobs. Jobs of one class are interchangeable for placement, so
only the first of each class matters, and a class whose first job does not fit need not be tried again until something
is released. The cost of a decision grows with the number of classes instead of the number of jobs.
"""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.layout import *


@kernel
def enqueue(w: World, job: int) -> None:
    wq = w.wq
    c, place = wq[WQ_CLASS, job], wq[WQ_RANK, job]
    base = wq[WQ_OFFSET, c]
    i = wq[WQ_SIZE, c]
    wq[WQ_SIZE, c] = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        above = wq[WQ_HEAP, base + parent]
        if place > above:
            break
        wq[WQ_HEAP, base + i] = above
        i = parent
    wq[WQ_HEAP, base + i] = place


@kernel
def dequeue(w: World, c: int) -> None:
    """Remove the first job of a class."""
    wq = w.wq
    base = wq[WQ_OFFSET, c]
    n = wq[WQ_SIZE, c] - 1
    wq[WQ_SIZE, c] = n
    place = wq[WQ_HEAP, base + n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and wq[WQ_HEAP, base + child + 1] < wq[WQ_HEAP, base + child]:
            child += 1
        if place < wq[WQ_HEAP, base + child]:
            break
        wq[WQ_HEAP, base + i] = wq[WQ_HEAP, base + child]
        i = child
    wq[WQ_HEAP, base + i] = place
