"""The integer programs that choose among the ways to place picked jobs: for one job, or for three at once.

For one job, one of at most four ways (the best of each tier by partial nodes, and by balance) is chosen with the next
job in mind. After the placement, free(n) GPUs of G(n) are free on node n:

    min  1.0 · Σ f(n) + 0.3 · (max free − min free) − 0.5 · Σ y(n)
    f(n) ≥ [0 < free(n) < G(n)],   y(n) = 1 only if free(n) ≥ GPUs of the next job

In the authors' released program f(n) = 1 implies a partial node, but not the reverse, so that f is 0 and its term void.
With so few ways the program is solved by computing each one's value, which is exactly the same.

For three jobs at once [our reconstruction: the paper's program could not be read], with p the probabilities that the
actor gives them, HiGHS solves

    max  Σ p(j) z(j) − 0.1 · partial nodes        z(j) = 1: job j starts, on nodes of one type and of its tiers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from argosy.errors import PolicyError
from argosy.policies.base import Floats, Ints
from argosy.policies.rltune.ways import BALANCE, DEFRAGMENT, MOST_RELAXED, Way, find_best, find_first
from argosy.slack import RESOURCE_SLACK

PARTIAL, SPREAD, NEXT = 1.0, 0.3, 0.5  # weights of the program for one job
PARTIAL_OF_THREE = 0.1  # in units of probability


def first_by_number(usable: Ints, node_type: Ints, fewest: Ints, gpus: int) -> Way | None:
    """Return the way of tier 1 whose nodes come first by number, over all types that can hold the job."""
    found = []
    for t in np.flatnonzero(fewest):
        way = find_first(np.where(node_type == t, usable, 0), int(fewest[t]), gpus)
        if way is not None:
            found.append(way)
    return min(found, key=lambda way: tuple(sorted(way)), default=None)


def ways_of_tiers(usable: Ints, free: Ints, node_gpus: Ints, fewest: int, gpus: int) -> list[Way]:
    """Return up to four different ways on nodes of one type: the best of tiers 1 and 2 by each of the two orders."""
    ways: list[Way] = []
    for used in (fewest, fewest + 1):
        for order in (DEFRAGMENT, BALANCE):
            if used > fewest and (fewest > MOST_RELAXED or gpus < used):
                continue
            way = find_best(usable, free, node_gpus, used, gpus, order)
            if way is None or way in ways:
                continue
            if used > fewest and rise(way, free, node_gpus) > 0:
                continue  # not of tier 2; the other order's best may be
            ways.append(way)
    return ways


def rise(way: Way, free: Ints, node_gpus: Ints) -> int:
    """Return by how much the number of partial nodes rises."""
    before = sum(0 < free[n] < node_gpus[n] for n in way)
    after = sum(0 < free[n] - g < node_gpus[n] for n, g in way.items())
    return int(after - before)


def value_of(way: Way, free: Ints, node_gpus: Ints, next_gpus: float, *, released: bool = False) -> float:
    """Return the value of a way in the program for one job; the smallest is best."""
    after = free.copy()
    for node, gpus in way.items():
        after[node] -= gpus
    f = 0.0 if released else float(((after > 0) & (after < node_gpus)).sum())
    y = float((after >= next_gpus).sum()) if next_gpus > 0 else 0.0
    return PARTIAL * f + SPREAD * float(after.max() - after.min()) - NEXT * y


def choose_way(
    usable: Ints,
    free: Ints,
    node_type: Ints,
    node_gpus: Ints,
    fewest: Ints,
    gpus: int,
    next_gpus: float,
    released: bool,
) -> Way | None:
    """Return the best way for one job by the program, over all types; earlier types and tiers win ties.

    As in the authors' code the program sees only nodes of the job's pool on which something is free.
    """
    best: tuple[float, Way] | None = None
    for t in np.flatnonzero(fewest):
        pool = np.flatnonzero((node_type == t) & (usable >= 0) & (free > 0))
        if not len(pool):
            continue
        here, there = usable[pool], free[pool]
        for way in ways_of_tiers(here, there, node_gpus[pool], int(fewest[t]), gpus):
            value = value_of(way, there, node_gpus[pool], next_gpus, released=released)
            if best is None or value < best[0] - 1e-9:
                best = value, {int(pool[n]): g for n, g in way.items()}
    return None if best is None else best[1]


@dataclass(frozen=True)
class Request:
    """A job of the program for several jobs."""

    gpus: int
    value: float  # the probability that the actor gives it
    usable: Ints  # GPUs of each node
    fewest: Ints  # nodes that it needs of each type; 0: none of this type
    units: Floats  # CPUs and memory that come with a GPU


class Program:
    """The program for several jobs; of nodes on which the same is free only as many take part as can be used."""

    def __init__(
        self, requests: Sequence[Request], free: Ints, node_gpus: Ints, node_type: Ints, spare: Floats
    ) -> None:
        self.requests, self.free, self.node_gpus, self.spare = requests, free, node_gpus, spare
        enough = sum(self._most_nodes(r) for r in requests)
        alike: dict[tuple[float, ...], int] = {}
        self.nodes: list[int] = []
        for n in range(len(free)):
            rooms = (int(r.usable[n]) for r in requests)
            look = (int(node_type[n]), int(node_gpus[n]), int(free[n]), *rooms, *spare[n].tolist())
            alike[look] = alike.get(look, 0) + 1
            if alike[look] <= enough and any(r.usable[n] > 0 for r in requests):
                self.nodes.append(n)
        rest = np.delete(np.arange(len(free)), self.nodes)
        self.fixed = float(((free[rest] > 0) & (free[rest] < node_gpus[rest])).sum())
        self.types = node_type

    @staticmethod
    def _most_nodes(request: Request) -> int:
        return int(request.fewest.max(initial=0)) + 1

    def solve(self) -> tuple[list[Way | None], float]:
        """Return the way of each job, None for those that do not start, and the value of the program."""
        highs: Any = import_module("highspy")  # heavy: late
        solver = highs.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("mip_rel_gap", 0.0)
        columns = self._columns(solver, highs)
        self._rows(solver, highs, columns)
        solver.changeObjectiveSense(highs.ObjSense.kMaximize)
        solver.run()
        if solver.getModelStatus() != highs.HighsModelStatus.kOptimal:
            raise PolicyError("HiGHS found no mapping, though starting no job is a solution")
        x = np.round(np.array(solver.getSolution().col_value)).astype(np.int64)
        ways: list[Way | None] = []
        for j in range(len(self.requests)):
            way = {n: int(x[columns["x", j, n]]) for n in self.nodes if x[columns["x", j, n]] > 0}
            ways.append(way or None)
        return ways, float(solver.getInfo().objective_function_value) - PARTIAL_OF_THREE * self.fixed

    def _columns(self, solver: Any, highs: Any) -> dict[tuple[Any, ...], int]:
        """Add the variables: x GPUs of a job on a node, u whether it uses it, t its type, f, e, h of each node."""
        columns: dict[tuple[Any, ...], int] = {}

        def add(name: tuple[Any, ...], most: float, cost: float = 0.0) -> None:
            columns[name] = len(columns)
            solver.addCol(cost, 0.0, most, 0, np.zeros(0, np.int32), np.zeros(0))
            solver.changeColIntegrality(columns[name], highs.HighsVarType.kInteger)

        for j, request in enumerate(self.requests):
            for t, fewest in enumerate(request.fewest.tolist()):
                add(("t", j, t), 1.0 if fewest else 0.0, request.value)
            for n in self.nodes:
                most = max(min(int(request.usable[n]), request.gpus), 0)
                add(("x", j, n), float(most))
                add(("u", j, n), 1.0 if most else 0.0)
        for n in self.nodes:
            add(("f", n), 1.0, -PARTIAL_OF_THREE)  # partial, wholly free or wholly in use after the placement
            add(("e", n), 1.0 if self.free[n] == self.node_gpus[n] else 0.0)
            add(("h", n), 1.0)
        return columns

    def _rows(self, solver: Any, highs: Any, columns: dict[tuple[Any, ...], int]) -> None:
        inf = highs.kHighsInf

        def add(low: float, high: float, terms: list[tuple[tuple[Any, ...], float]]) -> None:
            index = np.array([columns[name] for name, _ in terms], np.int32)
            solver.addRow(low, high, len(terms), index, np.array([value for _, value in terms], np.float64))

        for j, request in enumerate(self.requests):
            add(-inf, 1.0, [(("t", j, t), 1.0) for t in range(len(request.fewest))])
            for t, fewest in enumerate(request.fewest.tolist()):
                here = [n for n in self.nodes if self.types[n] == t]
                more = 1 if 0 < fewest <= MOST_RELAXED else 0
                add(0.0, 0.0, [*((("x", j, n), 1.0) for n in here), (("t", j, t), -float(request.gpus))])
                add(-inf, 0.0, [*((("u", j, n), 1.0) for n in here), (("t", j, t), -float(fewest + more))])
            for n in self.nodes:
                add(
                    -inf, 0.0, [(("x", j, n), 1.0), (("u", j, n), -float(max(min(request.usable[n], request.gpus), 0)))]
                )
        for n in self.nodes:
            taken = [(("x", j, n), 1.0) for j in range(len(self.requests))]
            free, gpus = float(self.free[n]), float(self.node_gpus[n])
            add(-inf, free, taken)
            add(1.0, inf, [(("f", n), 1.0), (("e", n), 1.0), (("h", n), 1.0)])
            add(-inf, gpus, [*taken, (("e", n), gpus)] if free == gpus else taken)
            add(0.0, inf, [*taken, (("h", n), -free)])
            for r in range(self.spare.shape[1]):
                units = [(("x", j, n), float(request.units[r])) for j, request in enumerate(self.requests)]
                add(-inf, float(self.spare[n, r]) + RESOURCE_SLACK, units)
