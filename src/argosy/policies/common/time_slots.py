"""DL2's time slots: sizes are decided at the beginning of each slot.

Within a slot running jobs keep their sizes, and new jobs wait, or start small on free GPUs.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.policies.base import Floats, Sizes
from argosy.policies.common.demands import DemandReader
from argosy.policies.common.sizes import current_sizes
from argosy.slack import COUNT_SLACK

NEWCOMERS = ("start", "wait")


def slot_at(now: float, slot_s: float) -> int:
    """Return the number of the time slot that a time is in."""
    return int(now / slot_s + COUNT_SLACK)


def check_slots(policy: str, slot_s: float, newcomers: str) -> None:
    """Raise InputError if a policy's parameters `slot_s` and `newcomers` are not valid."""
    if not 0 < slot_s < np.inf:
        raise InputError(f"{policy}: slot_s must be a time > 0, is {slot_s}")
    if newcomers not in NEWCOMERS:
        raise InputError(f"{policy}: newcomers must be one of {', '.join(NEWCOMERS)}, is {newcomers!r}")


def between_slots(view: View, demand_reader: DemandReader, newcomers: str) -> tuple[Floats, Sizes]:
    """Return ranks and sizes within a slot; jobs that start do so in order of arrival, at their smallest size."""
    jobs, kept = view.jobs, current_sizes(view)
    if newcomers == "wait" or not view.waiting:
        return jobs.submitted, kept
    needs = demand_reader.read(view, np.arange(len(jobs)))
    waits = jobs.state == 0
    smallest = np.where(needs.servers > 0, 1, needs.fixed)
    sizes = Sizes(np.where(waits, needs.low, kept.workers), np.where(waits, smallest, jobs.servers))
    return np.where(waits, jobs.submitted, -1.0), sizes
