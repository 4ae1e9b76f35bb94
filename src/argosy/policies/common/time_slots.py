"""Between two slots: what runs stays as it is, and newcomers wait, or start small on what is free."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.policies.base import Floats, Sizes
from argosy.policies.common.demands import DemandReader
from argosy.policies.common.sizes import current_sizes

NEWCOMERS = ("start", "wait")
SLACK = 1e-9  # a slot that begins now has begun


def slot_at(now: float, slot_s: float) -> int:
    return int(now / slot_s + SLACK)


def check_slots(policy: str, slot_s: float, newcomers: str) -> None:
    if not 0 < slot_s < np.inf:
        raise InputError(f"{policy}: slot_s must be a time > 0, is {slot_s}")
    if newcomers not in NEWCOMERS:
        raise InputError(f"{policy}: newcomers must be one of {', '.join(NEWCOMERS)}, is {newcomers!r}")


def between_slots(view: View, demand_reader: DemandReader, newcomers: str) -> tuple[Floats, Sizes]:
    """Ranks and sizes; who starts has the smallest size at which he runs, in the order of arrival."""
    jobs, kept = view.jobs, current_sizes(view)
    if newcomers == "wait" or not view.waiting:
        return jobs.submitted, kept
    needs = demand_reader.read(view, np.arange(len(jobs)))
    waits = jobs.state == 0
    smallest = np.where(needs.servers > 0, 1, needs.fixed)
    sizes = Sizes(np.where(waits, needs.low, kept.workers), np.where(waits, smallest, jobs.servers))
    return np.where(waits, jobs.submitted, -1.0), sizes
