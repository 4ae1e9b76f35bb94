"""Compute the table of the league: figures of every policy in every scenario, and where each does well.

Figures of two policies are only compared with equal seeds, which mean equal jobs: a ratio is the geometric mean
over seeds of their ratios, with its interval (Student-t over the logarithms).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from argosy.errors import InputError
from argosy.league.run import Score, Season
from argosy.report.stats import Interval, interval, paired_ratio
from argosy.report.tables import LABELS, Column, fitting_unit, versions, without_nan
from argosy.sim.metrics import DEFINITIONS

FIGURES = (
    "jct_mean_s",
    "jct_p99_s",
    "makespan_s",
    "rho_max",
    "rho_over_1",
    "utilisation_held",
    "utilisation_useful",
    "restarts_per_job",
    "decision_p50_us",
    "decision_p99_us",
)
COMPARED = ("jct_mean_s", "jct_p99_s", "makespan_s", "rho_max", "utilisation_useful")
MAIN = "jct_mean_s"
IF_ANY = (
    *("quality_mean", "quality_gain_mean", "spare_gpu_h", "spare_wasted_gpu_h", "jct_others_mean_s", "deadlines_met"),
    *("unfinished", "refused", "cancelled"),
)  # shown if any run has some; means leave out the jobs
NAMES = LABELS | {"decision_p50_us": "decision p50"}
CLOSE = 0.02  # a smaller difference counts as no difference

Reference = Literal["baseline", "best", "middle"]
NOTHING = interval([])


@dataclass(frozen=True, slots=True)
class Standing:
    """How one policy compares with the median policy: the scenarios where it is certainly better or worse."""

    policy: str
    wins: tuple[tuple[str, Interval], ...]  # strongest first
    losses: tuple[tuple[str, Interval], ...]
    firsts: tuple[str, ...]  # where it beats the median and no policy without true durations is better


@dataclass(frozen=True)
class League:
    """All scores of a season; the baseline is fifo, or else the first policy, unless named."""

    season: Season
    scores: tuple[Score, ...]
    baseline: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        policies = self.season.policies
        if not self.scores or not policies:
            raise InputError("there is nothing to compare", hint="name at least one policy and one scenario")
        if not self.baseline:
            object.__setattr__(self, "baseline", "fifo" if "fifo" in policies else policies[0])

    @property
    def scenarios(self) -> tuple[str, ...]:
        return tuple(scenario.name for scenario in self.season.scenarios)

    @cached_property
    def cells(self) -> dict[tuple[str, str], dict[int, Score]]:
        """Return (scenario, policy) → seed → score."""
        found: dict[tuple[str, str], dict[int, Score]] = {
            (scenario, policy): {} for scenario in self.scenarios for policy in self.season.policies
        }
        for score in self.scores:
            found[score.match.scenario, score.match.policy][score.match.seed] = score
        return found

    def failed(self, scenario: str, policy: str) -> bool:
        """Return whether any of its runs failed; the remaining runs would be of other jobs than the other policies'."""
        return any(score.error is not None for score in self.cells[scenario, policy].values())

    @cached_property
    def errors(self) -> list[Score]:
        return [score for score in self.scores if score.error is not None]

    @cached_property
    def future(self) -> frozenset[str]:
        """Return the policies that saw true durations, or estimates made from them, in any scenario."""
        return frozenset(score.match.policy for score in self.scores if score.sees_future)

    def sees_future(self, scenario: str, policy: str) -> bool:
        """Return whether the policy saw what no scheduler can know in this scenario."""
        return any(score.sees_future for score in self.cells[scenario, policy].values())

    def values(self, scenario: str, policy: str, figure: str) -> dict[int, float]:
        """Return a metric's values by seed; nothing for a failed cell."""
        if self.failed(scenario, policy):
            return {}
        cell = self.cells[scenario, policy]
        return {seed: score.metrics[figure] for seed, score in cell.items() if score.metrics is not None}

    def figure(self, scenario: str, policy: str, figure: str) -> Interval:
        """Return the mean over seeds with its interval."""
        return interval(list(self.values(scenario, policy, figure).values()))

    def best(self, scenario: str, figure: str = MAIN) -> str | None:
        """Return the policy with the best mean among those that see no true durations (among all, if all see them)."""
        means = {p: self.figure(scenario, p, figure).mean for p in self.season.policies}
        known = {policy: mean for policy, mean in means.items() if not math.isnan(mean)}
        fair = {policy: mean for policy, mean in known.items() if not self.sees_future(scenario, policy)} or known
        if not fair:
            return None
        choose = min if DEFINITIONS[figure].lower_is_better else max
        return choose(fair, key=lambda policy: fair[policy])

    def ratio(self, scenario: str, policy: str, figure: str = MAIN, to: Reference = "baseline") -> Interval:
        """Return a figure relative to the baseline's, the best's, or the median over policies."""
        mine = self.values(scenario, policy, figure)
        theirs = self._reference(scenario, figure, to)
        common = [seed for seed in mine if seed in theirs]
        return paired_ratio([mine[seed] for seed in common], [theirs[seed] for seed in common])

    def _reference(self, scenario: str, figure: str, to: Reference) -> dict[int, float]:
        if to == "middle":
            fields = [self.values(scenario, policy, figure) for policy in self.season.policies]
            found = {seed: [f[seed] for f in fields if seed in f] for seed in self.season.seeds}
            return {seed: float(np.median(values)) for seed, values in found.items() if values}
        other = self.baseline if to == "baseline" else self.best(scenario, figure)
        return {} if other is None else self.values(scenario, other, figure)

    def overall(self, policy: str, figure: str = MAIN, to: Reference = "baseline") -> float:
        """Return the geometric mean of the ratios over all scenarios; NaN where one of them is missing."""
        means = [self.ratio(scenario, policy, figure, to).mean for scenario in self.scenarios]
        return math.exp(float(np.mean(np.log(means)))) if all(mean > 0 for mean in means) else math.nan

    @cached_property
    def ranking(self) -> tuple[str, ...]:
        """Return policies by mean JCT over all scenarios, best first; those that failed somewhere at the end."""
        order = {policy: self.overall(policy, MAIN, "middle") for policy in self.season.policies}
        return tuple(sorted(order, key=lambda p: (math.isnan(order[p]), order[p] if order[p] > 0 else 0.0, p)))

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """Return how every policy does, in the order of the ranking."""
        return tuple(self._standing(policy) for policy in self.ranking)

    def _standing(self, policy: str) -> Standing:
        ratios = [(scenario, self.ratio(scenario, policy, MAIN, "middle")) for scenario in self.scenarios]
        ratios.sort(key=lambda pair: pair[1].mean)
        firsts = [s for s, ratio in ratios if ratio.mean < 1 - CLOSE and self._is_first(s, policy)]
        return Standing(
            policy,
            tuple(pair for pair in ratios if surely(pair[1]) < 0),
            tuple(pair for pair in reversed(ratios) if surely(pair[1]) > 0),
            tuple(firsts),
        )

    def _is_first(self, scenario: str, policy: str) -> bool:
        best = self.best(scenario)
        mean = self.figure(scenario, policy, MAIN).mean
        return best is not None and mean <= self.figure(scenario, best, MAIN).mean

    def columns(self, scenario: str) -> list[Column]:
        """Return the figures of one scenario's table, each in the unit that suits it."""
        more = [name for name in IF_ANY if any(mean > 0 for mean in self._means(scenario, name))]
        return [
            Column(name, NAMES.get(name, name), *fitting_unit(name, self._means(scenario, name)))
            for name in (*FIGURES, *more)
        ]

    def _means(self, scenario: str, figure: str) -> list[float]:
        return [self.figure(scenario, policy, figure).mean for policy in self.season.policies]


def surely(ratio: Interval) -> int:
    """Return −1 if a ratio is certainly below 1 and by enough to matter, 1 if it is above, else 0."""
    low, high = (ratio.low, ratio.high) if ratio.n > 1 else (ratio.mean, ratio.mean)
    return int(low > 1 and ratio.mean > 1 + CLOSE) - int(high < 1 and ratio.mean < 1 - CLOSE)


def show_ratio(value: float) -> str:
    """Format a ratio with at most three digits: 0.042, 0.42, 4.2, 42."""
    if math.isnan(value):
        return "–"
    digits = 0 if value >= 9.95 else 1 if value >= 2.95 else 2 if value >= 0.0995 else 3
    return f"{value:.{digits}f}"


def document(league: League) -> dict[str, Any]:
    """Return all figures needed to check or redraw the table, ready for JSON."""
    found = {
        "command": league.command,
        "versions": versions(),
        "seeds": list(league.season.seeds),
        "baseline": league.baseline,
        "ranking": list(league.ranking),
        "scenarios": [
            {
                "name": scenario.name,
                "jobs_from": "generated" if scenario.real is None else str(scenario.real),
                "jobs": scenario.count,
                "cluster": {"nodes": len(scenario.cluster.nodes), "gpus": scenario.cluster.total_gpus},
                "definition": scenario.file.model_dump(mode="json", exclude_none=True),
                "settings": scenario.settings.as_dict(),
            }
            for scenario in league.season.scenarios
        ],
        "cells": [_cell(league, scenario, policy) for scenario, policy in league.cells],
        "units": {name: DEFINITIONS[name].unit for name in DEFINITIONS},
    }
    return without_nan(found)  # type: ignore[no-any-return]


def _cell(league: League, scenario: str, policy: str) -> dict[str, Any]:
    scores = league.cells[scenario, policy]
    return {
        "scenario": scenario,
        "policy": policy,
        "run_as": league.season.scenario(scenario).spec(policy),
        "sees_true_durations": any(score.sees_future for score in scores.values()),
        "failed": league.failed(scenario, policy),
        "relative_to_baseline": league.ratio(scenario, policy)._asdict(),
        "relative_to_best": league.ratio(scenario, policy, to="best")._asdict(),
        "figures": {name: league.figure(scenario, policy, name)._asdict() for name in FIGURES},
        "runs": [
            {"seed": seed, "cpu_s": score.cpu_s, "metrics": score.metrics}
            | ({} if score.error is None else {"error": str(score.error)})
            for seed, score in scores.items()
        ],
    }
