"""DL2's time slots: sizes are decided at the beginning of each.

Between two of them running jobs stay as they are, and new jobs wait, or start small on free GPUs.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.policies.base import Floats, Sizes
from argosy.policies.common.demands import DemandReader
from argosy.policies.common.sizes import current_sizes

NEWCOMERS = ("start", "wait")
SLACK = 1e-9  # against rounding, in time slots: one that begins now has begun


def slot_at(now: float, slot_s: float) -> int:
    """Return the number of the time slot that a time is in."""
    return int(now / slot_s + SLACK)


def check_slots(policy: str, slot_s: float, newcomers: str) -> None:
    """Raise InputError if a policy's parameters `slot_s` and `newcomers` are not valid."""
    if not 0 < slot_s < np.inf:
        raise InputError(f"{policy}: slot_s must be a time > 0, is {slot_s}")
    if newcomers not in NEWCOMERS:
        raise InputError(f"{policy}: newcomers must be one of {', '.join(NEWCOMERS)}, is {newcomers!r}")


def between_slots(view: View, demand_reader: DemandReader, newcomers: str) -> tuple[Floats, Sizes]:
    """Return ranks and sizes; jobs that start have the smallest size at which they run, in the order of arrival."""
    jobs, kept = view.jobs, current_sizes(view)
    if newcomers == "wait" or not view.waiting:
        return jobs.submitted, kept
    needs = demand_reader.read(view, np.arange(len(jobs)))
    waits = jobs.state == 0
    smallest = np.where(needs.servers > 0, 1, needs.fixed)
    sizes = Sizes(np.where(waits, needs.low, kept.workers), np.where(waits, smallest, jobs.servers))
    return np.where(waits, jobs.submitted, -1.0), sizes
