"""Granting workers and servers one by one: what is possible, and what granting it does.

A unit is one more worker, one more server or one of both for a job; the first worker of a job is its smallest size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from argosy._jit import kernel
from argosy.policies.learned.kernels.constants import BOTH, SERVER, WORKER

LOW, HIGH, MOST = 0, 1, 2  # columns of counts, as in argosy.policies.common.demands
FIRST, ONE_MORE, ONE_SERVER = 0, 3, 6  # and of amounts, where three resources of each begin
RESOURCES = 3


class Slot(NamedTuple):
    """What is divided among the jobs (rows), and how far that has got."""

    counts: Any  # [job, 4]
    amounts: Any  # [job, 9]
    free: Any  # [3] GPUs, CPUs, memory
    used: Any  # [job, 3]
    workers: Any  # [job]
    servers: Any
    order: Any  # how many were served before a job first was; the number of jobs: never


@kernel
def possible(slot: Slot, j: int, what: int) -> bool:
    """May job j have this, and is it there?"""
    more = slot.workers[j] > 0
    if what != SERVER and slot.workers[j] >= slot.counts[j, HIGH]:
        return False
    if what != WORKER and slot.servers[j] >= slot.counts[j, MOST]:
        return False
    at = ONE_MORE if more else FIRST
    for r in range(RESOURCES):
        need = 0.0
        if what != SERVER:
            need += slot.amounts[j, at + r]
        if what != WORKER:
            need += slot.amounts[j, ONE_SERVER + r]
        if need > slot.free[r]:
            return False
    return True


@kernel
def take(slot: Slot, j: int, what: int) -> None:
    """Grant it."""
    amounts, free, used, workers = slot.amounts, slot.free, slot.used, slot.workers
    if what != SERVER:
        at = ONE_MORE if workers[j] > 0 else FIRST
        for r in range(RESOURCES):
            free[r] -= amounts[j, at + r]
            used[j, r] += amounts[j, at + r]
        workers[j] = workers[j] + 1 if workers[j] > 0 else slot.counts[j, LOW]
    if what != WORKER:
        for r in range(RESOURCES):
            free[r] -= amounts[j, ONE_SERVER + r]
            used[j, r] += amounts[j, ONE_SERVER + r]
        slot.servers[j] += 1


@kernel
def smallest(slot: Slot, j: int) -> int:
    """What makes a job run that has nothing."""
    return BOTH if slot.counts[j, MOST] > 0 else WORKER


@kernel
def serve(slot: Slot, guarded: Any) -> int:
    """Those who must not wait any longer get their smallest size, in the order of the rows; how many they are."""
    turn, n = 0, len(slot.order)
    for j in range(n):
        slot.order[j] = n
        if guarded[j]:
            what = smallest(slot, j)
            if possible(slot, j, what):
                take(slot, j, what)
                slot.order[j] = turn
                turn += 1
    return turn
