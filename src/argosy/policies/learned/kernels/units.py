"""Compiled granting of workers and servers one by one: which units are possible, and what a grant changes.

A unit is one more worker, one more server or one of both for a job; the first worker of a job is its smallest size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from argosy._jit import kernel
from argosy.policies.learned.kernels.constants import BOTH, SERVER, WORKER

LOW, HIGH, MOST = 0, 1, 2  # columns of counts, as in argosy.policies.common.demands
FIRST, ONE_MORE, ONE_SERVER = 0, 3, 6  # and of amounts, where three resources of each begin
RESOURCES = 3


class Division(NamedTuple):
    """A time slot that is being divided among jobs (rows): what is free, and what each job has got so far."""

    counts: Any  # [job, 4]
    amounts: Any  # [job, 9]
    free: Any  # [3] GPUs, CPUs, memory
    used: Any  # [job, 3]
    workers: Any  # [job]
    servers: Any
    order: Any  # [job] how many jobs were served before its first grant; the number of jobs if it had none


@kernel
def possible(division: Division, j: int, what: int) -> bool:
    """Return whether job j may have this unit, and whether there is room for it."""
    more = division.workers[j] > 0
    if what != SERVER and division.workers[j] >= division.counts[j, HIGH]:
        return False
    if what != WORKER and division.servers[j] >= division.counts[j, MOST]:
        return False
    at = ONE_MORE if more else FIRST
    for r in range(RESOURCES):
        need = 0.0
        if what != SERVER:
            need += division.amounts[j, at + r]
        if what != WORKER:
            need += division.amounts[j, ONE_SERVER + r]
        if need > division.free[r]:
            return False
    return True


@kernel
def take(division: Division, j: int, what: int) -> None:
    """Grant job j a unit."""
    amounts, free, used, workers = division.amounts, division.free, division.used, division.workers
    if what != SERVER:
        at = ONE_MORE if workers[j] > 0 else FIRST
        for r in range(RESOURCES):
            free[r] -= amounts[j, at + r]
            used[j, r] += amounts[j, at + r]
        workers[j] = workers[j] + 1 if workers[j] > 0 else division.counts[j, LOW]
    if what != WORKER:
        for r in range(RESOURCES):
            free[r] -= amounts[j, ONE_SERVER + r]
            used[j, r] += amounts[j, ONE_SERVER + r]
        division.servers[j] += 1


@kernel
def smallest(division: Division, j: int) -> int:
    """Return the unit that makes a job run which holds nothing yet."""
    return BOTH if division.counts[j, MOST] > 0 else WORKER


@kernel
def serve(division: Division, first: Any) -> int:
    """Grant the jobs marked in `first` their smallest size, in the order of the rows; return how many got it."""
    turn, n = 0, len(division.order)
    for j in range(n):
        division.order[j] = n
        if first[j]:
            what = smallest(division, j)
            if possible(division, j, what):
                take(division, j, what)
                division.order[j] = turn
                turn += 1
    return turn
