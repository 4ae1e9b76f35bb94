"""The common part of the growth studies: one checkpoint per seed, arms that branch from it, and intervals over seeds.

Arms of a seed have the same start and see the same data in the same order, so what they have in common cancels in
their paired differences.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from argosy.errors import ArgosyError
from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.make import Experiment
from argosy.grow.training.clock import Price, VirtualClock
from argosy.grow.training.passes import threads
from argosy.grow.training.recipe import STUDIED, Recipe
from argosy.grow.training.run import Run
from argosy.report.stats import Interval, interval, paired_difference
from argosy.seeding import stream
from argosy.sim.pool import run_tasks
from argosy.slack import RELATIVE_SLACK

Row = dict[str, Any]
Progress = Callable[[int, int], None]
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")
Setting = TypeVar("Setting", bound="BaseSetting")


@dataclass(frozen=True, kw_only=True)
class BaseSetting:
    """Holds which network is trained on which data for how long. Runs are numbered; no table uses their seeds."""

    data: Data | str = "fashion-mnist"
    train: int | None = 4000  # pictures; None: all
    size: int | None = 14  # pictures are scaled to size x size
    model: str = "cnn1"
    model_options: Mapping[str, Any] = field(default_factory=lambda: {"width": 8})
    budget: float = 15.0  # in the clock's seconds; an epoch without growth takes one
    clock: Price | VirtualClock = "free"
    recipe: Recipe = STUDIED
    seed: int = 0  # the seeds of all runs are drawn from it

    def pictures(self) -> Data:
        """Return the data; load them if only their name is given."""
        return self.data if isinstance(self.data, Data) else load(self.data, train=self.train, size=self.size)

    def check(self) -> None:
        """Raise an error if the setting is wrong, before anything is trained."""

    def ready(self) -> Self:
        """Return the same setting, checked, and with its data, so that they are loaded once."""
        self.check()
        return replace(self, data=self.pictures())

    def time(self) -> VirtualClock:
        """Return a new clock."""
        return copy.deepcopy(self.clock) if isinstance(self.clock, VirtualClock) else VirtualClock(growth=self.clock)

    def seed_of(self, number: int) -> int:
        """Return the seed of a run."""
        return int(stream(self.seed, "growth study run", number).integers(2**31))

    def trunk(self, number: int, share: float) -> Run:
        """Return a run trained by whole epochs until this share of the budget is used."""
        if not (math.isfinite(self.budget) and self.budget > 0):
            raise GrowError(f"the budget must be above 0, not {self.budget:g}", hint="give seconds of the clock")
        data = self.pictures()
        options = {"classes": data.classes, "channels": data.channels, **self.model_options}
        run = Experiment(
            self.model,
            options,
            data,
            (),
            0,
            share * self.budget,
            self.budget,
            self.time(),
            self.recipe,
            (self.seed_of(number),),
        ).begin(0)
        need_time(run, share)
        return run

    def to_dict(self) -> Row:
        """Return this as plain data, for JSON."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def need_time(run: Run, share: float) -> None:
    """Raise an error if no time is left after training to this share of the budget."""
    if run.time_left <= 0:
        raise GrowError(
            f"no time is left after training whole epochs to {share:.0%} of a budget of {run.budget:g}",
            hint="give a longer budget",
        )


def follow(trunk: Run, decisions: Iterable[Surgery | None], *, reset: bool | None = None) -> Run:
    """Return a branch with these decisions at successive epochs; `reset` overrides the recipe for the learning rate."""
    arm = trunk.fork()
    for decision in decisions:
        if arm.time_left > 0:
            arm.grow(() if decision is None else (decision,), reset=reset)
            arm.train_epoch()
    return arm


def priced(trunk: Run, price: Price) -> Run:
    """Return a branch in which growth costs time from now on."""
    arm, old = trunk.fork(), trunk.clock
    if not isinstance(old, VirtualClock):
        raise GrowError("a price needs a virtual clock")
    clock = VirtualClock(
        old.epoch_s, per_parameter=old.per_parameter, per_flop=old.per_flop, growth=price, replica_gain=old.replica_gain
    )
    clock.advance(old.now())
    clock.size(arm.parameters, arm.flops() if clock.needs_flops else None, arm.surgeries)
    arm.clock = clock
    return arm


def train_until(run: Run, time: float) -> None:
    """Train until the clock shows this time; an unfinished epoch ends there."""
    while run.time_left > 0 and run.clock.now() < time * (1 - RELATIVE_SLACK):
        run.train_epoch(lambda now: now >= time * (1 - RELATIVE_SLACK))


def finish(run: Run) -> dict[str, float]:
    """Train to the end of the budget, and return validation and test accuracy."""
    while run.time_left > 0:
        run.train_epoch()
    return score(run)


def score(run: Run) -> dict[str, float]:
    """Return the network's validation and test accuracy."""
    return {"validation": run.evaluate("validation"), "test": run.evaluate("test")}


@dataclass
class _Guarded(Generic[Task, Outcome]):
    """Wraps work so that it returns an error instead of raising it, and the error can be sent to another process."""

    work: Callable[[Task], Outcome]
    threads: int  # 0: as torch is set

    def __call__(self, task: Task) -> Outcome | ArgosyError:
        try:
            with threads(self.threads):
                return self.work(task)
        except ArgosyError as problem:
            return problem


def run_all(
    work: Callable[[Task], Outcome],
    tasks: Sequence[Task],
    workers: int | None,
    progress: Progress | None,
    threads_each: int = 1,
) -> list[Outcome]:
    """Return the results of all tasks, in their order. `work` is sent to other processes."""
    done = 0

    def finished(outcome: Outcome | ArgosyError) -> None:
        nonlocal done
        if isinstance(outcome, ArgosyError):
            raise outcome
        done += 1
        if progress:
            progress(done, len(tasks))

    if progress:
        progress(0, len(tasks))
    outcomes = run_tasks(_Guarded(work, threads_each), tasks, lambda task, problem: problem, workers, finished)
    return [outcome for outcome in outcomes if not isinstance(outcome, ArgosyError)]


def numbers(seeds: int) -> range:
    """Return the numbers of the runs of a study with this many seeds."""
    if seeds < 1:
        raise GrowError(f"{seeds} seeds are too few", hint="give 1 or more; an interval needs 2")
    return range(seeds)


def study_arms(
    setting: Setting,
    one_seed: Callable[[Setting], Callable[[int], Row]],
    pairs: Iterable[tuple[str, str]],
    times: Sequence[str],
    seeds: int,
    workers: int | None,
    progress: Progress | None,
) -> Row:
    """Train all arms with this many fresh seeds. `progress` is called with (runs done, runs in all).

    `one_seed(setting)` returns a function that trains the arms of the run with a given number. Its rows have "arms" and
    these `times`, which are the same for all seeds.
    """
    runs = numbers(seeds)
    setting = setting.ready()
    rows = run_all(one_seed(setting), runs, workers, progress)
    return {
        "setting": setting.to_dict(),
        "seeds": [setting.seed_of(number) for number in runs],
        **{time: rows[0][time] for time in times},
        **together([row["arms"] for row in rows], pairs),
    }


def need_decisions(chosen: Sequence[Surgery | None]) -> None:
    """Raise an error if nothing is grown, or if there is any other surgery than deepening."""
    if not any(chosen):
        raise GrowError("nothing is chosen to grow", hint='give for instance chosen=(Surgery("deepen", "4"),)')
    other = [str(s) for s in chosen if s is not None and s.op != "deepen"]
    if other:
        raise GrowError(f"this study deepens; it cannot {' or '.join(other)}", hint="choose deepenings only")


def together(scores: Sequence[Mapping[str, Mapping[str, float]]], pairs: Iterable[tuple[str, str]]) -> Row:
    """Collect the arms of all seeds: their accuracies, their means, and the differences of these pairs of arms."""
    parts = {part: {arm: [seed[arm][part] for seed in scores] for arm in scores[0]} for part in ("validation", "test")}
    test = parts["test"]
    return {
        **parts,
        "means": {arm: as_dict(interval(values)) for arm, values in test.items()},
        "differences": {f"{a} - {b}": difference(test[a], test[b]) for a, b in pairs if a in test and b in test},
    }


def difference(a: Sequence[float], b: Sequence[float]) -> Row:
    """Return the mean of a − b over seeds with its 95 % interval, and the difference of each seed."""
    return {**as_dict(paired_difference(a, b)), "seeds": [x - y for x, y in zip(a, b, strict=True)]}


def as_dict(found: Interval) -> dict[str, float | int | None]:
    """Return this as plain data, for JSON: None where there is no interval."""
    return {name: None if math.isnan(value) else value for name, value in found._asdict().items()}


def plain(value: Any) -> Any:
    """Return a setting's value as plain data."""
    if isinstance(value, Data):
        counts = {"train": len(value.train_y), "validation": len(value.val_y), "test": len(value.test_y)}
        return {"name": value.name, "shape": list(value.shape), **counts}
    if isinstance(value, VirtualClock):
        names = ("growth", "epoch_s", "per_parameter", "per_flop", "ratios", "replica_gain")
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return plain(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else type(value).__name__
