"""Teach the growth agent that ships with Argosy, and judge it on what it was not taught.

    python -m argosy.grow.study.teach -o src/argosy/grow/agents/forecaster.safetensors [-t FOLDER]

The width of the intervals and the agent's caution are chosen on networks left out: all families in turn.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import torch

from argosy.grow.agents.forecast_examples import teach
from argosy.grow.agents.forecaster import Forecaster
from argosy.grow.agents.forecasting_agent import ForecastingAgent
from argosy.grow.study.left_out import BY, Trial, coverage, folds, gains, summary, trials
from argosy.grow.tables.branch_table import SHIPPED, BranchTable, read_all

CAUTIONS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
SPREADS: tuple[float, ...] = tuple(np.round(np.arange(0.7, 1.6, 0.05), 2).tolist())
COVERED = 0.8
STEPS = 25  # of learning variances for each fold, from those of all tables


def choose_spread(tables: Sequence[BranchTable], taught: Mapping[str, Forecaster], by: str) -> float:
    """Return the factor on all deviations with which the intervals cover what they should."""
    found = {}
    for spread in SPREADS:
        agents = {name: ForecastingAgent(replace(f, spread=spread)) for name, f in taught.items()}
        found[spread] = coverage(trials(tables, agents, by))
    return float(min(SPREADS, key=lambda spread: abs(found[spread] - COVERED)))


def choose_caution(tables: Sequence[BranchTable], taught: Mapping[str, Forecaster]) -> tuple[float, dict[str, Any]]:
    """Return the caution under which decisions gain most, where a loss in a family counts as much as two gains."""
    found: dict[float, float] = {}
    for caution in CAUTIONS:
        agents = {name: ForecastingAgent(f, caution=caution) for name, f in taught.items()}
        judged = trials(tables, agents, "family")
        found[caution] = worth(judged)
    best = max(CAUTIONS, key=lambda caution: (found[caution], caution))
    return best, {f"{caution:g}": value for caution, value in found.items()}


def worth(judged: Sequence[Trial]) -> float:
    """Return the mean gain of decisions over the better of leaving alone and resetting, by family and scenario."""
    groups: dict[tuple[str, str], list[float]] = {}
    for trial in judged:
        group = groups.setdefault((trial.left_out, trial.example.point.scenario), [])
        group.append(gains(trial)["better"])
    means = [fmean(values) for values in groups.values()]
    return fmean(mean if mean > 0 else 2 * mean for mean in means)


def main(arguments: Sequence[str] | None = None) -> None:
    """Teach, judge and write the agent."""
    parser = argparse.ArgumentParser(prog="python -m argosy.grow.study.teach", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the agent's file")
    parser.add_argument("-t", "--tables", type=Path, default=SHIPPED, help="folder of branch tables")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tables = read_all(given.tables)
    whole = teach(tables)
    taught = {by: dict(folds(tables, by, whole, STEPS)) for by in BY}
    spread = fmean(choose_spread(tables, taught[by], by) for by in BY)
    taught = {by: {n: replace(f, spread=spread) for n, f in found.items()} for by, found in taught.items()}
    caution, tried = choose_caution(tables, taught["family"])
    judged = {}
    for by, found in taught.items():
        agents = {name: ForecastingAgent(f, caution=caution) for name, f in found.items()}
        every = trials(tables, agents, by)
        judged[by] = {"all": summary(every)}
        judged[by] |= {name: summary([t for t in every if t.left_out == name]) for name in sorted(found)}
    agent = ForecastingAgent(replace(whole, spread=spread), caution=caution)
    command = "python -m argosy.grow.study.teach " + shlex.join(arguments or sys.argv[1:])
    agent.save(given.output, {"command": command, "caution tried": tried, "left out": judged})
    level = NormalDist().cdf(caution)
    print(f"spread {spread:.2f}, caution {caution:g} (sure to {level:.0%}) of {tried}")
    for by, rows in judged.items():
        for name, row in rows.items():
            print(by, name, {key: round(value, 4) if value is not None else None for key, value in row.items()})


if __name__ == "__main__":
    main()
