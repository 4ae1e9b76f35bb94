"""Tiresias' orders as compiled code that a run calls without coming back to Python: see `CompiledOrder`.

The queues are arranged by the same function as in queues.py; the rules of the authors' simulator are written here a
second time, because authors.py, which says what they mean, works with whole columns and dictionaries. A test compares
every event of both.

A function gets addresses and not arrays. Its memory is one array: a few numbers, then what does not change, then what
is remembered of each job.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter
from typing import Any

import numpy as np

from argosy._by_address import floats_at
from argosy._jit import kernel
from argosy.policies.base import CompiledOrder, Floats
from argosy.policies.tiresias.queues import COLUMNS, REMEMBERED, Queues, arrange, nothing_known
from argosy.slack import RESOURCE_SLACK, TIMER_SLACK_S

# -- queues --------------------------------------------------------------------------------------------------------

READ_BY_QUEUES = ("index", "submitted", "gpus", "attained", "executed_s", "started", "state")
PROMOTE, LIMITS_N, GUESS, SEEN_JOBS, SEEN_RUNNING, SEEN_FREE = range(6)
QUEUES_HEAD = 6


def order_by_queues(limits: Floats, promote: float, jobs: int, queues: Queues) -> CompiledOrder:
    """Return the compiled form of the order in queues.py, for a run of `jobs` jobs; it goes on from these queues."""
    last = len(limits)
    known, guess, seen = queues.remembered
    remembered = nothing_known(max(jobs, len(known)))
    remembered[: len(known)] = known
    head = np.array([promote, last, guess, *seen], np.float64)
    memory = np.concatenate([head, limits, np.zeros(2 * (last + 1)), remembered.ravel()])
    return CompiledOrder(by_queues, READ_BY_QUEUES, memory)


arrange_rows = kernel(arrange)


def by_queues(
    columns_at: int, stride: int, jobs: int, memory_at: int, size: int, free: int, running: int, now: float
) -> float:
    memory = floats_at(memory_at, 1, size)[0]
    last = int(memory[LIMITS_N])
    limits_end, room_end = QUEUES_HEAD + last, QUEUES_HEAD + last + 2 * (last + 1)
    known = (size - room_end) // REMEMBERED
    columns = floats_at(columns_at, COLUMNS, stride)
    remembered = floats_at(memory_at + 8 * room_end, known, REMEMBERED)
    room = floats_at(memory_at + 8 * limits_end, 2, last + 1)
    seen = memory[SEEN_JOBS] == jobs and memory[SEEN_RUNNING] == running and memory[SEEN_FREE] == free
    quiet = seen and now == memory[GUESS]
    limits = memory[QUEUES_HEAD:limits_end]
    wake, maybe = arrange_rows(now, free, quiet, memory[PROMOTE], limits, jobs, columns, remembered, room)
    memory[GUESS] = maybe if maybe < wake else -1.0
    memory[SEEN_JOBS], memory[SEEN_RUNNING], memory[SEEN_FREE] = jobs, running, free
    wake = min(wake, maybe)
    return inf if wake == inf or running == jobs else max(wake, nextafter(now, inf))


# -- the authors' rules --------------------------------------------------------------------------------------------

READ_BY_AUTHORS = ("index", "gpus", "executed_s", "state", "held")
INDEX, GPUS, EXECUTED_S, STATE, HELD, KEY, FIRST, SECOND = range(8)  # rows of the block; the last two are scratch
JOBS_N, TABLE_N, LISTED_N = range(3)
AUTHORS_HEAD = 3
ROW, QUEUE, LIST = range(3)  # of each job: its row now, its queue (-1: it is new); and the jobs in their order
KEPT = 3


def order_by_authors_queues(limits: Floats, jobs: int) -> CompiledOrder:
    return _of_authors(by_authors_queues, np.append(limits, inf), jobs)


def order_by_authors_gittins(samples: Floats, index: Floats, jobs: int) -> CompiledOrder:
    """`index` has one more entry than `samples`."""
    return _of_authors(by_authors_gittins, np.concatenate([samples, index]), jobs)


def _of_authors(function: Callable[..., float], table: Floats, jobs: int) -> CompiledOrder:
    kept = np.zeros((KEPT, jobs))
    kept[:LIST] = -1.0
    memory = np.concatenate([[float(jobs), float(len(table)), 0.0], table, kept.ravel()])
    return CompiledOrder(function, READ_BY_AUTHORS, memory)


@kernel
def list_jobs(columns: Any, jobs: int, kept: Any, listed: int) -> int:
    """Write the rows of known jobs, in their order, then of new ones, by index, to FIRST; return how many are known."""
    row_of, queue, order, rows = kept[ROW], kept[QUEUE], kept[LIST], columns[FIRST]
    for row in range(jobs):
        row_of[int(columns[INDEX, row])] = row
    known = 0
    for i in range(listed):
        row = int(row_of[int(order[i])])
        if row < jobs and columns[INDEX, row] == order[i]:  # else the job has ended
            rows[known] = row
            known += 1
    n = known
    for row in range(jobs):
        if queue[int(columns[INDEX, row])] < 0.0:
            n = insert_by_index(columns, rows, known, n, row)
    return known


@kernel
def insert_by_index(columns: Any, rows: Any, first: int, n: int, row: int) -> int:
    """Insert a row among rows[first:n], which are sorted by the index of the job."""
    at = n
    while at > first and columns[INDEX, int(rows[at - 1])] > columns[INDEX, row]:
        rows[at] = rows[at - 1]
        at -= 1
    rows[at] = row
    return n + 1


@kernel
def serve(columns: Any, jobs: int, order: Any, free: int) -> None:
    """Run every job for which enough GPUs are left, in this order; the others rank behind. STATE becomes who runs."""
    left = float(free) + RESOURCE_SLACK
    for row in range(jobs):
        left += columns[HELD, row]
    for place in range(jobs):
        row = int(order[place])
        runs = columns[GPUS, row] <= left
        left -= columns[GPUS, row] if runs else 0.0
        columns[STATE, row] = 1.0 if runs else 0.0
        columns[KEY, row] = place if runs else place + jobs


@kernel
def keep(columns: Any, jobs: int, order: Any, kept: Any) -> None:
    for place in range(jobs):
        kept[LIST, place] = columns[INDEX, int(order[place])]


def by_authors_queues(
    columns_at: int, stride: int, jobs: int, memory_at: int, size: int, free: int, running: int, now: float
) -> float:
    memory = floats_at(memory_at, 1, size)[0]
    last = int(memory[TABLE_N]) - 1
    limits = memory[AUTHORS_HEAD : AUTHORS_HEAD + last + 1]
    kept = floats_at(memory_at + 8 * (AUTHORS_HEAD + last + 1), KEPT, int(memory[JOBS_N]))
    columns = floats_at(columns_at, SECOND + 1, stride)
    rows, order, queue = columns[FIRST], columns[SECOND], kept[QUEUE]
    known = list_jobs(columns, jobs, kept, int(memory[LISTED_N]))
    moved, going = 0, 0  # jobs that go to the end of a queue are collected behind the others, by index
    for i in range(known):
        row = int(rows[i])
        job = int(columns[INDEX, row])
        ran = np.floor(columns[EXECUTED_S, row] + TIMER_SLACK_S)
        if columns[STATE, row] == 1.0 and ran * columns[GPUS, row] >= limits[int(queue[job])]:
            queue[job] += 1.0
            columns[KEY, row] = 1.0  # it is appended
            moved += 1
        else:
            columns[KEY, row] = 0.0
            rows[going] = row
            going += 1
    for i in range(known, jobs):  # new jobs
        row = int(rows[i])
        queue[int(columns[INDEX, row])] = 0.0
        columns[KEY, row] = 1.0
        rows[going + i - known] = row
    if moved:
        n = going + jobs - known
        for row in range(jobs):
            if columns[KEY, row] == 1.0 and queue[int(columns[INDEX, row])] > 0.0:
                n = insert_by_index(columns, rows, going, n, row)
    place = 0
    for q in range(last + 1):
        for part in range(2):  # running jobs first
            for i in range(going):
                row = int(rows[i])
                if queue[int(columns[INDEX, row])] == q and (columns[STATE, row] == 1.0) == (part == 0):
                    order[place] = row
                    place += 1
        for i in range(going, jobs):
            if queue[int(columns[INDEX, int(rows[i])])] == q:
                order[place] = rows[i]
                place += 1
    keep(columns, jobs, order, kept)
    memory[LISTED_N] = jobs
    serve(columns, jobs, order, free)
    soonest = inf
    for row in range(jobs):
        q, gpus = int(queue[int(columns[INDEX, row])]), columns[GPUS, row]
        if columns[STATE, row] == 1.0 and q < last and gpus > 0.0:
            left = limits[q] - np.floor(columns[EXECUTED_S, row] + TIMER_SLACK_S)
            soonest = min(soonest, max(left // gpus, 1.0))
    return now + soonest


def by_authors_gittins(
    columns_at: int, stride: int, jobs: int, memory_at: int, size: int, free: int, running: int, now: float
) -> float:
    memory = floats_at(memory_at, 1, size)[0]
    table = int(memory[TABLE_N])
    samples = memory[AUTHORS_HEAD : AUTHORS_HEAD + table // 2]
    index = memory[AUTHORS_HEAD + table // 2 : AUTHORS_HEAD + table]
    kept = floats_at(memory_at + 8 * (AUTHORS_HEAD + table), KEPT, int(memory[JOBS_N]))
    columns = floats_at(columns_at, SECOND + 1, stride)
    rows, other, key = columns[FIRST], columns[SECOND], columns[KEY]
    list_jobs(columns, jobs, kept, int(memory[LISTED_N]))
    for row in range(jobs):
        scale = columns[GPUS, row] if columns[STATE, row] == 1.0 else 1.0
        age = np.floor(columns[EXECUTED_S, row] + TIMER_SLACK_S) * scale
        key[row] = -index[np.searchsorted(samples, age, "right")]
        kept[QUEUE, int(columns[INDEX, row])] = 0.0
    width = 1
    while width < jobs:  # merging keeps the order of equal jobs
        for low in range(0, jobs, 2 * width):
            i, middle, high = low, min(low + width, jobs), min(low + 2 * width, jobs)
            j = middle
            for k in range(low, high):
                if j >= high or (i < middle and key[int(rows[i])] <= key[int(rows[j])]):
                    other[k] = rows[i]
                    i += 1
                else:
                    other[k] = rows[j]
                    j += 1
        for k in range(jobs):
            rows[k] = other[k]
        width *= 2
    keep(columns, jobs, rows, kept)
    memory[LISTED_N] = jobs
    serve(columns, jobs, rows, free)
    return inf
