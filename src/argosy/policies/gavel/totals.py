"""Gavel's other programs: most work per second, most work per money with deadlines kept, fairness between queues.

Decision: shares X(m, j) from a linear program, realised by rounds, as in gavel.py. `gavel-throughput` maximises the
work done per second over all jobs. `gavel-cost` maximises work per money, while every job with a deadline runs fast
enough to keep it. `gavel-hierarchical` raises the speeds of all jobs together, a queue's as its weight says, until
somebody can not be raised; those are frozen, and the others raised on.
State used: demands, weights, queues, throughput profiles; `gavel-cost` also deadlines and the estimate of the time
left.
Parameters: as of the fair ones (gavel.py); `gavel-cost`: `prices` of one GPU and hour by type, such as
`v100=2.48/p100=1.46` (for others those of the cluster file; without any, all cost the same); `gavel-hierarchical`:
`inner`, who shares inside a queue: `fairness` or `fifo`, and `levels`, how often the water may rise.
Differences from the paper: work is counted relative to each job's requested configuration, since steps of different
models do not add up. A deadline that can no longer be kept, even by running all the time on the fastest type, binds
nobody; if the others can not all be kept, none is (as in the authors' code). Who can not be raised further is found by
a program that tries to raise everybody a little, instead of by an integer program.
References: Narayanan et al., OSDI'20; code at stanford-futuredata/gavel.

    throughput:    max Σ_m eff(m, X)
    cost:          max Σ_m Σ_j T(m, j) X(m, j) / price(j)     eff(m, X) ≥ left(m) / (deadline(m) − now)
    hierarchical:  max t    gpus(m) · (eff(m, X) / eff(m, X_eq) − level(m)) ≥ t · w(m);   level(m) += t · w(m) / gpus(m)
                   fairness: w(m) = weight of the queue · weight(m) / Σ weights of its jobs that are not frozen
                   fifo: w(m) = weight of the queue for its first job that is not frozen, 0 for the others
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, register
from argosy.policies.gavel.allocation import SOURCE, Gavel, Problem, TimedGavel
from argosy.policies.gavel.linear_program import Program, grouped

STEP = 1e-4  # how far the frozen are told from the others
INNER = ("fairness", "fifo")
LEAST_PRICE = 1e-3  # a GPU that costs nothing is worth much, not infinitely much


def richest(problem: Problem, value: Floats, least: Floats) -> Floats | None:
    """Shares of the largest value, like jobs treated alike; None where not everybody can have his least."""
    first, group, count = grouped(problem.speed, problem.gpus, least, value)
    program = Program(
        problem.speed[first], problem.gpus[first], count.astype(float), problem.capacity, problem.column_type
    )
    x = program.richest(value[first], least[first])
    return None if x is None else x[group]


@register("gavel-throughput", "as much work per second as possible, over all jobs", SOURCE)
class MaxThroughput(Gavel):
    def solve(self, problem: Problem) -> Floats:
        share = richest(problem, problem.speed, np.zeros(len(problem.gpus)))
        assert share is not None  # nothing at all would do
        return share


@register("gavel-cost", "as much work for the money as possible, deadlines kept", SOURCE)
class MinCost(TimedGavel):
    def __init__(
        self, round_s: float = 360.0, min_interval_s: float = 1920.0, authors: bool = False,
        placement_aware: bool = False, partitions: int = 1, prices: str = "",
    ) -> None:  # fmt: skip
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
        assert share is not None  # nothing at all would do
        return share


@register("gavel-hierarchical", "queues share by weight, their jobs fairly or first come, first served", SOURCE)
class Hierarchical(Gavel):
    def __init__(
        self, round_s: float = 360.0, min_interval_s: float = 1920.0, authors: bool = False,
        placement_aware: bool = False, partitions: int = 1, inner: str = "fairness", levels: int = 8,
    ) -> None:  # fmt: skip
        super().__init__(round_s, min_interval_s, authors, placement_aware, partitions)
        if inner not in INNER:
            raise InputError(f"{self.name}: inner must be one of {', '.join(INNER)}, is {inner!r}")
        if levels < 1:
            raise InputError(f"{self.name}: levels must be ≥ 1, is {levels}")
        self.inner, self.levels = inner, levels

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._queue_weights = context.queue_weights

    def solve(self, problem: Problem) -> Floats:
        share = np.zeros(problem.speed.shape)
        equal = problem.equal_speed()
        able = np.flatnonzero(equal > 0)
        if not len(able):
            return share
        normal = problem.speed[able] / equal[able, None]
        gpus, queue, own = problem.gpus[able], problem.queue[able], problem.weight[able]
        alike = [normal, gpus, queue.astype(float), own]
        if self.inner == "fifo":  # then no two jobs are alike
            alike.append(np.arange(len(able), dtype=float))
        first, group, count = grouped(*alike)
        water = Water(normal[first], gpus[first], count.astype(float), problem)
        for _ in range(self.levels):
            weight = self._weights(queue, own, ~water.frozen[group])[first]
            if not water.rise(weight):
                break
        share[able] = water.share[group]
        return share

    def _weights(self, queue: Ints, own: Floats, open_: Floats) -> Floats:
        """How fast each job rises; 0 for those who do not."""
        if self.inner == "fairness":
            total = np.bincount(queue, np.where(open_, own, 0.0), len(self._queue_weights))
            return np.where(open_, self._queue_weights[queue] * own / np.maximum(total[queue], 1e-12), 0.0)
        weight = np.zeros(len(queue))
        rows = np.flatnonzero(open_)
        _, heads = np.unique(queue[rows], return_index=True)  # rows are in order of arrival
        weight[rows[heads]] = self._queue_weights[queue[rows[heads]]]
        return weight


class Water:
    """Groups of equal jobs whose speeds rise together; `frozen` are those who can not go on."""

    def __init__(self, speed: Floats, gpus: Floats, count: Floats, problem: Problem) -> None:
        self._program = Program(speed, gpus, count, problem.capacity, problem.column_type)
        self._speed, self._gpus = speed, gpus
        self.level, self.frozen = np.zeros(len(gpus)), np.zeros(len(gpus), bool)
        self.share = np.zeros(speed.shape)

    def rise(self, weight: Floats) -> bool:
        """Raise those with a weight as far as all of them can go; False when nobody rises any more."""
        rate = weight / self._gpus
        if not (rate > 0).any():
            return False
        self.share, height = self._program.raised(self.level, rate)
        self.level = self.level + height * rate
        step = np.where(rate > 0, STEP * np.maximum(self.level, STEP), 0.0)
        above = self._program.above(self.level * (1 - 1e-9), step)
        stuck = (rate > 0) & ((above < 0.5 * step) if above is not None else True)
        self.frozen = self.frozen | stuck
        return bool(stuck.any() and not self.frozen.all())
