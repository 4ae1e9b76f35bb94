"""The linear programs behind Gavel's shares, solved with HiGHS.

Most objectives are one program: give every job at least t times what it is due, with t as large as possible.

    max t     Σ_c speed(m, c) X(m, c) ≥ t · due(m),    Σ_c X(m, c) ≤ 1,    Σ_m gpus(m) X(m, c of type j) ≤ capacity(j)

Equal jobs are one variable with a multiplicity: for every optimum in which they differ there is one in which they are
equal. Time that is left over at the best t goes where it adds most work, relative to what each job is due: by a second
program, in which every job keeps what the first gave it. For very many jobs that all differ, prices replace the program
(prices.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from argosy.errors import PolicyError
from argosy.policies.base import Floats, Ints
from argosy.policies.gavel.prices import Market, largest
from argosy.slack import RELATIVE_SLACK

MANY = 200  # with more rows, finding prices is faster than solving the program
LARGE = 4000  # with more rows, the interior-point method is faster
TINY = 1e-12
KEPT = 1e-8  # relative: how much of its due a job may lose to rounding when unused time is distributed


def grouped(*columns: Floats) -> tuple[Ints, Ints, Ints]:
    """Group jobs with equal entries: return the first job of each group, the group of each job, the groups' sizes."""
    rows = np.concatenate([c.reshape(len(c), -1) for c in columns], axis=1)
    _, first, group, count = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return first, group.reshape(-1), count


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows that may share GPUs, and their speeds when they do, as arrays [pair, column]."""

    first: Ints
    second: Ints
    speed_first: Floats
    speed_second: Floats


class Program:
    """The program for shares X of rows (groups of `count` equal jobs) on columns, and t; it is solved repeatedly."""

    def __init__(
        self,
        speed: Floats,
        gpus: Floats,
        count: Floats,
        capacity: Floats,
        column_type: Ints,
        extra: bool = True,
        pairs: Pairs | None = None,
    ) -> None:
        self.speed, self._shape = speed, speed.shape
        n, columns = speed.shape
        self._x, self._n = n * columns, n  # X comes first, then t
        row = np.repeat(np.arange(n), columns)
        types = np.tile(column_type, n)
        self._index = np.stack([row, n + row, 2 * n + types], axis=1)
        self._unit = np.maximum(speed.max(axis=1, initial=0.0), TINY)
        work = (speed / self._unit[:, None]).ravel()
        self._coefficients = np.stack([work, np.ones(self._x), (count * gpus)[row]], axis=1)
        self._upper = np.where(speed.ravel() > 0, 1.0, 0.0)
        self._capacity, self._count, self._extra = capacity, count, extra
        self._solver: Any = None
        self._can_step = False
        self._least = self._due = np.zeros(n)
        self._gpus, self._column_type, self._pairs = gpus, column_type, pairs
        self.together = np.zeros((0, columns))  # time of each pair on each column, over all jobs of its groups

    @cached_property
    def _highs(self) -> Any:
        return import_module("highspy")  # imported late, because it is slow to load

    def fairest(self, due: Floats) -> tuple[Floats, float]:
        """Return X and t with work ≥ t · due, t as large as possible."""
        return self.raised(np.zeros(self._n), due)

    def richest(self, value: Floats, least: Floats) -> Floats | None:
        """Return the X with the largest Σ value · X and work ≥ least; None where no X reaches that."""
        self._rows(least, np.zeros(self._n))
        worth = (value * self._count[:, None]).ravel()
        x = self._solve(np.append(worth / max(float(worth.max(initial=0.0)), TINY), 0.0))
        return None if x is None else x[: self._x].reshape(self._shape).clip(0.0, 1.0)

    def raised(self, level: Floats, rate: Floats) -> tuple[Floats, float]:
        """Return X and t with work ≥ level + t · rate, t as large as possible."""
        scale = float(rate.max())
        self._rows(level * (1.0 - RELATIVE_SLACK), rate / scale)
        x, t = self._best(np.append(np.zeros(self._x), 1.0))
        if self._extra:
            self._rows((level + t * rate / scale) * (1.0 - KEPT), np.zeros(self._n))
            rising = np.where(rate > 0, 1.0 / np.maximum(rate, TINY * scale), 0.0)
            cost = np.append((self.speed * (self._count * rising)[:, None]).ravel(), 0.0)
            if self._pairs is not None:
                one, other = rising[self._pairs.first][:, None], rising[self._pairs.second][:, None]
                cost = np.append(cost, (self._pairs.speed_first * one + self._pairs.speed_second * other).ravel())
            more = self._solve(cost / max(float(cost.max()), TINY))
            x = x if more is None else self._shares(more)
        return x, t / scale

    def above(self, level: Floats, step: Floats) -> Floats | None:
        """Return how much of `step` each row can rise above its level while all others are at theirs."""
        self._rows(level, np.zeros(self._n))
        solver, n, first = self._solver, self._n, self._x + 1
        columns = np.arange(n, dtype=np.int32)
        if not self._can_step:  # one more variable a row: how far it is above its level
            self._can_step = True
            solver.addCols(n, np.zeros(n), np.zeros(n), step, n, columns, columns, -1.0 / self._unit)
        else:
            solver.changeColsBounds(n, first + columns, np.zeros(n), step)
        x = self._solve(np.concatenate([np.zeros(first), np.where(step > 0, 1.0, 0.0)]))
        solver.changeColsBounds(n, first + columns, np.zeros(n), np.zeros(n))
        return None if x is None else x[first:]

    def _best(self, cost: Floats) -> tuple[Floats, float]:
        x = self._solve(cost)
        if x is None:
            raise PolicyError("HiGHS found no shares, although shares of 0 for all jobs are a solution")
        return self._shares(x), float(x[self._x])

    def _shares(self, x: Floats) -> Floats:
        if self._pairs is not None:
            self.together = x[self._x + 1 :].reshape(-1, self._shape[1]).clip(0.0)
        return x[: self._x].reshape(self._shape).clip(0.0, 1.0)

    def _rows(self, least: Floats, due: Floats) -> None:
        """Require that the work of row m is ≥ least(m) + t · due(m), in units of the row's best speed."""
        if self._solver is None:
            self._build(due)
            self._due = due
        inf = self._highs.kHighsInf
        if least.any() or self._least.any():
            rows = np.arange(self._n, dtype=np.int32)
            self._solver.changeRowsBounds(self._n, rows, least / self._unit, np.full(self._n, inf))
            self._least = least
        for row in np.flatnonzero(due != self._due).tolist():
            self._solver.changeCoeff(row, self._x, float(-due[row] / self._unit[row]))
        self._due = due

    def _build(self, due: Floats) -> None:
        highs, n, columns = self._highs, self._n, self._x + 1
        inf = highs.kHighsInf
        lp = highs.HighsLp()
        lp.num_col_, lp.num_row_ = columns, 2 * n + len(self._capacity)
        lp.sense_ = highs.ObjSense.kMaximize
        lp.col_cost_ = np.zeros(columns)
        lp.col_lower_, lp.col_upper_ = np.zeros(columns), np.append(self._upper, inf)
        lp.row_lower_ = np.concatenate([np.zeros(n), np.full(n + len(self._capacity), -inf)])
        lp.row_upper_ = np.concatenate([np.full(n, inf), np.ones(n), self._capacity])
        lp.a_matrix_.format_ = highs.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.append(np.arange(columns) * 3, 3 * self._x + n)
        lp.a_matrix_.index_ = np.concatenate([self._index.ravel(), np.arange(n)])
        lp.a_matrix_.value_ = np.concatenate([self._coefficients.ravel(), -due / self._unit])
        self._solver = highs.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._solver.setOptionValue("solver", "ipm" if n > LARGE or not self._extra else "simplex")
        if not self._extra:  # stop in the middle of the set of optima, not at a vertex
            self._solver.setOptionValue("run_crossover", "off")
        self._solver.passModel(lp)
        if self._pairs is not None:
            self._add_pairs(self._pairs)

    def _add_pairs(self, pairs: Pairs) -> None:
        """Add a variable for each pair and column: its time, summed over the jobs of both groups."""
        from scipy.sparse import coo_matrix  # imported late, because it is slow to load

        n, columns = self._n, self._shape[1]
        count = len(pairs.first) * columns
        variable = np.arange(count)
        first, second = np.repeat(pairs.first, columns), np.repeat(pairs.second, columns)
        part_a, part_b = 1.0 / self._count[first], 1.0 / self._count[second]
        rows = [first, second, n + first, n + second, 2 * n + np.tile(self._column_type, len(pairs.first))]
        work_a = pairs.speed_first.ravel() / self._unit[first] * part_a
        work_b = pairs.speed_second.ravel() / self._unit[second] * part_b
        values = [work_a, work_b, part_a, part_b, self._gpus[first]]
        shape = (2 * n + len(self._capacity), count)
        matrix = coo_matrix((np.concatenate(values), (np.concatenate(rows), np.tile(variable, 5))), shape).tocsc()
        zeros, most = np.zeros(count), np.where(pairs.speed_first.ravel() > 0, self._highs.kHighsInf, 0.0)
        self._solver.addCols(
            count,
            zeros,
            zeros,
            most,
            matrix.nnz,
            matrix.indptr[:-1].astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
        )

    def _solve(self, cost: Floats) -> Floats | None:
        cost = np.append(cost, np.zeros(self._solver.getNumCol() - len(cost)))
        self._solver.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
        self._solver.run()
        statuses = self._highs.HighsModelStatus
        # the interior-point method may stop with a nearly optimal solution, which is good enough
        fine = {statuses.kOptimal} if self._extra else {statuses.kOptimal, statuses.kUnknown}
        if self._solver.getModelStatus() not in fine:
            return None
        return np.array(self._solver.getSolution().col_value)


def fairest(
    speed: Floats, gpus: Floats, due: Floats, capacity: Floats, column_type: Ints, extra: bool = True
) -> tuple[Floats, float]:
    """Return shares that give every job at least t · due, t as large as possible; jobs that cannot run get none."""
    able = np.flatnonzero((speed > 0).any(axis=1) & (due > 0))
    shares = np.zeros(speed.shape)
    if not len(able):
        return shares, 0.0
    first, group, count = grouped(speed[able], gpus[able], due[able])
    rows = able[first]
    if len(rows) > MANY and extra:
        market = Market(speed[rows], gpus[rows], count.astype(float), capacity, column_type)
        most = float((speed[rows].max(axis=1) / due[rows]).min())
        x, t = largest(market, lambda t: t * due[rows], 0.0, most)
    else:
        program = Program(speed[rows], gpus[rows], count.astype(float), capacity, column_type, extra)
        x, t = program.fairest(due[rows])
    shares[able] = x[group]
    return shares, t


def soonest(
    speed: Floats,
    gpus: Floats,
    due_at: Callable[[float], Floats],
    start: float,
    capacity: Floats,
    column_type: Ints,
    worst: Callable[[Floats], float],
    extra: bool = True,
    steps: int = 20,
    accuracy: float = 1e-6,
) -> tuple[Floats, float]:
    """Return the shares with the smallest ρ; `due_at(ρ)` are the speeds due at ρ, `worst(speeds)` is the ρ reached.

    For a ρ that can be reached, find the X that exceeds what is due by the largest factor, and go on from the ρ of X.
    """
    if len(gpus) > MANY and extra:
        market = Market(speed, gpus, np.ones(len(gpus)), capacity, column_type)
        x, t = largest(market, lambda t: due_at(1.0 / t), 1.0 / start, 1.0 / worst(speed.max(axis=1)))
        return x, 1.0 / t
    program = Program(speed, gpus, np.ones(len(gpus)), capacity, column_type, extra)
    ratio, best = start, None
    for _ in range(steps):
        x, _t = program.fairest(due_at(ratio))
        reached = worst((speed * x).sum(axis=1))
        if best is None or reached < ratio:
            best = x
        if not reached < ratio * (1.0 - accuracy):
            break
        ratio = reached
    assert best is not None
    return best, min(ratio, reached)


def water_level(gpus: Floats, weight: Floats, total: float) -> Floats:
    """Return each job's share of time if all GPUs are alike: gpus · x = level · weight, with x at most 1."""
    full_at = gpus / weight  # the level at which a job runs all the time
    order = np.argsort(full_at)
    before = np.concatenate([[0.0], np.cumsum(gpus[order])[:-1]])
    rest = np.cumsum(weight[order][::-1])[::-1]
    level = (total - before) / rest  # if the jobs before this one run all the time
    reached = np.flatnonzero(level < full_at[order])
    at = float(level[reached[0]]) if len(reached) else np.inf
    return np.minimum(at * weight / gpus, 1.0)
