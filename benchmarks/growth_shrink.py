"""Shrinking that keeps: small networks taught by grown ones in the job's own way, against small ones that never grew.

Six pairs of a network and data. Networks grow at 40 % of the budget, and the GPUs are taken back at 75 %. What is grown
is drawn at random for each pair: deepened, then widened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch

from argosy.errors import ArgosyError
from argosy.grow.study.history import History
from argosy.grow.study.make_branches import begin
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import sites
from argosy.grow.tables.partial import Partial
from argosy.grow.training.distill import Distillation
from argosy.grow.training.run import Run
from argosy.grow.training.shrinking import shrunk
from argosy.report.stats import paired_difference
from argosy.seeding import stream
from benchmarks.growth_elsewhere import PAIRS
from benchmarks.harness import ROOT, Json, Options, Row

SEEDS = tuple(range(5))
GROW_AT, RELEASE_AT = 0.4, 0.75
BEFORE = Distillation()  # what was done before: SGD at .05, whatever the job is trained with
ARMS = ("own", "before", "small", "small_reset", "small_restart", "grown")
LEAST = -0.003


def run(options: Options) -> Json:
    """All pairs, or what can be done in `options.minutes`; what is finished is kept, and another call goes on."""
    torch.set_num_threads(1)
    names = ["MLP / digits"] if options.quick else list(PAIRS)
    folder = ROOT / "out" / "growth-shrink"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {}
    for name in names:
        target = None if options.quick else folder / name.replace("/", "-").replace(" ", "_")
        kept[name] = Partial(target, {**PAIRS[name].to_dict(), "grow": GROW_AT, "release": RELEASE_AT})
    seeds = SEEDS[:2] if options.quick else SEEDS
    order = sorted((PAIRS[name].family != "mlp", seed, name) for name in names for seed in seeds)
    until = time.monotonic() + 60 * (options.minutes if options.minutes is not None else math.inf)
    for _, seed, name in order:
        if time.monotonic() < until and all(part["seed"] != seed for part in kept[name].parts):
            kept[name].add({"seed": seed, "test": _seed(name, seed)})
    pairs = {name: _pair([part["test"] for part in partial.parts]) for name, partial in kept.items() if partial.parts}
    own = [pair["own - small_restart"]["mean"] for pair in pairs.values()]
    means = {"mean": fmean(own), "worst": min(own)}
    return {"pairs": pairs, "target": {**means, "met": means["worst"] >= LEAST and means["mean"] > 0}}


def _pair(rows: Sequence[Json]) -> Json:
    test = {arm: [row[arm] for row in rows] for arm in ARMS}
    found: Json = {"test": test}
    for other in ARMS[1:]:
        difference = paired_difference(test["own"], test[other])
        bounds = {"low": difference.low, "high": difference.high} if len(rows) > 1 else {"low": None, "high": None}
        found[f"own - {other}"] = {"mean": difference.mean, **bounds}
    return found


def _seed(name: str, seed: int) -> dict[str, float]:
    """Return the test accuracy of every arm of one run."""
    member = PAIRS[name]
    data, number = member.load(), int(stream(seed, f"shrink {name}").integers(2**31))
    trunk = begin(member, data, number)
    trunk.train_until(GROW_AT)
    small = trunk.run.model
    grown, reset = trunk.fork(), trunk.fork()
    for surgery in _growths(trunk, number):
        grown.grow((surgery,), True)
        grown.train_epoch()
    reset.run.grow((), reset=True)
    for branch in (grown, reset):
        branch.train_until(RELEASE_AT)
    restart = reset.fork()
    restart.run.reset_rate()
    arms = {
        "own": _shrunk(grown.run, small, None, seed),
        "before": _shrunk(grown.run, small, replace(BEFORE, batch=member.recipe.batch), seed),
        "small": _finished(trunk.run),
        "small_reset": _finished(reset.run),
        "small_restart": _finished(restart.run),
        "grown": grown.run.fork(),
    }
    found = {}
    for arm, branch in arms.items():
        branch.data = data
        found[arm] = branch.evaluate("test")
    return found


def _growths(trunk: History, number: int) -> list[Surgery]:
    """Return a deepening and a widening, where each is possible."""
    rng, found = stream(number, "shrink growths"), []
    possible = [site for site in sites(trunk.run.model, trunk.run.example, factor=2.0) if site.original]
    for op, can in (("deepen", "can_deepen"), ("widen", "can_widen")):
        names = [site.name for site in possible if getattr(site, can)]
        if names:
            found.append(Surgery(op, names[int(rng.integers(len(names)))], 2.0))  # type: ignore[arg-type]
    return found


def _shrunk(run: Run, small: torch.nn.Module, how: Distillation | None, seed: int) -> Run:
    arm = run.fork()
    _, problem = shrunk(arm, small, 1.0, how, loss=None, seed=seed)
    if problem:
        raise ArgosyError(f"a network could not be shrunk: {problem}")
    return _finished(arm)


def _finished(run: Run) -> Run:
    arm = run.fork()
    while arm.time_left > 0:
        arm.train_epoch()
    return arm


def table(figures: Json) -> Sequence[Row]:
    """A row for each pair, in points of test accuracy."""
    rows: list[Row] = [
        (
            "network / data",
            "own",
            "− small with restarts",
            "− small with reset",
            "− small",
            "− as it was before",
            "grown",
        )
    ]
    for name, pair in figures["pairs"].items():
        others = (_points(pair[f"own - {o}"]) for o in ("small_restart", "small_reset", "small", "before"))
        test = pair["test"]
        rows.append(
            (
                name,
                str(len(test["own"])),
                f"{100 * fmean(test['own']):.1f}",
                *others,
                f"{100 * fmean(test['grown']):.1f}",
            )
        )
    target = figures["target"]
    met = "yes" if target["met"] else "**no**"
    worst = f"mean {100 * target['mean']:+.1f}, worst {100 * target['worst']:+.1f}"
    return [
        *rows,
        ("small with restarts − 0.3 or better in every pair, better on average", "", met, worst, "", "", "", ""),
    ]


def _points(d: Json) -> str:
    if d["low"] is None:
        return f"{100 * d['mean']:+.1f}"
    return f"{100 * d['mean']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"
