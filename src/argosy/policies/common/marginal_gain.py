"""Grant units one by one, each to the job for which it saves the most time.

A job's *times* are a table [servers][workers] of the time that one unit of its work takes; an all-reduce job has a
table of one row. Its gain from one more worker or server is the time that the unit saves on all the work left, divided
by what the unit costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np
from numpy.typing import NDArray

from argosy.policies.base import Floats

Times = Sequence[Sequence[float]]  # [servers][workers]

ENDLESS = 1e15  # time for a unit of work at speed 0; finite, so that differences are numbers
WORKER, SERVER = 0, 1


@dataclass(slots=True)
class Bidder:
    """A job that may get more workers or servers."""

    times: Times
    work: float
    workers: int
    servers: int
    most_workers: int
    most_servers: int
    worker: tuple[float, float, float]  # what one worker takes: GPUs, CPUs, memory
    server: tuple[float, float, float]
    worker_price: float = 1.0
    server_price: float = 1.0

    def gain(self) -> tuple[float, int]:
        """Return the larger gain of one more worker and one more server, and which it is (ties: the server)."""
        p, w = self.servers, self.workers
        row = self.times[p]
        now = row[w]
        by_worker = self.work * (now - row[w + 1]) / self.worker_price if w < self.most_workers else -1.0
        by_server = self.work * (now - self.times[p + 1][w]) / self.server_price if p < self.most_servers else -1.0
        return (by_server, SERVER) if by_server >= by_worker else (by_worker, WORKER)


def grant(bidders: Sequence[Bidder], free: Floats, *, stop_at_refusal: bool = False) -> None:
    """Grant free resources, unit by unit, to the bidder that gains most (ties: the earlier one), while any gains.

    A unit that does not fit now will not fit later either: from then on the job bids for the other kind only, or, with
    `stop_at_refusal`, granting ends.
    """
    a, b, c = free.tolist()
    heap = []
    for i, bidder in enumerate(bidders):
        value, unit = bidder.gain()
        if value > 0:
            heap.append((-value, i, unit))
    heapify(heap)
    while heap:
        _, i, unit = heap[0]
        bidder = bidders[i]
        x, y, z = bidder.worker if unit == WORKER else bidder.server
        if x <= a and y <= b and z <= c:
            a, b, c = a - x, b - y, c - z
            if unit == WORKER:
                bidder.workers += 1
            else:
                bidder.servers += 1
        elif stop_at_refusal:
            return
        elif unit == WORKER:
            bidder.most_workers = bidder.workers
        else:
            bidder.most_servers = bidder.servers
        value, unit = bidder.gain()
        if value > 0:
            heapreplace(heap, (-value, i, unit))
        else:
            heappop(heap)


def first_units(first: Floats, free: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Make the first grants (columns, in order of arrival) that fit; return which were made, and what is left."""
    a, b, c = free.tolist()
    served = np.zeros(first.shape[1], bool)
    for j, (x, y, z) in enumerate(first.T.tolist()):
        if x <= a and y <= b and z <= c:
            a, b, c = a - x, b - y, c - z
            served[j] = True
    return served, np.array([a, b, c])


def time_per_unit(rate: Floats) -> Floats:
    """Return the time per unit of work at a speed; `ENDLESS` where the speed is 0."""
    return np.asarray(np.divide(1.0, rate, out=np.full(rate.shape, ENDLESS), where=rate > 1.0 / ENDLESS))
