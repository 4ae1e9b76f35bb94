"""Turn branch tables into rows for the forecaster's two linear models, and learn from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from argosy.grow.agents.base import Situation
from argosy.grow.agents.forecast_features import (
    GAIN,
    RESET_NEEDS,
    SMALLEST_ERROR,
    Choice,
    Floats,
    epochs_left,
    numbers_of,
)
from argosy.grow.agents.forecaster import (
    LEAVE,
    PECULIAR,
    Forecaster,
    Usual,
    features_of,
    leave_features,
    to_come,
)
from argosy.grow.agents.mixed_linear import Fitted
from argosy.grow.agents.mixed_linear_fit import Effect, Rows, fit, numbered
from argosy.grow.tables.branch_table import Arm, BranchTable, DecisionPoint

LARGEST_GAIN = 1.0  # on the logarithmic scale; larger gains count as this, so that no outlier dominates
ACROSS = ("family", "data")
WATCHED = 1000  # examples on which each score of a curve was measured
FLAT = 10.0  # prior deviation of how far an error falls in general, which the tables alone are to say
SMALL = 0.3  # prior deviation of products, relative to that of what is done


@dataclass(frozen=True)
class Example:
    """Holds one decision point with what it belongs to."""

    table: BranchTable
    member: str
    run: int
    point: DecisionPoint
    situation: Situation
    numbers: Floats

    @property
    def trunk(self) -> tuple[Any, ...]:
        """Return a name for the network that is left alone; the first decisions of a run share it."""
        again = self.point.scenario if self.point.done else ""
        return self.member, self.run, again

    def gain(self, arm: Arm) -> float:
        """Return the gain of an arm in validation accuracy, on the logarithmic scale."""
        found = log_error(self.point.nothing.validation) - log_error(arm.validation)
        return min(max(found, -LARGEST_GAIN), LARGEST_GAIN)


def examples_of(tables: Sequence[BranchTable]) -> list[Example]:
    """Return every decision point of these tables."""
    found = []
    for number, table in enumerate(tables):
        for run, points in enumerate(table.runs):
            for point in points:
                situation = table.situation(point)
                found.append(Example(table, f"{table.key} {number}", run, point, situation, numbers_of(situation)))
    return found


def choice_of(arm: Arm, situation: Situation) -> Choice:
    """Return what this arm of the experiment did: its surgeries, and whether the learning rate was reset."""
    left = epochs_left(situation)
    possible = left is None or left >= RESET_NEEDS - 1e-6
    wanted = arm.reset if arm.reset is not None else bool(arm.surgeries)
    return Choice(arm.surgeries, bool(wanted and possible))


def log_error(score: float) -> float:
    """Return the logarithm of the share of wrong answers."""
    return math.log(max(1 - score, 0.0) + SMALLEST_ERROR)


def usual_of(examples: Sequence[Example]) -> Usual:
    """Return mean, deviation and correlation of the numbers that describe these situations, to fill in unknown ones."""
    numbers = np.array([example.numbers for example in examples])
    mean, deviation = np.nanmean(numbers, axis=0), np.nanstd(numbers, axis=0)
    deviation = np.where(deviation > 1e-6, deviation, 1.0)
    standard = np.nan_to_num((numbers - mean) / deviation)
    return Usual(mean, deviation, standard.T @ standard / len(standard))


def leave_rows(examples: Sequence[Example], usual: Usual) -> Rows:
    """Return a row for each decision point: how much the error falls if the network is left alone.

    Features and effects are proportional to what is still to come, so that nothing changes at the end.
    """
    features, results, amounts, situations = [], [], [], []
    left = np.array([to_come(example.situation.share_left) for example in examples])
    for example, part in zip(examples, left, strict=True):
        numbers, _ = usual.complete(example.numbers)
        features.append(leave_features(numbers, part))
        situations.append(numbers)
        score, final = example.point.curve.score[-1], example.point.nothing.validation
        results.append(log_error(score) - log_error(final))
        counts = example.table.counts["validation"]
        amounts.append(math.hypot(measured(score, min(counts, WATCHED)), measured(final, counts)))
    effects = [
        Effect("family", numbered([example.table.family for example in examples]), left, across=True),
        Effect("data", numbered([example.table.data for example in examples]), left, across=True),
        Effect("member", numbered([example.member for example in examples]), left),
        Effect("run", numbered([example.trunk for example in examples]), left),
        Effect("measured", np.arange(len(examples)), np.array(amounts), scaled=False),
    ]
    prior = np.array([FLAT if name == "always" else SMALL for name in LEAVE])
    blocks = numbered([example.member for example in examples])
    return Rows(np.array(features), np.array(results), blocks, tuple(effects), prior, np.array(situations))


def gain_rows(examples: Sequence[Example], usual: Usual) -> Rows:
    """Return a row for each arm that does something: its gain over leaving the network alone."""
    features, owners, arms, situations = [], [], [], []
    for example, arm in _arms(examples):
        numbers, _ = usual.complete(example.numbers)
        situation = example.table.situation(example.point, arm.price)
        features.append(features_of(situation, [choice_of(arm, situation)], numbers)[0])
        situations.append(numbers)
        owners.append(example)
        arms.append(arm)
    x = np.array(features)
    results = np.array([example.gain(arm) for example, arm in zip(owners, arms, strict=True)])
    groups = {
        "family": numbered([example.table.family for example in owners]),
        "data": numbered([example.table.data for example in owners]),
        "member": numbered([example.member for example in owners]),
        "scenario": numbered([(example.member, example.point.scenario) for example in owners]),
    }
    effects = []
    for name, feature in PECULIAR.items():
        kind = name.partition(" ")[0]
        group = groups.get(kind, groups["member"])
        effects.append(Effect(name, group, x[:, GAIN.index(feature)], across=kind in ACROSS))
    grows = x[:, GAIN.index("grow always")]
    named = [(example.member, arm.surgeries) for example, arm in zip(owners, arms, strict=True)]
    rows = np.arange(len(x))
    left = np.sqrt([example.situation.share_left for example in owners])
    counts = [example.table.counts["validation"] for example in owners]
    own = np.array([measured(arm.validation, n) for arm, n in zip(arms, counts, strict=True)])
    nothing = np.array([measured(le.point.nothing.validation, n) for le, n in zip(owners, counts, strict=True)])
    trunks = numbered([example.trunk for example in owners])
    effects += [
        Effect("option", numbered(named), grows),
        Effect("noise, time left", rows, left),
        Effect("measured", rows, own, scaled=False),
        Effect("nothing", trunks, left),
        Effect("nothing measured", trunks, nothing, scaled=False),
    ]
    prior = np.array([1.0 if name.endswith("always") else SMALL for name in GAIN])
    return Rows(x, results, groups["member"], tuple(effects), prior, np.array(situations))


def _arms(examples: Sequence[Example]) -> Iterator[tuple[Example, Arm]]:
    for example in examples:
        for arm in example.point.arms:
            if not arm.is_nothing:
                yield example, arm


def measured(score: float, count: int) -> float:
    """Return the deviation of the logarithm of an error that is measured on so many examples."""
    error = max(1 - score, SMALLEST_ERROR)
    return math.sqrt((1 - error) / (count * error))


def teach(
    tables: Sequence[BranchTable], *, start: Forecaster | None = None, steps: int = 80, spread: float = 1.0
) -> Forecaster:
    """Learn a forecaster from branch tables; `start` has variances from which learning them begins."""
    examples = examples_of(tables)
    usual = usual_of(examples)
    leave = _fit(leave_rows(examples, usual), start.leave if start else None, steps)
    gains = _fit(gain_rows(examples, usual), start.gains if start else None, steps)
    return Forecaster(usual, leave, gains, spread)


def _fit(rows: Rows, start: Fitted | None, steps: int) -> Fitted:
    return fit(rows, start.variances if start else None, steps)
