"""Shares for very many jobs on few GPU types, found by prices instead of one large linear program.

Given the price of a GPU of each type, the cheapest way to give a job the speed it is due can be computed for each job
separately: one column for a part of the time, or two columns all the time. This decomposes a program of thousands of
rows, and only the prices have to be found, one for each type. The prices at which the total cost of all jobs is highest
tell whether every job can have what it is due:

    z = max over prices p ≥ 0 with p · capacity = 1  of  Σ_m cost(m, p),     all jobs can be served if z ≤ 1

The cheapest choices of all jobs at some prices are one way to serve all of them; the largest z is found by cutting
planes through these choices, and a mixture of the same choices uses at most z of every type's capacity (Dantzig and
Wolfe, Decomposition principle for linear programs, 1960).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from argosy.policies.base import Floats, Ints

ROUNDS, TRIES = 60, 60
CLOSE = 1e-6  # relative, of z and of what is due


@dataclass(frozen=True, slots=True)
class Market:
    """Jobs (each row stands for `count` equal ones) and the GPUs that they share."""

    speed: Floats  # [row, column]
    gpus: Floats
    count: Floats
    capacity: Floats  # by type
    column_type: Ints

    def answer(self, need: Floats, prices: Floats) -> tuple[Floats, Floats]:
        """Return the cheapest shares at these prices that reach the speeds needed, and the GPUs of each type used."""
        n, columns = self.speed.shape
        cost = prices[self.column_type]
        best, first, second = np.full(n, np.inf), np.zeros(n, np.int64), np.full(n, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            for c in range(columns):
                slow = self.speed[:, c]
                alone = np.where(slow >= need, cost[c] * need / slow, np.inf)
                better = alone < best
                best[better], first[better], second[better] = alone[better], c, -1
                for d in range(columns):
                    fast = self.speed[:, d]
                    part = (need - slow) / (fast - slow)
                    between = (slow > 0) & (slow < need) & (need <= fast)
                    both = np.where(between, cost[c] + part * (cost[d] - cost[c]), np.inf)
                    better = both < best
                    best[better], first[better], second[better] = both[better], c, d
        rows = np.arange(n)
        share = np.zeros((n, columns))
        one = self.speed[rows, first]
        with np.errstate(divide="ignore", invalid="ignore"):
            other = (need - one) / (self.speed[rows, second] - one)
            share[rows, first] = np.where(second < 0, need / one, 1.0 - other)
        paired = np.flatnonzero(second >= 0)
        share[paired, second[paired]] = other[paired]
        return share, self.used(share)

    def used(self, share: Floats) -> Floats:
        """Return how many GPUs of each type these shares use, on average over time."""
        by_column = (self.count * self.gpus) @ share
        return np.asarray(np.bincount(self.column_type, by_column, len(self.capacity)), np.float64)

    def spend(self, share: Floats) -> Floats:
        """Return the shares with unused time added, column by column, for the jobs that do most work with it."""
        share = share.copy()
        left = np.maximum(self.capacity - self.used(share), 0.0)
        slack = np.maximum(1.0 - share.sum(axis=1), 0.0)
        for c in np.argsort(-self.speed.sum(axis=0), kind="stable").tolist():
            order = np.argsort(-self.speed[:, c] / self.gpus, kind="stable")
            order = order[(self.speed[order, c] > 0) & (slack[order] > 0)]
            wanted = self.count[order] * self.gpus[order] * slack[order]
            before = np.cumsum(wanted) - wanted
            part = np.clip((left[self.column_type[c]] - before) / np.maximum(wanted, 1e-300), 0.0, 1.0)
            given = part * slack[order]
            share[order, c] += given
            slack[order] -= given
            left[self.column_type[c]] -= float((part * wanted).sum())
        return share


class PriceSearch:
    """Searches for the prices; each search begins at the prices that the last one found."""

    def __init__(self, market: Market) -> None:
        self._market = market
        used = market.capacity > 0
        self._start = [np.where(used, 1.0 / np.maximum(market.capacity, 1e-300), 0.0) / max(int(used.sum()), 1)]
        self.share = np.zeros(market.speed.shape)

    def stress(self, need: Floats) -> float:
        """Return z, the part of the capacity that gives every job the speed it needs; inf if that is impossible."""
        market = self._market
        if (need > market.speed.max(axis=1)).any() or not (market.capacity > 0).any():
            return np.inf
        highs: Any = import_module("highspy")
        types, inf = len(market.capacity), highs.kHighsInf
        master = highs.Highs()
        master.setOptionValue("output_flag", False)
        master.setOptionValue("threads", 1)
        for j in range(types):
            master.addVar(0.0, inf if market.capacity[j] > 0 else 0.0)
        master.addVar(-inf, inf)
        master.changeColCost(types, -1.0)
        columns = np.arange(types + 1, dtype=np.int32)
        master.addRow(1.0, 1.0, types, columns[:types], market.capacity)
        tried: list[Floats] = []
        answers: list[Floats] = []
        waiting, lowest = list(self._start), -np.inf
        for _ in range(ROUNDS):
            for prices in waiting:
                share, used = market.answer(need, prices)
                lowest = max(lowest, float(prices @ used))
                tried.append(prices)
                answers.append(share)
                master.addRow(-inf, 0.0, types + 1, columns, np.append(-used, 1.0))
            master.run()
            found = np.array(master.getSolution().col_value)
            if found[types] - lowest <= CLOSE * max(abs(lowest), 1e-12):
                break
            waiting = [np.maximum(found[:types], 0.0)]
        weight = np.abs(np.array(master.getSolution().row_dual)[1:])
        weight /= max(float(weight.sum()), 1e-300)
        chosen = np.flatnonzero(weight > 1e-9).tolist()
        self.share = sum((weight[k] * answers[k] for k in chosen), np.zeros(market.speed.shape))
        self._start = [tried[k] for k in chosen] or self._start
        return float(np.max(market.used(self.share)[market.capacity > 0] / market.capacity[market.capacity > 0]))


def largest(market: Market, need_at: Callable[[float], Floats], low: float, high: float) -> tuple[Floats, float]:
    """Return shares for the largest t in low..high whose needs can be met; they rise with t, and those of `low` can."""
    search = PriceSearch(market)
    search.stress(need_at(low))
    best, at = search.share, low
    for _ in range(TRIES):
        if high - low <= CLOSE * abs(high):
            break
        middle = 0.5 * (low + high)
        if search.stress(need_at(middle)) <= 1.0 + CLOSE:
            best, at, low = search.share, middle, middle
        else:
            high = middle
    scale = float(np.max(market.used(best) / np.maximum(market.capacity, 1e-300), initial=1.0))
    return market.spend(best / scale), at
