"""Progressive filling: one unit at a time goes to the job with the smallest share.

Granting every unit by a heap operation would take thousands of them per decision on a large cluster. Most grants cannot
be refused, because everything granted up to some share fits together: those are found in one go, by bisection on that
share, and only the rest is granted one by one.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

import numpy as np

from argosy.policies.base import Floats, Ints
from argosy.slack import GPU_SLACK

HALVINGS = 30
DIGITS = 12  # shares are compared after rounding to these digits, so that 3 · 1/9 equals 1/3 and arrival decides


def fill(
    capacity: Floats,
    there: Floats,
    first: Floats,
    step: Floats,
    most: Ints,
    weight: Floats,
    *,
    stop_at_refusal: bool = False,
) -> Ints:
    """Return how many grants each job gets; jobs are columns, in order of arrival, and the three resources are rows.

    Shares are relative to `capacity`; grants are taken from `there`. The first grant of job j is `first[:, j]`, each
    further one is `step[:, j]`, and the job gets at most `most[j]` grants. Of jobs with equal shares the earlier one is
    next. A job that is refused gets no more; with `stop_at_refusal`, the first refusal ends the filling.
    """
    per_share = np.divide(1.0, capacity, out=np.zeros(3), where=capacity > 0)[:, None] / weight
    start, rise = first * per_share, step * per_share  # share after the first grant; what a further one adds
    a, b, c = (there + GPU_SLACK * capacity).tolist()
    grants = np.zeros(len(most), np.int64)
    for j, (x, y, z) in enumerate(zip(*first.tolist())):  # at first all shares are 0
        if x <= a and y <= b and z <= c:
            a, b, c = a - x, b - y, c - z
            grants[j] = 1
        elif stop_at_refusal:
            return grants
    jobs = np.flatnonzero((grants > 0) & (most > 1))
    if not len(jobs):
        return grants
    start, rise, step, limit = start[:, jobs], rise[:, jobs], step[:, jobs], most[jobs] - 1
    more = fill_together(np.array([a, b, c]), start, rise, step, limit)
    free = np.array([a, b, c]) - step @ more
    grants[jobs] += more + fill_singly(free, start, rise, step, limit, more, stop_at_refusal)
    return grants


def fill_together(free: Floats, start: Floats, rise: Floats, step: Floats, limit: Ints) -> Ints:
    """Return the further grants of each job up to (nearly) the highest share at which all of them still fit."""
    per_rise = np.divide(1.0, rise, out=np.full(rise.shape, 1e300), where=rise > 0)

    def grants_below(share: float) -> Ints:
        steps = np.floor(((share - start) * per_rise).min(axis=0)) + 1
        return np.asarray(np.clip(steps, 0, limit), np.int64)

    low, high = 0.0, float((start + rise * limit).max())
    if np.all(step @ limit <= free):
        return limit
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if np.all(step @ grants_below(middle) <= free):
            low = middle
        else:
            high = middle
    return grants_below(low * (1.0 - GPU_SLACK))


def fill_singly(
    free: Floats, start: Floats, rise: Floats, step: Floats, limit: Ints, given: Ints, stop_at_refusal: bool
) -> Ints:
    """Return what each job gets beyond `given`, one grant at a time."""
    a, b, c = free.tolist()
    shares = (start + rise * given).max(axis=0).round(DIGITS).tolist()
    # one list per resource: thousands of small lists would trigger the garbage collector, which costs more than this
    (s0, s1, s2), (r0, r1, r2), (d0, d1, d2) = start.tolist(), rise.tolist(), step.tolist()
    limits, taken = limit.tolist(), given.tolist()
    heap = [(share, j) for j, share in enumerate(shares) if taken[j] < limits[j]]
    heapify(heap)
    while heap:
        j = heap[0][1]
        if d0[j] <= a and d1[j] <= b and d2[j] <= c:
            a, b, c = a - d0[j], b - d1[j], c - d2[j]
            n = taken[j] = taken[j] + 1
            if n < limits[j]:
                share = max(s0[j] + n * r0[j], s1[j] + n * r1[j], s2[j] + n * r2[j])
                heapreplace(heap, (round(share, DIGITS), j))
                continue
        elif stop_at_refusal:
            break
        heappop(heap)
    return np.array(taken, np.int64) - given
