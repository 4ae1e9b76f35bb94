"""Gavel's policies for the cluster as a whole: most work per second, and most work per money with deadlines kept.

Decision: shares X(m, j) from a linear program, realised by rounds, as in fairness.py. `gavel-throughput` maximises the
work done per second over all jobs. `gavel-cost` maximises work per money, while every job with a deadline runs fast
enough to keep it.
State used: demands, throughput profiles; `gavel-cost` also deadlines and the estimate of the time left.
Parameters: as in fairness.py; `gavel-cost`: `prices` of one GPU and hour by type, such as `v100=2.48/p100=1.46` (the
cluster file gives the others; without any, all cost the same).
Differences from the paper: work is counted relative to each job's requested configuration, since steps of different
models do not add up (with `authors`: as plain steps). A deadline that can no longer be kept, even by running all the
time on the fastest type, is ignored; if the remaining deadlines cannot all be kept, all of them are ignored (as in the
authors' code).
References: Narayanan et al., OSDI'20; code at stanford-futuredata/gavel.

    throughput:    max Σ_m eff(m, X)
    cost:          max Σ_m Σ_j T(m, j) X(m, j) / price(j)     eff(m, X) ≥ left(m) / (deadline(m) − now)
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, register
from argosy.policies.gavel.allocation import SOURCE, Gavel, Problem, TimedGavel
from argosy.policies.gavel.linear_program import Program, grouped

LEAST_PRICE = 1e-3  # a free GPU counts as costing this, so that work per money stays finite


def richest(problem: Problem, value: Floats, least: Floats) -> Floats | None:
    """Find shares with the largest total value, equal for equal jobs; None if not every job can have its least."""
    first, group, count = grouped(problem.speed, problem.gpus, least, value)
    program = Program(
        problem.speed[first], problem.gpus[first], count.astype(float), problem.capacity, problem.column_type
    )
    x = program.richest(value[first], least[first])
    return None if x is None else x[group]


@register("gavel-throughput", "as much work per second as possible, over all jobs", SOURCE)
class MaxThroughput(Gavel):
    def columns(self, view: View, places: Ints) -> dict[str, Floats]:
        return {"reference": view.jobs.reference_rate[places]}

    def solve(self, problem: Problem) -> Floats:
        value = problem.speed * problem.columns["reference"][:, None] if self.authors else problem.speed
        share = richest(problem, value, np.zeros(len(problem.gpus)))
        assert share is not None  # no shares at all would be a solution
        return problem.as_theirs(share, value=value) if self.authors else share


@register("gavel-cost", "as much work for the money as possible, deadlines kept", SOURCE)
class MinCost(TimedGavel):
    def __init__(
        self,
        round_s: float = 360.0,
        min_interval_s: float = 1920.0,
        authors: bool = False,
        placement_aware: bool = False,
        partitions: int = 1,
        prices: str = "",
    ) -> None:
        super().__init__(round_s, min_interval_s, authors, placement_aware, partitions)
        self.prices = {}
        for pair in filter(None, prices.split("/")):
            gpu_type, _, price = pair.partition("=")
            try:
                self.prices[gpu_type] = float(price)
            except ValueError:
                self.prices[gpu_type] = 0.0
            if not 0 < self.prices[gpu_type] < np.inf:
                raise InputError(f"{self.name}: prices must be like v100=2.48/p100=1.46, are {prices!r}")

    def reset(self, context: Context) -> None:
        super().reset(context)
        known = dict(zip(context.gpu_types, context.gpu_prices)) | self.prices
        self._price = np.maximum([known.get(t, 1.0) for t in context.gpu_types], LEAST_PRICE)

    def columns(self, view: View, places: Ints) -> dict[str, Floats]:
        return super().columns(view, places) | {"due_s": view.jobs.deadline[places] - view.now}

    def solve(self, problem: Problem) -> Floats:
        value = problem.speed / self._price[problem.column_type]
        left, due = problem.columns["left_s"], problem.columns["due_s"]
        least = np.where(due > 0, left / np.maximum(due, 1e-9), np.inf)
        least = np.where(least <= problem.speed.max(axis=1), least, 0.0)
        share = richest(problem, value, least)
        if share is None:
            share = richest(problem, value, np.zeros(len(left)))
        assert share is not None  # no shares at all would be a solution
        return share
