"""Judge the forecasting agent on networks and data that it was not taught: leave one family, or one data set, out.

Every decision point of a branch table has arms that were really trained, so a decision is judged by the arm that it
chose. Gains are those in test accuracy over leaving the network alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from argosy.grow.agents.forecast_examples import Example, choice_of, examples_of, teach
from argosy.grow.agents.forecast_features import SMALLEST_ERROR, Choice
from argosy.grow.agents.forecaster import Z80, Forecaster
from argosy.grow.agents.forecasting_agent import ForecastingAgent
from argosy.grow.tables.branch_table import Arm, BranchTable

BY: dict[str, Callable[[BranchTable], str]] = {
    "family": lambda table: table.family,
    "data": lambda table: table.data,
}


@dataclass(frozen=True)
class Trial:
    """Holds a decision point, what was forecast of its arms, and what they led to.

    The numbers are gains over leaving the network alone, in points of score: `real` in test accuracy.
    """

    left_out: str
    example: Example
    arms: tuple[Arm, ...]  # without doing nothing
    gain: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    real: tuple[float, ...]
    chosen: int | None = None  # None: leave it

    @property
    def grew(self) -> bool:
        """Return whether the agent grew the network."""
        return self.chosen is not None and grows(self.arms[self.chosen])


def folds(tables: Sequence[BranchTable], by: str, start: Forecaster, steps: int) -> Iterator[tuple[str, Forecaster]]:
    """Return what is left out, and a forecaster taught without it."""
    name_of = BY[by]
    for name in sorted({name_of(table) for table in tables}):
        yield name, teach([t for t in tables if name_of(t) != name], start=start, steps=steps)


def trials(tables: Sequence[BranchTable], agents: Mapping[str, ForecastingAgent], by: str) -> list[Trial]:
    """Return every decision point, judged by the agent that was taught without its family or data.

    Growth is free. The agent chooses among growths, the reset and doing nothing; replicas are only forecast.
    """
    found = []
    for example in examples_of(tables):
        arms = [arm for arm in example.point.arms if not arm.is_nothing and arm.price == "free"]
        if arms:
            name = BY[by](example.table)
            found.append(_trial(agents[name], name, example, arms))
    return found


def _trial(agent: ForecastingAgent, name: str, example: Example, arms: Sequence[Arm]) -> Trial:
    situation = example.situation
    arms = tuple(sorted(arms, key=lambda arm: any(s.op == "replicate" for s in arm.surgeries)))
    choices = (Choice(), *(choice_of(arm, situation) for arm in arms))
    expected = agent.forecaster.expect(situation, choices)
    usable = sum(choice.kind != "replicate" for choice in choices)
    chosen = agent.choose(situation, agent.forecaster.expect(situation, choices[:usable]))
    points = tuple(expected.points(i)[0] for i in range(1, len(choices)))
    low, high = zip(*(expected.interval(i) for i in range(1, len(choices))), strict=True)
    real = tuple(arm.test - example.point.nothing.test for arm in arms)
    return Trial(name, example, arms, points, low, high, real, chosen - 1 if chosen else None)


def grows(arm: Arm) -> bool:
    """Return whether an arm made the network larger."""
    return any(s.op != "replicate" for s in arm.surgeries)


def gains(trial: Trial) -> dict[str, float]:
    """Return what the decision gained over the alternatives that were trained."""
    got = trial.real[trial.chosen] if trial.chosen is not None else 0.0
    growths = [real for arm, real in zip(trial.arms, trial.real, strict=True) if grows(arm)]
    resets = [real for arm, real in zip(trial.arms, trial.real, strict=True) if arm.reset and not arm.surgeries]
    found = {"none": got, "better": got - max(0.0, fmean(resets) if resets else 0.0)}
    if resets:
        found["none_reset"] = got - fmean(resets)
    if growths:
        found["random"] = got - fmean(growths)
        if not trial.grew:
            found["declined"] = fmean(growths) - got
    return found


def coverage(found: Sequence[Trial]) -> float:
    """Return the share of arms whose gain was inside the 80 % interval."""
    return fmean(a <= r <= b for t in found for a, b, r in zip(t.low, t.high, t.real, strict=True))


def summary(found: Sequence[Trial]) -> dict[str, Any]:
    """Return what the decisions gained over the alternatives on average; `declined` is what growth would have gained.

    All gains over `better`, the better of doing nothing and a reset in each single run, are low by chance.
    """
    every = [gains(trial) for trial in found]
    names = ("none", "none_reset", "better", "random", "declined")
    means = {name: [g[name] for g in every if name in g] for name in names}
    return {
        "points": len(found),
        "coverage": coverage(found),
        "grew": fmean(t.grew for t in found),
        **{name: fmean(values) if values else None for name, values in means.items()},
    }


CLEARLY = 0.02  # a forecast this far below the present score says that training would do harm


def alone(tables: Sequence[BranchTable], taught: Mapping[str, Forecaster], by: str) -> dict[str, dict[str, float]]:
    """Judge for each scenario what is forecast of networks that are left alone, by those taught without them.

    `off` is how far the forecast validation score is from the real one on average, `stays` the same if the present
    score is assumed to stay; `below` is the share of forecasts that are clearly below the present score, and
    `fell` the share of networks that really ended there; `coverage` is that of the 80 % intervals.
    """
    groups: dict[str, list[tuple[float, float, float, bool]]] = {}
    for example in examples_of(tables):
        log_error, deviation = taught[BY[by](example.table)].leave_alone(example.situation)
        now, real = example.point.curve.score[-1], example.point.nothing.validation
        said = 1 - math.exp(min(log_error, 0.0))
        inside = abs(math.log(max(1 - real, SMALLEST_ERROR)) - log_error) <= Z80 * deviation
        groups.setdefault(example.point.scenario, []).append((said, now, real, inside))
    return {
        scenario: {
            "points": len(rows),
            "off": fmean(abs(said - real) for said, _, real, _ in rows),
            "stays": fmean(abs(now - real) for _, now, real, _ in rows),
            "below": fmean(said < now - CLEARLY for said, now, _, _ in rows),
            "fell": fmean(real < now - CLEARLY for _, now, real, _ in rows),
            "coverage": fmean(inside for *_, inside in rows),
        }
        for scenario, rows in groups.items()
    }
