"""A table of what growing, resetting the learning rate, replicating or doing nothing led to, at moments of training.

A growth table (`growth_table.py`) has every sequence of decisions of one network. A branch table has fewer decisions of
more kinds, but everything that was known at each of them: the learning curve, sizes, recipe, price. So tables of many
networks and data sets together teach when growth pays. All arms of a decision point branch from the same state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from argosy.atomic import writing
from argosy.grow.agents.base import Curve, DataSize, Price, PriceKind, RecipeFacts, Situation
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery

if TYPE_CHECKING:
    from argosy.grow.describe import LayerGraph

FORMAT = "argosy branch table 1"
SHIPPED = Path(__file__).with_name("shipped_branches")
DIGITS = 4  # significant digits of the curves; more would be noise
MAKE = "make it again: python -m argosy.grow.study.make_branches"


@dataclass(frozen=True)
class Arm:
    """Holds one way to go on, and what it led to at the end of the budget.

    `failed` says that the loss was not finite; the scores are then those before that.
    """

    surgeries: tuple[Surgery, ...]
    reset: bool | None  # of the learning rate; None: as the recipe says
    price: PriceKind
    validation: float
    test: float
    parameters: int
    flops: float
    epochs: int  # trained after the decision
    failed: bool = False

    @property
    def is_nothing(self) -> bool:
        """Return whether this arm leaves the network alone."""
        return not self.surgeries and not self.reset

    @property
    def name(self) -> str:
        """Return what is done, in words."""
        return " and ".join(map(str, self.surgeries)) or ("reset" if self.reset else "none")


@dataclass(frozen=True)
class DecisionPoint:
    """Holds a moment at which GPUs became available, what was known then, and the arms that branch from it."""

    scenario: str
    time: float
    curve: Curve
    parameters: int
    flops: float
    lr: float
    epoch_s: float
    done: tuple[tuple[float, Surgery], ...]  # with the time that was left at each
    arms: tuple[Arm, ...]

    @property
    def nothing(self) -> Arm:
        """Return the arm that leaves the network alone."""
        for arm in self.arms:
            if arm.is_nothing:
                return arm
        raise GrowError(f"the decision point {self.scenario} has no arm that does nothing", hint=MAKE)


@dataclass(frozen=True)
class BranchTable:
    """Holds the decision points of one network, data set and recipe: a list for each run, from different seeds."""

    family: str
    model: str
    options: Mapping[str, Any]  # with which the network is built
    shape: tuple[int, ...]  # of one input
    data: str
    counts: Mapping[str, int]  # of examples: train, validation, test; and of classes
    recipe: Mapping[str, Any]
    budget: float
    runs: tuple[tuple[DecisionPoint, ...], ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return a short name, such as `residual-cifar10-sgd`."""
        return f"{self.family}-{self.data}-{self.recipe['optimizer']}"

    @property
    def graph(self) -> LayerGraph:
        """Return the layers of the network before growth."""
        return _graph(self.model, json.dumps(dict(self.options), sort_keys=True), self.shape)

    def situation(self, point: DecisionPoint, price: PriceKind = "free") -> Situation:
        """Return what an agent is told at a decision point."""
        options = dict.fromkeys(s for arm in point.arms for s in arm.surgeries if len(arm.surgeries) == 1)
        recipe = self.recipe
        return Situation(
            graph=self.graph,
            options=tuple(options),
            time_left=self.budget - point.time,
            time_budget=self.budget,
            done=point.done,
            epoch_s=point.epoch_s,
            curve=point.curve,
            parameters=point.parameters,
            flops=point.flops,
            data=DataSize(self.counts["train"], self.counts["classes"], math.prod(self.shape)),
            recipe=RecipeFacts(recipe["optimizer"], recipe["lr"], point.lr, recipe["schedule"], recipe["batch"]),
            price=Price(price),
        )

    def write(self, path: str | Path) -> None:
        """Write the table as JSON with a line per decision point."""
        head = {
            "format": FORMAT,
            "family": self.family,
            "model": self.model,
            "options": dict(self.options),
            "shape": list(self.shape),
            "data": self.data,
            "counts": dict(self.counts),
            "recipe": dict(self.recipe),
            "budget": self.budget,
            "about": dict(self.about),
        }
        lines = [
            "  [\n   " + ",\n   ".join(json.dumps(plain_point(p), allow_nan=False) for p in run) + "\n  ]"
            for run in self.runs
        ]
        text = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False)[:-2]
        with writing(path) as temporary:
            temporary.write_text(text + ',\n "runs": [\n' + ",\n".join(lines) + "\n ]\n}\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a table; raise an error if something is missing."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as problem:
            raise GrowError(f"cannot be read: {problem.strerror}", where=str(path), hint=MAKE) from None
        except ValueError as problem:
            raise GrowError(f"the file is not JSON: {problem}", where=str(path), hint=MAKE) from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise GrowError(f"this is not a branch table: its format is not {FORMAT!r}", where=str(path), hint=MAKE)
        try:
            return cls(
                found["family"],
                found["model"],
                found["options"],
                tuple(found["shape"]),
                found["data"],
                found["counts"],
                found["recipe"],
                float(found["budget"]),
                tuple(tuple(map(read_point, run)) for run in found["runs"]),
                found["about"],
            )
        except (KeyError, TypeError, ValueError, GrowError) as wrong:
            raise GrowError(f"the table is incomplete or damaged: {wrong!r}", where=str(path), hint=MAKE) from None


def read_all(folder: str | Path = SHIPPED) -> list[BranchTable]:
    """Return the branch tables of a folder, by default those that come with Argosy."""
    found = [BranchTable.read(path) for path in sorted(Path(folder).glob("*.json"))]
    if not found:
        raise GrowError("there is no branch table (*.json) in this folder", where=str(folder), hint=MAKE)
    return found


@lru_cache(maxsize=128)
def _graph(model: str, options: str, shape: Sequence[int]) -> LayerGraph:
    import torch

    from argosy.grow.describe import describe
    from argosy.grow.models import build

    with torch.random.fork_rng(devices=[]):
        return describe(build(model, **json.loads(options)), torch.zeros(2, *shape))


def plain_point(point: DecisionPoint) -> dict[str, Any]:
    """Return a decision point as plain data; numbers of curves and scores are shortened."""
    curve = {name: _short(getattr(point.curve, name)) for name in ("times", "loss", "score", "validation_loss")}
    return {
        "scenario": point.scenario,
        "time": point.time,
        "curve": {name: values for name, values in curve.items() if values},
        "parameters": point.parameters,
        "flops": point.flops,
        "lr": _number(point.lr),
        "epoch_s": point.epoch_s,
        "done": [[left, _surgery(s)] for left, s in point.done],
        "arms": [
            [
                [_surgery(s) for s in arm.surgeries],
                arm.reset,
                arm.price,
                round(arm.validation, 5),
                round(arm.test, 5),
                arm.parameters,
                arm.flops,
                arm.epochs,
                arm.failed,
            ]
            for arm in point.arms
        ],
    }


def read_point(found: Mapping[str, Any]) -> DecisionPoint:
    """Return the decision point that plain data describe."""
    arms = tuple(
        Arm(tuple(map(_read_surgery, surgeries)), *rest)  # the other entries are in the order of the fields
        for surgeries, *rest in found["arms"]
    )
    point = DecisionPoint(
        found["scenario"],
        found["time"],
        Curve(**{name: tuple(_nan(v) for v in values) for name, values in found["curve"].items()}),
        found["parameters"],
        found["flops"],
        found["lr"],
        found["epoch_s"],
        tuple((left, _read_surgery(s)) for left, s in found["done"]),
        arms,
    )
    _ = point.nothing  # every point has it
    return point


def _surgery(surgery: Surgery) -> list[Any]:
    return [surgery.op, surgery.site, surgery.factor, surgery.init]


def _read_surgery(found: Sequence[Any]) -> Surgery:
    op, site, factor, init = found
    return Surgery(op, site, factor, init)


def _short(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(v) else _number(v) for v in values]


def _number(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
