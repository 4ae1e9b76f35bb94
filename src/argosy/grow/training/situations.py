"""Describe to an agent the situation in which it decides, and store this description as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import nn

from argosy.grow.agents.base import Curve, DataSize, Price, RecipeFacts, Situation
from argosy.grow.data import Data
from argosy.grow.describe import LayerGraph, describe
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.choices import plain
from argosy.grow.training.clock import Clock, VirtualClock
from argosy.grow.training.journal import Line
from argosy.grow.training.run import Run

PARTS = {"data": DataSize, "recipe": RecipeFacts, "price": Price}


def situation_of(
    original: nn.Module,
    example: Any,
    options: tuple[Surgery, ...],
    time_left: float,
    time_budget: float,
    done: Iterable[tuple[float, Surgery]],
    **more: Any,
) -> Situation:
    """Describe the situation to an agent, for the trainer and for live jobs.

    `original` is the network as its author wrote it; `done` lists the surgeries since then, with the time left at each;
    `more` are further fields of `Situation`.
    """
    return Situation(
        graph=describe(original, example),
        options=options,
        time_left=time_left,
        time_budget=time_budget,
        done=tuple(done),
        **more,
    )


def facts_of(run: Run, lines: Sequence[Line]) -> dict[str, Any]:
    """Return what a run knows about itself, as fields of `Situation`."""
    recipe, data = run.recipe, run.data
    size = None
    if isinstance(data, Data):
        size = DataSize(len(data.train_y), data.classes, data.train_x[0].numel())
    return {
        "curve": curve_of(lines),
        "parameters": run.parameters,
        "flops": _flops(run),
        "data": size,
        "recipe": RecipeFacts(recipe.optimizer, recipe.lr, run.lr, recipe.schedule, recipe.batch),
        "price": price_of(run.clock),
    }


def curve_of(lines: Sequence[Line]) -> Curve:
    """Return the learning curve of the present network, without epochs that were given up."""
    kept = [line for line in lines if not line.discarded]
    return Curve(
        times=tuple(line.time for line in kept),
        loss=tuple(_number(line.loss) for line in kept),
        score=tuple(_number(line.validation) for line in kept),
        validation_loss=tuple(_number(line.validation_loss) for line in kept),
    )


def price_of(clock: Clock) -> Price | None:
    """Return what growth costs: nothing, or time on the clock. None on a real clock, where it is not known before."""
    if not isinstance(clock, VirtualClock):
        return None
    if clock.growth == "free" and not clock.ratios:
        return Price("free")
    return Price("time", "parameters" if clock.growth == "parameters" else "flops")


def to_dict(situation: Situation) -> dict[str, Any]:
    """Return everything but the graph as plain data."""
    return {f.name: plain(getattr(situation, f.name)) for f in fields(situation) if f.name != "graph"}


def from_dict(data: Mapping[str, Any], graph: LayerGraph) -> Situation:
    """Return the situation that `to_dict` described."""
    found = dict(data)
    found["options"] = tuple(Surgery.from_dict(surgery) for surgery in data["options"])
    found["done"] = tuple((left, Surgery.from_dict(surgery)) for left, surgery in data["done"])
    for name, kind in PARTS.items():
        if data.get(name) is not None:
            found[name] = kind(**data[name])
    if data.get("curve") is not None:
        found["curve"] = Curve(**{name: tuple(map(_number, values)) for name, values in data["curve"].items()})
    return Situation(graph=graph, **found)


def _flops(run: Run) -> float | None:
    try:
        return run.flops()
    except Exception:  # an operation that torch cannot count is no reason not to grow
        return None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
