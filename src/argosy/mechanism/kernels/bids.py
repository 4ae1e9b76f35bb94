"""Bids: choosing among them, and writing the choice as keys, sizes and GPU types for the walk.

Jobs that may not be taken now (they have just started, hold a lease, take turns or are packed) keep what they have, and
the others bid for the rest. In the walk those come first that keep their place, then winners by value per GPU, then
running jobs that won nothing: they give way before the walk, and go on if their place is still free. Waiting jobs that
won nothing fill up what is left; if they find nothing either, they may share GPUs with the partner that a bid names.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.sorting import sort_down
from argosy.mechanism.kernels.winners import take_best
from argosy.slack import RELATIVE_SLACK, RESOURCE_SLACK, TIME_SLACK_S

GPU, CPU, RAM, LIMIT = range(4)  # the resources of a row
TINY = 1e-12
KEEPS_PLACE, STAYS, CHANGES, GIVES_WAY, FILLS_UP, NOT_WANTED = range(6)  # in the order of the walk


@partial(entry_point, allocates=True)
def carry_out_bids(
    jf: F1,
    ji: I1,
    nf: F1,
    ni: I1,
    sf: F1,
    si: I1,
    qu: F1,
    job: I1,
    of_type: I1,
    workers: I1,
    servers: I1,
    value: F1,
    partner: I1,
    taken: I1,
    prices: F1,
    place: int,
) -> tuple[float, float]:
    """Take the bids that are worth most together, and write what the walk needs; return the worth and its bound.

    The bids of a job follow each other. `partner` has the row of the job whose GPUs a bid shares, -1 for own ones.
    `taken` gets each job's bid, -1 for none; `prices` those of a GPU of each type.
    `place` says how jobs are placed, -1: as the run's settings say.
    """
    n, types, queues, rows = si[ACTIVE], si[TYPES_N], qu.shape[1], len(job)
    room = np.zeros(3 * types + queues)
    protected = np.zeros(n, np.bool_)
    find_room(jf, ji, nf, ni, sf, si, qu, protected, room)
    first, kept = np.zeros(n + 1, np.int64), np.empty(rows, np.int64)
    use, resource, worth = np.empty((rows, 4)), np.empty((rows, 4), np.int64), np.empty(rows)
    count = 0
    for r in range(rows):
        s, t = job[r], of_type[r]
        if t < 0 or protected[s] or value[r] <= 0.0 or partner[r] >= 0:
            continue
        units = float(workers[r] + servers[r]) if jf[GPUS, s] >= 1.0 else 1.0
        gpus = gpus_of(jf, s, workers[r])
        fits = True
        for k in range(4):
            at = 3 * t + k if k < LIMIT else 3 * types + ji[QUEUE, s]
            amount = gpus if k in (GPU, LIMIT) else units * (jf[CPU_UNIT, s] if k == CPU else jf[MEM_UNIT, s])
            share = 0.0
            if amount > 0.0 and room[at] < np.inf:
                share = amount / max(room[at], TINY)
            fits = fits and share <= 1.0 + RELATIVE_SLACK
            use[count, k], resource[count, k] = share, at
        if fits:
            worth[count], kept[count] = value[r], r
            first[s + 1] += 1
            count += 1
    for s in range(n):
        first[s + 1] += first[s]
    cost = np.zeros(len(room))
    found, bound = take_best(first, worth[:count], use[:count], resource[:count], len(room), cost, taken)
    for s in range(n):
        if taken[s] >= 0:
            taken[s] = kept[taken[s]]
    for t in range(types):
        prices[t] = cost[3 * t] / max(room[3 * t], TINY)
    write(jf, ji, si, job, of_type, workers, servers, value, partner, taken, protected)
    if si[PACKS]:
        shared = take_partners(jf, ji, si, job, value, partner, taken)
        found, bound = found + shared, bound + shared
    rooms = np.zeros(si[MAX_NODE_GPUS] + 1, np.int64)
    for s in range(n):
        strictly = place >= 0 and fits_strictly(jf, ji, nf, ni, si, s, rooms)
        ji[WANT_PLACE, s] = place if place < 0 or strictly else place & (PLACE_STRICTLY - 1)
    si[PLACES] = place >= 0
    return found, bound


@kernel
def gpus_of(jf: F1, s: int, workers: int) -> float:
    """Return the GPUs of a bid for so many workers."""
    return float(workers) if jf[GPUS, s] >= 1.0 else jf[GPUS, s]


@kernel
def fits_strictly(jf: F1, ji: I1, nf: F1, ni: I1, si: I1, s: int, rooms: I1) -> bool:
    """Return whether the empty nodes open to a job hold its bid on as few nodes as the largest of them would need.

    On a cluster of uneven nodes this may be false; such a job would wait for ever if it were placed strictly.
    """
    gpus = ji[WANT, s]
    if jf[GPUS, s] < 1.0 or gpus <= 1:
        return True
    largest = 1
    rooms[:] = 0
    for node in range(si[NODES]):
        if ni[N_OWNER, node] not in (-1, ji[QUEUE, s]) or not (ji[WANT_TYPES, s] >> ni[N_TYPE, node]) & 1:
            continue
        here = ni[N_GPUS, node]
        largest = max(largest, here)
        if jf[CPU_UNIT, s] > 0.0:
            here = min(here, int((nf[CPU_TOTAL, node] + RESOURCE_SLACK) / jf[CPU_UNIT, s]))
        if jf[MEM_UNIT, s] > 0.0:
            here = min(here, int((nf[MEM_TOTAL, node] + RESOURCE_SLACK) / jf[MEM_UNIT, s]))
        rooms[here] += 1
    left = (gpus + largest - 1) // largest
    rest, size = gpus, len(rooms) - 1
    while left > 0 and size > 0 and rest > 0:  # the nodes with most room first
        taken = min(left, rooms[size])
        rest -= taken * size
        left -= taken
        size -= 1
    return rest <= 0


@kernel
def find_room(jf: F1, ji: I1, nf: F1, ni: I1, sf: F1, si: I1, qu: F1, protected: Any, room: F1) -> None:
    """Count the GPUs, CPUs and memory of each type, then what each queue may hold, less what is not to be taken now."""
    types = si[TYPES_N]
    for node in range(si[NODES]):
        if ni[N_STATE, node] == NODE_UP and ni[N_GPUS, node] > 0:
            t = ni[N_TYPE, node]
            room[3 * t + GPU] += ni[N_GPUS, node]
            room[3 * t + CPU] += nf[CPU_TOTAL, node]
            room[3 * t + RAM] += nf[MEM_TOTAL, node]
    for q in range(qu.shape[1]):
        room[3 * types + q] = qu[Q_LIMIT, q]
    for s in range(si[ACTIVE]):
        if ji[STATE, s] == WAITING:
            continue
        lease = jf[LEASE, s] if jf[LEASE, s] < np.inf else 0.0  # without an end: it may shrink, but is never stopped
        free_at = max(jf[STARTED, s] + max(sf[MIN_RUN], jf[KEEP_FOR, s]), lease)
        young = free_at > sf[NOW] + TIME_SLACK_S
        if young:
            sf[WAKE] = min(sf[WAKE], free_at)
        bound = ji[GROUP, s] >= 0 or ji[PEER, s] >= 0 or ji[PREEMPTIONS, s] >= si[MAX_PREEMPTIONS]
        protected[s] = young or bound
        if protected[s]:
            t = ji[HELD_TYPE, s]
            units = jf[HELD, s] + ji[PS_HELD, s] if jf[GPUS, s] >= 1.0 else 1.0
            if t >= 0:
                room[3 * t + GPU] -= jf[HELD, s]
                room[3 * t + CPU] -= units * jf[CPU_UNIT, s]
                room[3 * t + RAM] -= units * jf[MEM_UNIT, s]
            room[3 * types + ji[QUEUE, s]] -= jf[HELD, s]


@kernel
def write(
    jf: F1,
    ji: I1,
    si: I1,
    job: I1,
    of_type: I1,
    workers: I1,
    servers: I1,
    value: F1,
    partner: I1,
    taken: I1,
    protected: Any,
) -> None:
    """Write keys, sizes and types for the walk. A job that won nothing fills up with its bid of most value per GPU."""
    n, rows = si[ACTIVE], len(job)
    for s in range(n):  # nobody is wanted who did not bid
        ji[WANT, s], ji[WANT_PS, s], ji[WANT_TYPES, s], ji[YIELDS, s] = 0, 0, -1, 0
        jf[KEY, s] = -1.0  # value per GPU of the best bid so far
    for r in range(rows):
        s = job[r]
        if partner[r] >= 0:
            continue
        each = value[r] / max(gpus_of(jf, s, workers[r]), TINY)
        if taken[s] == r or (taken[s] < 0 and each > jf[KEY, s]):
            jf[KEY, s] = each
            ji[WANT, s], ji[WANT_PS, s] = workers[r], servers[r]
            ji[WANT_TYPES, s] = 1 << of_type[r] if of_type[r] >= 0 else -1
    most = 0.0
    for s in range(n):
        most = max(most, jf[KEY, s])
    for s in range(n):
        runs = ji[STATE, s] == RUNNING
        held = int(np.round(jf[HELD, s])) if jf[GPUS, s] >= 1.0 else 1
        lost = runs and taken[s] < 0 and not protected[s] and ji[WANT, s] > 0 and jf[GPUS, s] > 0.0
        keeps_core = lost and jf[LEASE, s] == np.inf
        if protected[s] or lost:
            ji[WANT, s], ji[WANT_PS, s], ji[WANT_TYPES, s] = held, ji[PS_HELD, s], -1
        if keeps_core:
            ji[WANT, s] = int(jf[MIN_GPUS, s])
        same = ji[WANT, s] == held and ji[WANT_PS, s] == ji[PS_HELD, s]
        on_type = ji[WANT_TYPES, s] == -1 or (ji[HELD_TYPE, s] >= 0 and ji[WANT_TYPES, s] >> ji[HELD_TYPE, s] & 1)
        if protected[s] or keeps_core or (jf[GPUS, s] == 0.0 and ji[WANT, s] > 0):
            place = KEEPS_PLACE
        elif lost:
            place = GIVES_WAY
            ji[YIELDS, s] = 1
        elif taken[s] >= 0:
            place = STAYS if runs and same and on_type else CHANGES
        else:
            place = FILLS_UP if ji[WANT, s] > 0 else NOT_WANTED
        each = jf[KEY, s] / max(most, TINY)  # 0..1
        jf[KEY, s] = 2.0 * place - each
    si[APPLY] = 1


@partial(kernel, allocates=True)
def take_partners(jf: F1, ji: I1, si: I1, job: I1, value: F1, partner: I1, taken: I1) -> float:
    """Let waiting jobs that won nothing share the GPUs of running ones that keep theirs; return what that is worth.

    Pairs that are worth most come first, and a job is in one pair at most. Whoever finds GPUs of its own in the walk
    does not share any.
    """
    rows = len(job)
    order, paired, worth = np.empty(rows, np.int64), np.zeros(si[ACTIVE], np.bool_), 0.0
    sort_down(value, order, rows)
    for s in range(si[ACTIVE]):
        ji[WANT_PEER, s] = -1
    for i in range(rows):
        r = order[i]
        s, host = job[r], partner[r]
        if host < 0 or value[r] <= 0.0 or taken[s] >= 0 or paired[s] or paired[host] or ji[STATE, s] != WAITING:
            continue
        keeps = ji[STATE, host] == RUNNING and jf[KEY, host] <= 2.0 * STAYS
        on_type = ji[HELD_TYPE, host] >= 0 and ji[TYPES, s] >> ji[HELD_TYPE, host] & 1
        if keeps and on_type and ji[PEER, host] < 0 and ji[GROUP, host] < 0 and jf[HELD, host] == jf[GPUS, s]:
            paired[s] = paired[host] = True
            ji[WANT_PEER, s] = ji[ID, host]
            taken[s] = r
            worth += value[r]
    return worth
