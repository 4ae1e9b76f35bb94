"""Growth that never hurts: collapses in 200 growths of usual networks, and jobs lost in 500 random ones.

*growths*: networks of many families on Fashion-MNIST, grown by a random agent, with learning rates up to the edge of
what they bear. Each job is also trained without growth, and with growth as it was before there was a guard (reset to
.01, momentum carried, no clipping, no way back). A collapse is a test accuracy 10 points below that without growth.
*anything*: random networks and recipes, kills and resumptions, shrinking, and growth that destroys the network on
purpose. A job is lost by growth if it ends with an error while its network is grown.

With `--minutes` both parts stop in time, and say how many growths and networks they have tried.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from numpy.random import Generator
from torch import nn

from argosy.grow.data import Data, load
from argosy.grow.errors import Diverged, GrowError
from argosy.grow.models import SIZED, build
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.guard import Guard
from argosy.grow.training.recipe import STUDIED, Recipe
from argosy.grow.training.schedulers import TimedScheduler
from argosy.grow.training.trainer import Event, Trainer
from argosy.seeding import stream
from benchmarks.growth_networks import NOISES, Wild, network, recipe
from benchmarks.harness import Json, Options, Row

SEEDS = (0,)
GROWTHS, NETWORKS = 200, 500
COLLAPSE = 0.10  # of test accuracy below the same job without growth
BUDGET, SHORT = 10.0, 6.0
FAMILIES: tuple[tuple[str, dict[str, Any], str, tuple[float, ...]], ...] = (
    ("plain", {}, "sgd", (0.03, 0.1, 0.3)),
    ("plain", {"activation": "gelu", "norm": False}, "sgd", (0.05, 0.1, 0.2)),
    ("plain", {"activation": "silu", "norm": False}, "sgd", (0.05, 0.1, 0.2)),
    ("plain", {"activation": "gelu", "norm": False}, "adam", (0.002, 0.01)),
    ("residual", {"width": 8}, "sgd", (0.03, 0.1)),
    ("depthwise", {}, "sgd", (0.03, 0.1)),
    ("mlp", {}, "sgd", (0.05, 0.2)),
    ("mlp", {"activation": "gelu"}, "adam", (0.001, 0.01)),
    ("vit", {}, "adam", (0.001, 0.005)),
    ("lstm", {}, "adam", (0.002, 0.01)),
)


class Killed(Exception):
    """Raised to interrupt a training, as a power cut would."""


def run(options: Options) -> Json:
    """Both parts; if the time is limited, each gets half of it."""
    torch.set_num_threads(1)
    growths, networks = (3, 6) if options.quick else (GROWTHS, NETWORKS)
    seconds = 30 * options.minutes if options.minutes is not None else math.inf
    return {"growths": usual_growths(growths, seconds), "anything": anything(networks, seconds)}


def usual_growths(count: int, seconds: float = math.inf) -> Json:
    """Grow usual networks until there were this many growths, and compare with the same jobs without growth."""
    data, number = _fashion(), 0
    rows: list[Json] = []
    until = time.monotonic() + seconds
    while sum(row["growths"] for row in rows) < count and (
        time.monotonic() < until or not any(row["growths"] for row in rows)
    ):
        row = _job(data, stream(SEEDS[0], "growth safety", number), number)
        number += 1
        rows += [row] if row is not None else []
    found = [row for row in rows if row["growths"]]
    return {
        "data": data.name,
        "jobs": len(found),
        "growths": sum(row["growths"] for row in found),
        "wanted": count,
        "new": _outcomes(found, "new"),
        "before": _outcomes(found, "before"),
        "rolled_back": [row for row in found if row["reason"]],
        "jobs_of_each": found,
    }


def _job(data: Data, rng: Generator, number: int) -> Json | None:
    """Train one job in three ways; None if it cannot even be trained without growth."""
    family, more, optimizer, rates = FAMILIES[number % len(FAMILIES)]
    lr = float(rng.choice(rates))
    how = Recipe(batch=32, lr=lr, optimizer=optimizer)  # type: ignore[arg-type]
    old = replace(STUDIED, batch=32, lr=lr, optimizer=how.optimizer)
    times, at = int(rng.integers(1, 4)), float(rng.choice((2.0, 5.0, 8.0)))
    seed = int(rng.integers(2**31))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sized = {"size": data.shape[-1]} if family in SIZED else {}
        net = build(family, classes=data.classes, channels=data.channels, **sized, **more)

    def train(agent: Wild | None, how: Recipe, guard: Guard | None) -> Trainer:
        scheduler = TimedScheduler(BUDGET, up_at=[at], repeat=times)
        clock = VirtualClock()
        trainer = Trainer(net, data, scheduler, agent, recipe=how, clock=clock, seed=seed, guard=guard, progress=False)
        trainer.fit()
        return trainer

    try:
        alone = train(None, how, None).history.test or 0.0
    except Diverged:
        return None
    new = train(Wild(seed), how, Guard())
    back = new.history.rolled_back
    grown = [d for d in new.history.decisions if d.allocation == "up" and d.surgeries and not d.refused]
    try:
        before = train(Wild(seed), old, None).history.test
    except GrowError:
        before = None
    return {
        "family": "-".join([family, *map(str, more.values())]),
        "optimizer": optimizer,
        "lr": lr,
        "at": at,
        "growths": sum(len(d.surgeries) for d in grown),
        "alone": alone,
        "new": new.history.test,
        "before": before,
        "reason": back[0].why if back else "",
    }


def _outcomes(rows: Sequence[Json], arm: str) -> Json:
    """Count what became of the jobs."""
    gains = [row[arm] - row["alone"] for row in rows if row[arm] is not None]
    return {
        "ended_by_an_error": sum(row[arm] is None for row in rows),
        "collapses": sum(gain < -COLLAPSE for gain in gains),
        "worst": min(gains),
        "mean": fmean(gains),
        "below_by_a_point": sum(gain < -0.01 for gain in gains),
    }


def anything(count: int, seconds: float = math.inf) -> Json:
    """Train random networks with random recipes, grow, kill, resume and shrink them; count how they end."""
    data = load("digits", train=200, val=100, test=100)
    ends: Counter[str] = Counter()
    lost: list[Json] = []
    until, tried = time.monotonic() + seconds, 0
    for number in range(count):
        if tried and time.monotonic() > until:
            break
        rng = stream(SEEDS[0], "growth anything", number)
        end, about = _anything(data, rng)
        tried += 1
        ends[end] += 1
        ends.update(about["seen"])
        if end.startswith("lost"):
            lost.append({"number": number, "end": end, "error": about["error"]})
    return {"networks": tried, "wanted": count, "data": data.name, "ends": dict(sorted(ends.items())), "lost": lost}


def _anything(data: Data, rng: Generator) -> tuple[str, Json]:
    """Train one random network; return how it ended, and what was seen on the way."""
    seed = int(rng.integers(2**31))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network(rng, data.channels, data.shape[-1], data.classes)
    how, noise = recipe(rng), float(rng.choice(NOISES))
    down = float(rng.choice((0.0, 4.0, 5.0)))
    kill_at = int(rng.choice((0, 2, 3, 4)))
    repeat, again, disk = int(rng.integers(1, 3)), bool(rng.integers(2)), bool(rng.integers(2))
    with tempfile.TemporaryDirectory() as folder:

        def make(agent: Wild | None, on_event: Callable[[Event], None] | None = None, name: str = "c") -> Trainer:
            scheduler = TimedScheduler(SHORT, up_at=[2, 4], down_at=[down] if down else [], repeat=repeat)
            guard = Guard(memory_gib=0.0 if disk else 1.0, folder=folder, again=again)
            file, clock = Path(folder) / name, VirtualClock(growth="flops")
            more: dict[str, Any] = {"recipe": how, "clock": clock, "seed": seed, "guard": guard, "distil": 0.5}
            return Trainer(
                net,
                data,
                scheduler,
                agent,
                checkpoint=file,
                on_event=on_event,
                progress=False,
                example=data.example(16),
                **more,
            )

        def kill(event: Event) -> None:
            if event.kind == "epoch" and kill_at and event.time >= kill_at:
                raise Killed

        trainer, error = make(Wild(seed, noise), kill), ""
        try:
            try:
                trainer.fit()
            except Killed:
                trainer = make(Wild(seed, noise))
                trainer.fit()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}".splitlines()[0]
        seen = _seen(trainer, error)
        if not error:
            return ("finished" if _finite(trainer.model) else "lost: weights are not finite"), {
                "seen": seen,
                "error": "",
            }
        if trainer.growing.trial is not None or trainer.run.surgeries:
            return "lost by growth", {"seen": seen, "error": error}
        try:
            make(None, name="alone").fit()
        except Diverged:
            return "the recipe diverges without growth too", {"seen": seen, "error": error}
        return "lost after a roll-back" if trainer.history.rolled_back else "lost", {"seen": seen, "error": error}


def _seen(trainer: Trainer, error: str) -> list[str]:
    history = trainer.history
    ups = [d for d in history.decisions if d.allocation == "up" and d.surgeries]
    found = ["growths"] * sum(not d.refused for d in ups) + ["refused"] * sum(bool(d.refused) for d in ups)
    found += ["cannot be grown"] * bool(history.refusal) + ["roll-backs"] * len(history.rolled_back)
    return [f"seen: {name}" for name in found] + ["seen: shrunk"] * any(
        d.allocation == "down" and "nothing had" not in d.why for d in history.decisions
    )


def _finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def _fashion() -> Data:
    """Fashion-MNIST; without it the digits, which are easier: the result says which."""
    try:
        return load("fashion-mnist", train=1500, val=500, test=2000, size=14)
    except GrowError as problem:
        print(f"growth-safety uses the digits instead of Fashion-MNIST: {problem.what}", file=sys.stderr)
        return load("digits")


def table(figures: Json) -> Sequence[Row]:
    """The targets: collapses and jobs that growth has ended, and how many growths and networks were tried."""
    usual, wild = figures["growths"], figures["anything"]
    rows: list[Row] = [("target", "with the guard", "as it was before", "")]
    bad = {arm: usual[arm]["collapses"] + usual[arm]["ended_by_an_error"] for arm in ("new", "before")}
    enough = usual["growths"] >= GROWTHS
    name = f"no collapse in {GROWTHS} growths (measured: {usual['growths']} in {usual['jobs']} jobs, {usual['data']})"
    rows.append((name, str(bad["new"]), str(bad["before"]), _verdict(not bad["new"], enough)))
    lost, enough = len(wild["lost"]), wild["networks"] >= NETWORKS
    name = f"no job ended by growth in {NETWORKS} random networks × recipes (measured: {wild['networks']})"
    return [*rows, (name, str(lost), "", _verdict(not lost, enough))]


def _verdict(met: bool, enough: bool) -> str:
    return "**no**" if not met else "yes" if enough else "so far; too few"
