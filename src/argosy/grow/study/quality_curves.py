"""Fit what growing and replicating gain, by kind of network and data, from branch tables: for simulated jobs.

    python -m argosy.grow.study.quality_curves -o src/argosy/perf/data/quality_curves.json [-t FOLDER]

Growth gains what the mean of all growths gained in test accuracy over leaving the network alone, minus what a reset of
the learning rate alone gained: a reset needs no GPUs. Few trainings say little, so each kind is pulled towards the mean
of all kinds, as if there were two more decisions of that mean.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from argosy import __version__
from argosy.atomic import writing
from argosy.grow.tables.branch_table import SHIPPED, Arm, BranchTable, DecisionPoint, read_all
from argosy.perf.base import Floats
from argosy.perf.quality import AVERAGE, Gains, QualityCurve, Use

SCENARIOS = ("late", "middle", "early")  # by the share of the training that is left
DONE = tuple(float(x) for x in np.round(np.linspace(0.0, 1.0, 11), 2))
PULL = 2.0  # decisions of the mean of all kinds that are added to each kind
LEAST_DEVIATION = 0.002
KEPT = 0.16  # share of growth's gain that is left after shrinking: see `main`


@dataclass(frozen=True)
class Seen:
    """Holds what one decision point showed, as gains in test accuracy over leaving the network alone."""

    left: float
    reset: float | None
    growth: float | None
    replicas: float | None
    flops: tuple[float, ...]  # of grown networks, relative to the one before growth


def seen_at(table: BranchTable, point: DecisionPoint) -> Seen:
    """Return what a decision point showed; only arms that cost no time count."""

    def mean(arms: Sequence[Arm]) -> float | None:
        return fmean(arm.test - point.nothing.test for arm in arms) if arms else None

    free = [arm for arm in point.arms if arm.price == "free" and not arm.is_nothing]
    resets = [arm for arm in free if arm.reset and not arm.surgeries]
    replicas = [arm for arm in free if any(s.op == "replicate" for s in arm.surgeries)]
    growths = [arm for arm in free if arm.surgeries and arm not in replicas and arm.reset is not False]
    left = 1 - point.time / table.budget
    flops = tuple(arm.flops / point.flops for arm in growths)
    return Seen(left, mean(resets), mean(growths), mean(replicas), flops)


Groups = Mapping[str, Mapping[str, Sequence[Seen]]]  # kind → scenario → decision points


def groups_of(tables: Sequence[BranchTable]) -> dict[str, dict[str, list[Seen]]]:
    """Return the decision points of first decisions, by kind and scenario."""
    found: dict[str, dict[str, list[Seen]]] = {}
    for table in tables:
        kind = found.setdefault(f"{table.family}-{table.data}", defaultdict(list))
        for point in (p for run in table.runs for p in run if p.scenario in SCENARIOS):
            kind[point.scenario].append(seen_at(table, point))
    return found


def gains_of(use: str, groups: Groups, name: str) -> Gains:
    """Return what one use gains in one kind."""
    left, gain, deviation = [], [], []
    for scenario in SCENARIOS:
        every = [_gain(use, seen) for kind in groups.values() for seen in kind.get(scenario, ())]
        known = [value for value in every if value is not None]
        own = [v for seen in groups[name].get(scenario, ()) if (v := _gain(use, seen)) is not None]
        if not known:
            continue
        points = [s.left for kind in groups.values() for s in kind.get(scenario, ())]
        left.append(round(fmean(points), 3))
        mean = (sum(own) + PULL * fmean(known)) / (len(own) + PULL)
        if use == "growth":
            mean -= max(_reset(groups, name, scenario), 0.0)
        gain.append(round(mean, 4))
        around = [(v - fmean(kind)) ** 2 for kind in _by_kind(use, groups, scenario) for v in kind if len(kind) > 1]
        found = float(np.sqrt(fmean(around))) if around else 0.0
        deviation.append(round(max(found, LEAST_DEVIATION), 4))
    flops = [f for scenario in SCENARIOS for seen in groups[name].get(scenario, ()) for f in seen.flops]
    gpus = round(max(fmean(flops), 1.0), 2) if use == "growth" and flops else 2.0
    return Gains(tuple(left), tuple(gain), tuple(deviation), gpus)


def _gain(use: str, seen: Seen) -> float | None:
    return seen.growth if use == "growth" else seen.replicas


def _by_kind(use: str, groups: Groups, scenario: str) -> list[list[float]]:
    return [[v for s in kind.get(scenario, ()) if (v := _gain(use, s)) is not None] for kind in groups.values()]


def _reset(groups: Groups, name: str, scenario: str) -> float:
    """Return what a reset of the learning rate gains in one kind."""
    every = [s.reset for kind in groups.values() for s in kind.get(scenario, ()) if s.reset is not None]
    own = [s.reset for s in groups[name].get(scenario, ()) if s.reset is not None]
    return (sum(own) + PULL * fmean(every)) / (len(own) + PULL) if every else 0.0


def curve_of(name: str, tables: Sequence[BranchTable], groups: Groups, kept: float) -> QualityCurve:
    """Return the curve of one kind."""
    own = [table for table in tables if f"{table.family}-{table.data}" == name]
    rows = []
    for table in own:
        for run in table.runs:
            firsts = [point for point in run if point.scenario in SCENARIOS]
            last = max(firsts, key=lambda point: point.time)
            times = (0.0, *(t / table.budget for t in last.curve.times), 1.0)
            scores = (1 / table.counts["classes"], *last.curve.score, last.nothing.validation)
            rows.append(np.interp(DONE, times, scores))
    accuracy = _short(np.maximum.accumulate(np.mean(rows, axis=0)))
    growth, replicas = gains_of("growth", groups, name), gains_of("replicas", groups, name)
    return QualityCurve(name, DONE, accuracy, growth, replicas, kept, len(rows))


def _short(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)


def average_of(curves: Sequence[QualityCurve]) -> QualityCurve:
    """Return the mean of all kinds, for networks of which nothing is known."""

    def gains(use: Use) -> Gains:
        found = [curve.gains(use) for curve in curves]
        left = max((g.left for g in found), key=len)
        gain = np.mean([g.mean(left) for g in found], axis=0)
        deviation = np.mean([g.spread(left) for g in found], axis=0)
        return Gains(left, _short(gain), _short(deviation), round(fmean(g.gpus for g in found), 2))

    accuracy = _short(np.mean([curve.accuracy for curve in curves], axis=0))
    trainings = sum(curve.trainings for curve in curves)
    return QualityCurve(AVERAGE, DONE, accuracy, gains("growth"), gains("replicas"), curves[0].kept, trainings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file of curves."""
    parser = argparse.ArgumentParser(prog="python -m argosy.grow.study.quality_curves", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file of curves")
    parser.add_argument("-t", "--tables", type=Path, default=SHIPPED, help="folder of branch tables")
    parser.add_argument(
        "--kept",
        type=float,
        default=KEPT,
        help="share of growth's gain that is left after shrinking; by default as docs/growth.md has it: a network that"
        " was taught gained 0.49 points over one that only had its learning rate reset, where growth gained 3",
    )
    given = parser.parse_args(arguments)
    tables = read_all(given.tables)
    groups = groups_of(tables)
    found = [curve_of(name, tables, groups, given.kept) for name in sorted(groups)]
    curves = {curve.name: curve.to_dict() for curve in (average_of(found), *found)}
    command = "python -m argosy.grow.study.quality_curves " + shlex.join(arguments or sys.argv[1:])
    about = {"command": command, "version": __version__, "trainings": sum(curve.trainings for curve in found)}
    text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(curve)}" for name, curve in curves.items())
    with writing(given.output) as temporary:
        temporary.write_text(f'{{\n "about": {json.dumps(about)},\n "curves": {{\n{text}\n }}\n}}\n', encoding="utf-8")
    print(f"{len(curves)} kinds from {about['trainings']} trainings: {given.output}")


if __name__ == "__main__":
    main()
