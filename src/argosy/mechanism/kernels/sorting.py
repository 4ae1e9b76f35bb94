"""Sorting in place, for kernels that allocate nothing."""

from __future__ import annotations

from typing import Any

from argosy._jit import kernel


@kernel
def sort_down(density: Any, order: Any, n: int) -> None:
    """Order jobs by falling density, ties by their number (heap sort: nothing is allocated)."""
    for i in range(n):
        order[i] = i
    start = n // 2 - 1
    while start >= 0:
        sift(density, order, start, n)
        start -= 1
    end = n - 1
    while end > 0:
        order[0], order[end] = order[end], order[0]
        sift(density, order, 0, end)
        end -= 1


@kernel
def comes_later(density: Any, a: int, b: int) -> bool:
    return density[a] < density[b] or (density[a] == density[b] and a > b)


@kernel
def sift(density: Any, order: Any, root: int, n: int) -> None:
    """Let the entry at `root` sink to its place in a heap whose top comes last."""
    while True:
        child = 2 * root + 1
        if child >= n:
            return
        if child + 1 < n and comes_later(density, order[child + 1], order[child]):
            child += 1
        if not comes_later(density, order[child], order[root]):
            return
        order[root], order[child] = order[child], order[root]
        root = child
