"""The compiled part of rounds: which jobs are there, what each received, and which run next.

A *row* is a job, or a pair of jobs that share their GPUs; a pair names the rows of its two members, a job names its own
row twice. Rows of jobs are in order of arrival. A *column* is a GPU type, or one of several ways to use it.

    priority(r, c) = X(r, c) / (time r received on c / time of all on c)       rows are taken by (priority, deficit, X)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.mechanism.kernels.layout import AFTERWARDS, IN_PLACE, NEEDS_NO_TURN, NO_ROW
from argosy.slack import GPU_SLACK

NEW = 1e9  # factor for rows that have received nothing: they come first, in proportion to their shares


@entry_point
def observe(
    index: Any,
    where: Any,
    slot: Any,
    alive: Any,
    members: Any,
    running: Any,
    received: Any,
    total: Any,
    rows: int,
    span: float,
) -> tuple[int, int, int]:
    """Credit the rows that ran, and compare with the view; return newcomers, jobs that left, rows that go on.

    `slot` becomes the row of the view of each job; the rows of newcomers follow, from `slot[rows]` on.
    """
    for r in range(rows):
        c = running[r]
        if c >= 0:
            received[r, c] += span
            total[c] += span
        slot[r] = NO_ROW
    new = 0
    for i in range(len(index)):
        job = index[i]
        r = where[job] if job < len(where) else NO_ROW
        if r >= 0:
            slot[r] = i
        elif r == NO_ROW:
            slot[rows + new] = i
            new += 1
    left = 0
    for r in range(rows):
        if members[r, 0] == members[r, 1] and alive[r] and slot[r] < 0:
            alive[r] = False
            running[r] = NO_ROW
            left += 1
    going_on = 0
    for r in range(rows):
        a, b = members[r, 0], members[r, 1]
        if alive[r] and not (alive[a] and alive[b]):
            if running[r] >= 0 and (alive[a] or alive[b]):  # the job that stays has the GPUs alone for this round
                running[a if alive[a] else b] = running[r]
            alive[r] = False
            running[r] = NO_ROW
    for r in range(rows):
        going_on += running[r] >= 0
    return new, left, going_on


@kernel
def before(a: int, b: int, priority: Any, deficit: Any, share: Any) -> bool:
    """Return whether row a comes before row b, which is later in the order of arrival."""
    if priority[a] != priority[b]:
        return bool(priority[a] > priority[b])
    if deficit[a] != deficit[b]:
        return bool(deficit[a] > deficit[b])
    return bool(share[a] >= share[b])


@kernel
def sort_rows(order: Any, spare: Any, n: int, priority: Any, deficit: Any, share: Any) -> None:
    """Sort order[:n] by merging, which keeps the order of equal rows."""
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for k in range(low, high):
                if j >= high or (i < middle and before(order[i], order[j], priority, deficit, share)):
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        for k in range(n):
            order[k] = spare[k]
        width *= 2


@kernel
def take(
    r: int,
    c: int,
    t: int,
    size: Any,
    queue: Any,
    members: Any,
    room: Any,
    own: Any,
    allowed: Any,
    taken: Any,
    running: Any,
    has_share: Any,
    idle_new: bool,
) -> bool:
    """Let row r run on column c, if there are GPUs of type t left for it."""
    a, b, q, need = members[r, 0], members[r, 1], queue[r], size[r]
    if need > room[t] + own[q, t] + GPU_SLACK or need > allowed[q] + GPU_SLACK:
        return False
    reserved = min(own[q, t], need)
    own[q, t] -= reserved
    room[t] -= need - reserved
    allowed[q] -= need
    taken[a], taken[b] = True, True
    if has_share[r] or not idle_new:
        running[r] = c
    return True


@entry_point
def select(
    members: Any,
    size: Any,
    queue: Any,
    share: Any,
    received: Any,
    deficit: Any,
    works: Any,
    rate: Any,
    alive: Any,
    has_share: Any,
    running: Any,
    pace: Any,
    total: Any,
    columns: Any,
    column_type: Any,
    common: Any,
    reserved: Any,
    limit: Any,
    room: Any,
    own: Any,
    allowed: Any,
    taken: Any,
    priority: Any,
    order: Any,
    spare: Any,
    rows: int,
    leftovers: int,
    idle_new: bool,
    fresh: bool,
    round_s: float,
) -> tuple[bool, int, float]:
    """Choose the rows that run; those that run already keep their turn, unless the round is `fresh`.

    Return whether the choice did not depend on priorities, how many rows run, and the length of the whole steps that
    fit into a round, for the row whose steps fill it best.

    Columns are filled in the given order. What is left goes to rows without a share there, as `leftovers` says:
    IN_PLACE column by column after the others; AFTERWARDS in the order of their deficits, each on the column where
    its rate is best. With `idle_new`, jobs that have no allocation yet may be chosen, and their GPUs then stay idle.
    """
    for t in range(len(room)):
        room[t] = common[t]
    for q in range(len(allowed)):
        allowed[q] = limit[q]
        for t in range(own.shape[1]):
            own[q, t] = reserved[q, t]
    for r in range(rows):
        taken[r] = False
        if fresh:
            running[r] = NO_ROW
    for r in range(rows):
        c = running[r]
        if c >= 0:
            need, t, q = size[r], column_type[c], queue[r]
            mine = min(own[q, t], need)
            own[q, t] -= mine
            room[t] -= need - mine
            allowed[q] -= need
            taken[members[r, 0]], taken[members[r, 1]] = True, True
    settled = True
    for c in columns:
        t = column_type[c]
        n = 0
        for r in range(rows):
            if not alive[r] or taken[members[r, 0]] or taken[members[r, 1]] or not works[r, c]:
                continue
            x = share[r, c] if has_share[r] else 0.0
            f = received[r, c] / total[c] if total[c] > 0.0 else 0.0
            priority[r] = x / f if f > 0.0 else x * NEW
            if x > 0.0 or (leftovers == IN_PLACE and members[r, 0] == members[r, 1]):
                order[n] = r
                n += 1
        sort_rows(order, spare, n, priority, deficit[:, c], share[:, c])
        for i in range(n):
            r = order[i]
            if taken[members[r, 0]] or taken[members[r, 1]]:
                continue
            done = take(r, c, t, size, queue, members, room, own, allowed, taken, running, has_share, idle_new)
            settled = settled and (done or priority[r] <= 0.0)
    if leftovers == AFTERWARDS:
        n = 0
        for r in range(rows):
            if members[r, 0] == members[r, 1] and alive[r] and not taken[r]:
                priority[r] = 0.0
                for c in range(deficit.shape[1]):
                    priority[r] += deficit[r, c]
                order[n] = r
                n += 1
        sort_rows(order, spare, n, priority, priority, priority)
        for i in range(n):
            r = order[i]
            while not taken[r]:
                best = NO_ROW
                for c in columns:
                    t = column_type[c]
                    fits = size[r] <= room[t] + own[queue[r], t] + GPU_SLACK
                    if fits and works[r, c] and (best < 0 or rate[r, c] > rate[r, best]):
                        best = c
                if best < 0 or not take(
                    r,
                    best,
                    column_type[best],
                    size,
                    queue,
                    members,
                    room,
                    own,
                    allowed,
                    taken,
                    running,
                    has_share,
                    idle_new,
                ):
                    break
    n, longest = 0, 0.0
    for r in range(rows):
        c = running[r]
        if c >= 0:
            n += 1
            if pace[r, c] > 0.0:
                longest = max(longest, np.floor(pace[r, c] * round_s) / pace[r, c])
    return bool(settled), n, longest


@entry_point
def answer(
    index: Any,
    where: Any,
    slot: Any,
    members: Any,
    running: Any,
    size: Any,
    column_type: Any,
    key: Any,
    workers: Any,
    types: Any,
    rows: int,
) -> None:
    """Fill in the rank, the size and the GPU type of each job; large jobs come first."""
    for i in range(len(index)):
        always = where[index[i]] == NEEDS_NO_TURN
        key[i], workers[i], types[i] = (-1e18, 1, -1) if always else (1e18, 0, -1)
    for r in range(rows):
        c = running[r]
        if c >= 0:
            for a in members[r]:
                i = slot[a]
                key[i], workers[i], types[i] = -size[r], max(1, int(size[r])), 1 << column_type[c]
