"""Find the smallest cluster that meets a target, by bisection over one size.

More GPUs do not make every figure better (a gang may be placed worse), so bisection is not exact by itself: the size
that it finds meets the target, and the size below it that was tried does not. The other sizes can be tried too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from argosy.errors import ArgosyError
from argosy.sim.compare import Experiment, Task
from argosy.sim.kept_cells import KeptCells
from argosy.sim.pool import run_tasks
from argosy.sim.run import simulate
from argosy.sim.target import Target
from argosy.sim.variation import Variation, changed


@dataclass(frozen=True, slots=True)
class Point:
    """One size that was tried: the figure of each seed."""

    value: float
    figures: tuple[float, ...]
    met: bool

    @property
    def figure(self) -> float:
        """Return the median over seeds: with jobs that never start, a mean would be infinite."""
        return float(np.median(self.figures))


@dataclass(frozen=True, slots=True)
class Figure:
    """The outcome of a run: the target's figure, or an error."""

    task: Task
    value: float
    error: ArgosyError | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """What each run of a plan does."""

    experiment: Experiment
    target: Target

    def __call__(self, task: Task) -> Figure:
        try:
            e = self.experiment
            cluster, settings, policy = e.cluster, e.settings.with_seed(task.seed), task.policy
            for one in task.at:
                cluster, settings, policy = changed(one, cluster, settings, policy)
            return Figure(task, self.target.figure(simulate(e.trace(task), cluster, policy, settings)))
        except ArgosyError as problem:
            return Figure(task, math.nan, problem)


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The sizes that were tried, in order, and the smallest that meets the target (None: none does)."""

    name: str
    target: Target
    policy: str
    points: tuple[Point, ...]

    @property
    def smallest(self) -> float | None:
        """Return the smallest size such that it and all larger ones that were tried meet the target."""
        found = None
        for point in reversed(self.points):
            if not point.met:
                break
            found = point.value
        return found


def _lost(task: Task, died: ArgosyError) -> Figure:
    return Figure(task, math.nan, died)


def plan_capacity(
    experiment: Experiment,
    policy: str,
    name: str,
    values: Sequence[float],
    target: Target,
    seeds: Sequence[int],
    *,
    every: bool = False,
    workers: int | None = None,
    done: Callable[[int], None] | None = None,
    cells: KeptCells | None = None,
) -> CapacityPlan:
    """Try sizes until the smallest that meets the target in most seeds is known; `every` tries all of them.

    `cells` are runs that have ended before, and where new ones are kept.
    """
    measure, tried = Measure(experiment, target), dict[int, Point]()
    runs = 0

    def attempt(*places: int) -> None:
        nonlocal runs
        todo = [Task(policy, seed, (Variation(name, values[i]),)) for i in places for seed in seeds]

        known = {task: Figure(task, value) for task in todo if cells and (value := cells.find(task)) is not None}
        runs += len(known)

        def told(figure: Figure) -> None:
            nonlocal runs
            runs += 1
            if done is not None:
                done(runs)
            if cells is not None and figure.error is None:
                cells.keep(figure.task, figure.value)

        missing = [task for task in todo if task not in known]
        ran = [] if not missing else run_tasks(measure, missing, _lost, workers, told, small=True)
        made = iter(ran)
        figures = [known[task] if task in known else next(made) for task in todo]
        bad = next((figure.error for figure in figures if figure.error is not None), None)
        if bad is not None:
            raise bad
        for number, i in enumerate(places):
            own = [f.value for f in figures[number * len(seeds) : (number + 1) * len(seeds)]]
            met = sum(target.is_met(value) for value in own) * 2 > len(own)
            tried[i] = Point(values[i], tuple(own), met)

    if every:
        attempt(*range(len(values)))
    else:
        low, high = 0, len(values) - 1
        attempt(low, high) if high > low else attempt(high)
        while tried[high].met and not tried[low].met and high - low > 1:
            middle = (low + high) // 2
            attempt(middle)
            low, high = (low, middle) if tried[middle].met else (middle, high)
    return CapacityPlan(name, target, policy, tuple(tried[i] for i in sorted(tried)))
