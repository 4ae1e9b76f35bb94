"""Study whether growing pays, with arms that branch from one checkpoint per seed: early, in the middle, or late.

    none            the network does not grow
    none_reset      the same, but the learning rate is reset at the same decisions as when growing
    chosen          a sequence that was chosen before, on the validation data of other seeds
    agent           what an agent decides
    random          the mean of some random sequences of the same options
    replicas        the spare GPUs go to more copies of the network instead
    chosen, PRICE   as chosen, but from the first decision on growth is paid for in time: by parameters, by FLOPs

Spare GPUs pay for growth, except where a price is named. A network that does not grow costs the same at every price, so
the arms with a price are also compared with `none`. Figures are test accuracies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import UnknownName
from argosy.grow.agents.base import Agent
from argosy.grow.errors import GrowError
from argosy.grow.study.branches import (
    BaseSetting,
    Progress,
    Row,
    difference,
    finish,
    follow,
    need_time,
    numbers,
    priced,
    run_all,
    together,
)
from argosy.grow.study.history import History
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import SCENARIOS, Table
from argosy.grow.training.choices import agent_of, options_of
from argosy.grow.training.clock import Price, VirtualClock
from argosy.grow.training.run import Run
from argosy.seeding import stream

Sequences = Mapping[str, Sequence[Surgery | None]]

PAIRS = (
    ("chosen", "none"),
    ("chosen", "none_reset"),
    ("chosen", "random"),
    ("chosen", "replicas"),
    ("agent", "none"),
    ("agent", "none_reset"),
    ("agent", "random"),
    ("agent", "replicas"),
    ("agent", "chosen"),
    ("replicas", "none"),
    ("replicas", "none_reset"),
)


@dataclass(frozen=True, kw_only=True)
class Setting(BaseSetting):
    """Holds the setting. `chosen` has one sequence per scenario, with an entry per decision (see `chosen_from`)."""

    chosen: Sequences
    scenarios: tuple[str, ...] = ("early", "middle", "late")
    decisions: int = 3
    options: tuple[Surgery | None, ...] | None = None  # None: deepen any layer that can be deepened, or do nothing
    agent: Agent | Path | str | None = None  # an object, a name or a file; None: there is no such arm
    random_sequences: int = 6
    replicas: float = 2.0
    prices: tuple[Price, ...] = ("parameters", "flops")

    def check(self) -> None:
        """Raise an error if the setting is wrong, before anything is trained."""
        for name in self.scenarios:
            if name not in SCENARIOS:
                raise UnknownName("scenario", name, SCENARIOS)
            if len(self.chosen.get(name, ())) != self.decisions:
                what = f"chosen has {len(self.chosen.get(name, ()))} decisions for {name}, not {self.decisions}"
                raise GrowError(what, hint="give an entry per decision; None does nothing")
        for name, value in (("decisions", self.decisions), ("random_sequences", self.random_sequences)):
            if value < 1:
                raise GrowError(f"{name} = {value} is too small", hint="give 1 or more")
        if not self.scenarios:
            raise GrowError("there is no scenario to study", hint=f"give one or more of {', '.join(SCENARIOS)}")
        for price in self.prices:
            VirtualClock(growth=price)  # raises an error if the name is unknown
        _agent(self.agent)


def chosen_from(tables: Iterable[Table]) -> dict[str, tuple[Surgery | None, ...]]:
    """Return the best sequence of each table by its validation results, by scenario."""
    found: dict[str, tuple[Surgery | None, ...]] = {}
    for table in tables:
        if table.scenario in found:
            raise GrowError(
                f"there are two tables for the scenario {table.scenario}",
                hint="give those of one network and one data set",
            )
        found[table.scenario] = table.surgeries(table.best_sequence("validation"))
    return found


@dataclass
class _Seed:
    """Trains all arms of one scenario and seed."""

    setting: Setting

    def __call__(self, task: tuple[str, int]) -> Row:
        setting, (scenario, number) = self.setting, task
        history = History(setting.trunk(number, 0.0))
        history.train_until(SCENARIOS[scenario])
        trunk = history.run
        need_time(trunk, SCENARIOS[scenario])
        chosen, nothing = tuple(setting.chosen[scenario]), (None,) * setting.decisions
        options = setting.options if setting.options is not None else options_of(trunk.model, trunk.example, ["deepen"])
        grow = tuple(dict.fromkeys(option for option in options if option is not None))
        if not grow:
            raise GrowError(f"there is nothing to decide for {setting.model}: no layer can be grown")
        replicate = Surgery("replicate", factor=setting.replicas)
        arms = {
            "none": finish(trunk.fork()),
            "none_reset": finish(follow(trunk, nothing, reset=True)),
            "chosen": finish(follow(trunk, chosen)),
            "replicas": finish(follow(trunk, [replicate])),
        }
        sequences = _random(setting, scenario, number, grow)
        each = [finish(follow(trunk, sequence)) for sequence in sequences]
        arms["random"] = {part: sum(score[part] for score in each) / len(each) for part in each[0]}
        random = [{"sequence": _names(s), **score} for s, score in zip(sequences, each, strict=True)]
        row: Row = {"begin": trunk.clock.now(), "arms": arms, "random": random}
        agent = _agent(setting.agent)
        if agent is not None:
            run, taken = _ask(agent, history, grow, setting.decisions)
            arms["agent"] = finish(run)
            row["agent"] = taken
        for price in setting.prices:
            run = follow(priced(trunk, price), chosen)
            arms[f"chosen, {price}"] = finish(run)
            row.setdefault("epochs", {})[price] = run.epochs
        return row


def _random(setting: Setting, scenario: str, number: int, grow: Sequence[Surgery]) -> list[tuple[Surgery | None, ...]]:
    rng = stream(setting.seed, f"random growth in the study, {scenario}", number)
    options = (*grow, None)
    return [
        tuple(options[int(rng.integers(len(options)))] for _ in range(setting.decisions))
        for _ in range(setting.random_sequences)
    ]


def _agent(agent: Agent | Path | str | None) -> Agent | None:
    """Return a fresh copy of the agent, so that no seed depends on another."""
    return copy.deepcopy(agent_of(agent))


def _ask(agent: Agent, trunk: History, options: tuple[Surgery, ...], decisions: int) -> tuple[Run, list[list[str]]]:
    """Return a branch that does what an agent decides, asked as in training."""
    arm = trunk.fork()
    taken: list[list[str]] = []
    for decision in range(decisions):
        if arm.run.time_left <= 0:
            break
        answer = arm.ask(agent, options, decisions - decision)
        arm.train_epoch()
        taken.append([str(surgery) for surgery in answer])
    return arm.run, taken


def _names(sequence: Iterable[Surgery | None]) -> list[str]:
    return ["nothing" if surgery is None else str(surgery) for surgery in sequence]


def study(setting: Setting, seeds: int = 10, workers: int | None = 2, progress: Progress | None = None) -> Row:
    """Train every scenario with this many fresh seeds. `progress` is called with (runs done, runs in all)."""
    runs = numbers(seeds)
    setting = setting.ready()
    tasks = [(scenario, number) for scenario in setting.scenarios for number in runs]
    rows = run_all(_Seed(setting), tasks, workers, progress)
    scenarios = {
        name: _scenario(setting, name, [row for task, row in zip(tasks, rows, strict=True) if task[0] == name])
        for name in setting.scenarios
    }
    return {"setting": setting.to_dict(), "seeds": [setting.seed_of(n) for n in runs], "scenarios": scenarios}


def _scenario(setting: Setting, name: str, rows: list[Row]) -> Row:
    pairs = [*PAIRS, *((f"chosen, {price}", "none") for price in setting.prices)]
    whole = together([row["arms"] for row in rows], pairs)
    test = whole["test"]
    better = max(("none", "none_reset"), key=lambda arm: sum(test[arm]))
    whole["against_the_better"] = {
        "better": better,  # by the mean over the seeds
        **{arm: difference(test[arm], test[better]) for arm in ("chosen", "agent") if arm in test},
    }
    return {
        "begin": rows[0]["begin"],
        "chosen": _names(setting.chosen[name]),
        **whole,
        "random": [row["random"] for row in rows],
        "agent": [row["agent"] for row in rows if "agent" in row],
        "epochs": {price: [row["epochs"][price] for row in rows] for price in setting.prices},
    }
