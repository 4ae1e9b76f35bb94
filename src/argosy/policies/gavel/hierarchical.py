"""Gavel's fairness between queues: the speeds of their jobs rise together, like water, until some cannot rise further.

Decision: shares X(m, j) from a sequence of linear programs, realised by rounds, as in fairness.py. The speeds of all
jobs are raised together, those of a queue in proportion to its weight, until some job cannot be raised further; such
jobs are frozen, and the others are raised further.
State used: demands, weights, queues, throughput profiles.
Parameters: as in fairness.py; `inner`, how the jobs of a queue share: `fairness` or `fifo`; `levels`, how often speeds
are raised at most.
Differences from the paper: jobs that cannot be raised further are found by a program that tries to raise all jobs a
little, instead of by an integer program.
References: Narayanan et al., OSDI'20; code at stanford-futuredata/gavel.

    max t    gpus(m) · (eff(m, X) / eff(m, X_eq) − level(m)) ≥ t · w(m);   level(m) += t · w(m) / gpus(m)
    fairness: w(m) = weight of the queue · weight(m) / Σ weights of its jobs that are not frozen
    fifo:     w(m) = weight of the queue for its first job that is not frozen, 0 for the others
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, register
from argosy.policies.gavel.allocation import SOURCE, Gavel, Problem
from argosy.policies.gavel.linear_program import Program, grouped
from argosy.slack import RELATIVE_SLACK

STEP = 1e-4  # how far a job must rise above its level to count as not frozen, relative to the level
INNER = ("fairness", "fifo")


@register("gavel-hierarchical", "queues share by weight, their jobs fairly or first come, first served", SOURCE)
class Hierarchical(Gavel):
    def __init__(
        self,
        round_s: float = 360.0,
        min_interval_s: float = 1920.0,
        authors: bool = False,
        placement_aware: bool = False,
        partitions: int = 1,
        inner: str = "fairness",
        levels: int = 8,
    ) -> None:
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
        if self.inner == "fifo":  # the position in the queue makes all jobs different
            alike.append(np.arange(len(able), dtype=float))
        first, group, count = grouped(*alike)
        water = WaterFilling(normal[first], gpus[first], count.astype(float), problem)
        for _ in range(self.levels):
            weight = self._weights(queue, own, ~water.frozen[group])[first]
            if not water.rise(weight):
                break
        share[able] = water.share[group]
        return share

    def _weights(self, queue: Ints, own: Floats, open_: Floats) -> Floats:
        """Return how fast each job rises; 0 for jobs that do not rise."""
        if self.inner == "fairness":
            total = np.bincount(queue, np.where(open_, own, 0.0), len(self._queue_weights))
            return np.where(open_, self._queue_weights[queue] * own / np.maximum(total[queue], 1e-12), 0.0)
        weight = np.zeros(len(queue))
        rows = np.flatnonzero(open_)
        _, heads = np.unique(queue[rows], return_index=True)  # rows are in order of arrival
        weight[rows[heads]] = self._queue_weights[queue[rows[heads]]]
        return weight


class WaterFilling:
    """Groups of equal jobs whose speeds rise together; `frozen` marks those that cannot rise further."""

    def __init__(self, speed: Floats, gpus: Floats, count: Floats, problem: Problem) -> None:
        self._program = Program(speed, gpus, count, problem.capacity, problem.column_type)
        self._speed, self._gpus = speed, gpus
        self.level, self.frozen = np.zeros(len(gpus)), np.zeros(len(gpus), bool)
        self.share = np.zeros(speed.shape)

    def rise(self, weight: Floats) -> bool:
        """Raise all groups with a weight as far as they can go together; return False when no group can rise."""
        rate = weight / self._gpus
        if not (rate > 0).any():
            return False
        self.share, height = self._program.raised(self.level, rate)
        self.level = self.level + height * rate
        step = np.where(rate > 0, STEP * np.maximum(self.level, STEP), 0.0)
        above = self._program.above(self.level * (1 - RELATIVE_SLACK), step)
        stuck = (rate > 0) & ((above < 0.5 * step) if above is not None else True)
        self.frozen = self.frozen | stuck
        return bool(stuck.any() and not self.frozen.all())
