"""A fast check of bids, in compiled code. What is wrong with them, `argosy.mechanism.bids` says."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point

WRONG, UNSORTED, RIGHT = range(3)
ANY_TYPE = -1  # argosy.mechanism.bids


@entry_point
def look_at_bids(
    job: Any,
    gpu_type: Any,
    workers: Any,
    servers: Any,
    partner: Any,
    value: Any,
    jobs: int,
    types: int,
    asked: Any,
    low: Any,
    high: Any,
    accepted: Any,
) -> int:
    """Return whether the bids are right, and the bids of each job next to each other (otherwise `UNSORTED`).

    `asked`, `low`, `high` and `accepted` are what each of the `jobs` asks for: GPUs, their range and GPU types.
    """
    found = RIGHT
    for b in range(len(job)):
        j, t = job[b], gpu_type[b]
        if not (0 <= j < jobs and ANY_TYPE <= t < types and np.isfinite(value[b])):
            return WRONG
        if servers[b] < 0 or not -1 <= partner[b] < jobs or partner[b] == j:
            return WRONG
        if asked[j] >= 1.0:
            if workers[b] < 1 or workers[b] < low[j] or workers[b] > max(high[j], 1.0):
                return WRONG
        elif workers[b] != 1:
            return WRONG
        if t >= 0 and accepted[j] >> t & 1 == 0:
            return WRONG
        if b > 0 and job[b - 1] > j:
            found = UNSORTED
    return found
