"""Make a table by training the network with every sequence of decisions.

All arms of a run branch from one checkpoint: the network is trained to the first decision once, then forked for each
option, trained for an epoch, and forked again. Arms of a run therefore have the same start and see the same data in the
same order; they differ only because of the decisions. Time is virtual, so a table is exactly repeatable.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from argosy import __version__
from argosy.errors import ArgosyError, UnknownName
from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.models import build
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import sites
from argosy.grow.tables.growth_table import SCENARIOS, Table
from argosy.grow.tables.partial import Partial
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.recipe import STUDIED, Recipe
from argosy.grow.training.run import Run
from argosy.seeding import stream
from argosy.sim.pool import run_tasks
from argosy.slack import RELATIVE_SLACK

Floats = tuple[float, ...]
ARMS = ("none_plain", "none_reset")
_ARMS_TASK = -1  # instead of a first option: the two arms in which nothing grows


@dataclass(frozen=True)
class Experiment:
    """Holds what a table measures. `start` is the time of the first decision; one follows after each epoch."""

    model: str
    model_options: Mapping[str, Any]
    data: Data
    options: tuple[Surgery | None, ...]
    decisions: int
    start: float
    budget: float
    clock: VirtualClock
    recipe: Recipe
    seeds: tuple[int, ...]  # of each run

    def begin(self, run: int) -> Run:
        """Return a run trained up to its first decision."""
        state = Run(
            self.network(run), self.data, self.recipe, copy.deepcopy(self.clock), self.seeds[run], budget=self.budget
        )
        while state.time_left > 0 and state.clock.now() < self.start * (1 - RELATIVE_SLACK):
            state.train_epoch()
        return state

    def network(self, run: int) -> nn.Module:
        """Return the network that this run begins with."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seeds[run])
            return build(self.model, **self.model_options)


@dataclass
class Worker:
    """Does the tasks of an experiment, in any process: (run, first option) → all sequences that begin with it."""

    experiment: Experiment
    _trunk: tuple[int, Run] | None = field(default=None, repr=False)  # the last run that was begun, and its number

    def __call__(self, task: tuple[int, int]) -> dict[str, Any] | ArgosyError:
        run, first = task
        try:
            torch.set_num_threads(1)
            if self._trunk is None or self._trunk[0] != run:
                self._trunk = (run, self.experiment.begin(run))
            trunk = self._trunk[1]
            if first == _ARMS_TASK:
                return {"run": run, "first": first, "found": self._nothing(trunk)}
            found = self._follow(trunk.fork(), (), (), (trunk.evaluate("validation"),), [first])
            return {"run": run, "first": first, "found": found}
        except ArgosyError as problem:
            return problem

    def _follow(
        self, state: Run, sequence: tuple[int, ...], times: Floats, scores: Floats, choices: Iterable[int]
    ) -> list[list[Any]]:
        """Return every sequence that continues from here: [decisions, times, accuracies so far, validation, test]."""
        experiment = self.experiment
        if len(sequence) == experiment.decisions:
            return [[sequence, times, scores, *_finish(state)]]
        found = []
        for choice in choices:
            arm = state.fork()
            surgery = experiment.options[choice]
            left = arm.time_left
            if left > 0:
                arm.grow(() if surgery is None else (surgery,))
                arm.train_epoch()
            every = range(len(experiment.options))
            after = (*scores, arm.evaluate("validation"))
            found += self._follow(arm, (*sequence, choice), (*times, left), after, every)
        return found

    def _nothing(self, trunk: Run) -> dict[str, tuple[float, float]]:
        """Return the two arms in which nothing grows, without and with the learning rate reset at each decision."""
        reset = trunk.fork()
        for _ in range(self.experiment.decisions):
            if reset.time_left > 0:
                reset.grow((), reset=True)
                reset.train_epoch()
        return {"none_plain": _finish(trunk.fork()), "none_reset": _finish(reset)}


def _finish(state: Run) -> tuple[float, float]:
    """Train to the end of the budget, and return validation and test accuracy."""
    while state.time_left > 0:
        state.train_epoch()
    return state.evaluate("validation"), state.evaluate("test")


def make(
    model: str,
    data: Data | str,
    scenario: str,
    decisions: int = 3,
    runs: int = 3,
    options: Sequence[Surgery | None] | None = None,
    budget: float = 20.0,
    clock: str | VirtualClock = "free",
    recipe: Recipe | None = None,
    workers: int | None = 2,
    progress: Callable[[int, int], None] | None = None,
    *,
    model_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    output: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
) -> Table:
    """Train every sequence of `decisions` options, `runs` times from different seeds.

    `budget` is in the clock's seconds. With a named clock ("free": growth costs no time; "parameters", "flops": it
    does) the network's first epoch takes one second, so the budget is the number of epochs without growth. `options`
    default to deepening each layer that can be deepened, and doing nothing. `progress` is called with (sequences done,
    sequences in all). With `output` the table is written there, and an interrupted call continues where it stopped.
    """
    data = load(data) if isinstance(data, str) else data
    experiment = _experiment(
        model, data, scenario, decisions, runs, options, budget, clock, recipe or STUDIED, model_options or {}, seed
    )
    partial = Partial(output, _settings(experiment, scenario))
    tasks = [(run, first) for run in range(runs) for first in (_ARMS_TASK, *range(len(experiment.options)))]
    done = {(part["run"], part["first"]) for part in partial.parts}
    each = len(experiment.options) ** (decisions - 1)

    def tell() -> None:
        if progress:
            progress(
                sum(each for part in partial.parts if part["first"] != _ARMS_TASK),
                runs * len(experiment.options) * each,
            )

    def finished(part: dict[str, Any] | ArgosyError) -> None:
        if isinstance(part, ArgosyError):
            raise part
        partial.add(part)
        tell()

    tell()
    todo = [task for task in tasks if task not in done]
    run_tasks(Worker(experiment), todo, lambda task, problem: problem, workers, finished)
    table = _table(experiment, scenario, partial.parts, about or {})
    if output is not None:
        table.write(output)
        partial.remove()
    return table


def _experiment(
    model: str,
    data: Data,
    scenario: str,
    decisions: int,
    runs: int,
    options: Sequence[Surgery | None] | None,
    budget: float,
    clock: str | VirtualClock,
    recipe: Recipe,
    model_options: Mapping[str, Any],
    seed: int,
) -> Experiment:
    if scenario not in SCENARIOS:
        raise UnknownName("scenario", scenario, SCENARIOS)
    for name, value in (("decisions", decisions), ("runs", runs)):
        if value < 1:
            raise GrowError(f"{name} = {value} is too small", hint="give 1 or more")
    if not (math.isfinite(budget) and budget > 0):
        raise GrowError(f"the budget must be above 0, not {budget:g}", hint="give seconds of the clock")
    if not isinstance(clock, VirtualClock):
        clock = VirtualClock(growth=clock)  # type: ignore[arg-type]  # raises an error if the name is unknown
    full = {"classes": data.classes, "channels": data.channels, **model_options}
    try:
        network = build(model, **full)
    except TypeError as problem:
        raise GrowError(f"the network {model} cannot be built: {problem}") from None
    if options is None:
        found = sites(network, data.example())
        options = [Surgery("deepen", site.name) for site in found if site.original and site.can_deepen]
    chosen = tuple(dict.fromkeys(options))
    if None not in chosen:
        chosen = (*chosen, None)
    if len(chosen) < 2:
        raise GrowError(f"there is nothing to decide for {model}: no layer can be grown")
    seeds = tuple(int(stream(seed, "growth table run", run).integers(2**31)) for run in range(runs))
    start = SCENARIOS[scenario] * budget
    return Experiment(model, full, data, chosen, decisions, start, budget, clock, recipe, seeds)


def _settings(experiment: Experiment, scenario: str) -> dict[str, Any]:
    """Return everything that the results depend on, as plain data."""
    data, clock = experiment.data, experiment.clock
    return {
        "model": experiment.model,
        "network": {"options": dict(experiment.model_options), "input": list(data.shape)},
        "data": {
            "name": data.name,
            "train": len(data.train_y),
            "validation": len(data.val_y),
            "test": len(data.test_y),
            "sum": float(data.train_x.double().abs().sum() + (data.train_y + 1).double().sum()),
        },
        "scenario": scenario,
        "options": [None if option is None else option.to_dict() for option in experiment.options],
        "decisions": experiment.decisions,
        "budget": experiment.budget,
        "clock": {
            "growth": clock.growth,
            "epoch_s": clock.epoch_s,
            "per_parameter": clock.per_parameter,
            "per_flop": clock.per_flop,
            "ratios": clock.ratios,
            "replica_gain": clock.replica_gain,
        },
        "recipe": experiment.recipe.to_dict(),
        "seeds": list(experiment.seeds),
    }


def _table(
    experiment: Experiment, scenario: str, parts: Sequence[Mapping[str, Any]], about: Mapping[str, Any]
) -> Table:
    every = list(itertools.product(range(len(experiment.options)), repeat=experiment.decisions))
    row_of = {sequence: row for row, sequence in enumerate(every)}
    runs = len(experiment.seeds)
    times = np.full((runs, len(every), experiment.decisions), np.nan)
    accuracy = np.full((2, len(every), runs), np.nan)
    progress = np.full((runs, len(every), experiment.decisions + 1), np.nan)
    arms = {arm: {split: np.full(runs, np.nan) for split in ("validation", "test")} for arm in ARMS}
    for part in parts:
        run = part["run"]
        if part["first"] == _ARMS_TASK:
            for arm, scores in part["found"].items():
                arms[arm]["validation"][run], arms[arm]["test"][run] = scores
            continue
        for sequence, left, scores, validation, test in part["found"]:
            row = row_of[tuple(sequence)]
            times[run, row], progress[run, row] = left, scores
            accuracy[:, row, run] = validation, test
    settings = _settings(experiment, scenario)
    made = {name: settings[name] for name in ("network", "data", "clock", "recipe", "seeds")}
    versions = {"argosy": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return Table(
        model=experiment.model,
        data=experiment.data.name,
        scenario=scenario,
        options=experiment.options,
        sequences=np.array(every, dtype=np.int64),
        time_left=times.mean(axis=0),  # time is virtual, so every run takes the same time
        validation=accuracy[0],
        test=accuracy[1],
        budget=experiment.budget,
        arms=arms,
        progress=progress.mean(axis=0),
        about={**made, "versions": versions, **about},
    )
