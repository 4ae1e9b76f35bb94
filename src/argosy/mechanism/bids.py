"""Bids: what each (GPU type, workers, servers) is worth to each job; and which of them are taken.

A policy that bids leaves the combinatorial part to the mechanism: at most one bid of each job is taken, what is taken
fits into the cluster, and the sum of the values is as large as possible. That is a multiple-choice knapsack with
several resources: `kernels/winners.py` solves it, exactly where few jobs bid, otherwise by prices, with a bound on the
loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InvalidPlan

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ANY_TYPE = -1  # a job without GPUs, which runs on whatever node has room


@dataclass(frozen=True, slots=True)
class Bids:
    """One row for each bid. A job without a bid is not to run; values are only compared with each other."""

    job: Ints  # row of the view
    type: Ints  # number of the GPU type, `ANY_TYPE` for a job without GPUs
    workers: Ints  # GPUs; 1 for a share of one, or for a job without GPUs
    value: Floats  # above 0; the value of a job's present row should count what it costs to leave it
    servers: Ints | None = None  # parameter servers
    partner: Ints | None = None  # row of the running job whose GPUs it would share (packing), -1: GPUs of its own
    speed: Floats | None = None  # [nodes] how fast each machine is believed to be; jobs are placed on fast ones
    least_gain: Floats | None = None  # [jobs] a running job moves to machines that are faster by this factor
    because: Callable[[int], str] | None = None  # says what moved the value of a bid, for explanations
    batch: Floats | None = None  # total batch that the bid is for, of jobs with `family` >= 0; NaN leaves it as it is

    def __len__(self) -> int:
        return len(self.job)

    def by_job(self) -> Bids:
        """Return the same bids with those of a job next to each other."""
        if len(self.job) < 2 or bool((np.diff(self.job) >= 0).all()):
            return self
        order = np.argsort(self.job, kind="stable")
        servers, partner = (None if c is None else c[order] for c in (self.servers, self.partner))
        columns = (self.job[order], self.type[order], self.workers[order], self.value[order], servers, partner)
        because = None if self.because is None else _of_sorted(self.because, order)
        batch = None if self.batch is None else self.batch[order]
        return Bids(*columns, self.speed, self.least_gain, because, batch)


def _of_sorted(because: Callable[[int], str], order: Ints) -> Callable[[int], str]:
    return lambda bid: because(int(order[bid]))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which bids are taken. `bound` is at least the largest sum of values that any choice has."""

    taken: Ints  # for each job of the view the row among the bids, -1: none
    prices: Floats  # of a GPU of each type, in units of value: a bid below its price is not taken
    worth: float  # the sum of the values that are taken
    bound: float

    @property
    def gap(self) -> float:
        """Return the share of the best possible worth that may be lost, at most."""
        return max(self.bound - self.worth, 0.0) / self.bound if self.bound > 0 else 0.0


def _optional(bids: Bids) -> tuple[tuple[str, Floats | Ints | None], ...]:
    return ("servers", bids.servers), ("partner", bids.partner), ("batch", bids.batch)


def check_shapes(bids: Bids, jobs: int, nodes: int, policy: str) -> None:
    """Raise `InvalidPlan` if columns differ in length, or if what is said of machines and moves cannot be."""
    columns = {"type": bids.type, "workers": bids.workers, "value": bids.value}
    columns |= {name: c for name, c in _optional(bids) if c is not None}
    for name, column in columns.items():
        if np.shape(column) != np.shape(bids.job):
            raise InvalidPlan(f"policy {policy!r}: {np.shape(column)} of {name} in {np.shape(bids.job)} bids")

    for name, given, length in (("speed", bids.speed, nodes), ("least_gain", bids.least_gain, jobs)):
        if given is not None and np.shape(given) != (length,):
            raise InvalidPlan(f"policy {policy!r}: {name} must have {length} numbers, has {np.shape(given)}")
        if given is not None and not (np.asarray(given) > 0).all():
            raise InvalidPlan(f"policy {policy!r}: {name} must be above 0 everywhere")


def check_bids(bids: Bids, jobs: int, types: int, policy: str) -> None:
    """Raise `InvalidPlan` for bids that no cluster could carry out; sizes are checked against the jobs elsewhere."""

    def refuse(wrong: NDArray[np.bool_], what: str, column: NDArray[np.generic]) -> None:
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise InvalidPlan(
                f"policy {policy!r}: bid {at}, for the job in row {bids.job[at]}: {what}, is {column[at]}"
            )

    refuse((bids.job < 0) | (bids.job >= jobs), f"the row must be 0..{jobs - 1}", bids.job)
    refuse((bids.type < ANY_TYPE) | (bids.type >= types), f"the GPU type must be 0..{types - 1}", bids.type)
    refuse(bids.workers < 1, "workers must be 1 or more", bids.workers)
    refuse(~np.isfinite(bids.value), "the value must be a finite number", bids.value)
    if bids.servers is not None:
        refuse(bids.servers < 0, "servers must be 0 or more", bids.servers)
    if bids.partner is not None:
        outside = (bids.partner < -1) | (bids.partner >= jobs)
        refuse(outside | (bids.partner == bids.job), "the partner must be the row of another job, or -1", bids.partner)
