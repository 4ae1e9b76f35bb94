"""Teach the growth agent that ships with Argosy, and judge it on what it was not taught.

    python -m argosy.grow.study.teach -o src/argosy/grow/agents/forecaster.safetensors [-t FOLDER]

The width of the intervals and the agent's caution are chosen on networks left out: all families in turn. So what the
agent gains on these, and how much its intervals cover there, is a little better than it would be elsewhere.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np
import torch

from argosy.grow.agents.forecast_examples import teach
from argosy.grow.agents.forecaster import Forecaster
from argosy.grow.agents.forecasting_agent import ForecastingAgent
from argosy.grow.errors import GrowError
from argosy.grow.study.left_out import BY, Trial, alone, coverage, folds, gains, summary, trials
from argosy.grow.tables.branch_table import SHIPPED, BranchTable, read_all

CAUTIONS = (0.0, 0.1, 0.25, 0.4, 0.5, 0.75, 1.0)
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
    """Return the caution with which decisions gain most and, of those that are hardly worse, the largest.

    *Hardly worse* is a gain that is lower by at most one standard error of the difference between families.
    """
    found: dict[float, dict[str, float]] = {}
    for caution in CAUTIONS:
        agents = {name: ForecastingAgent(f, caution=caution) for name, f in taught.items()}
        found[caution] = worth(trials(tables, agents, "family"))
    means = {caution: fmean(by_family.values()) for caution, by_family in found.items()}
    best = max(CAUTIONS, key=lambda caution: (means[caution], caution))
    lost = {c: [found[best][name] - value for name, value in by_family.items()] for c, by_family in found.items()}
    errors = {c: stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0 for c, values in lost.items()}
    chosen = max(caution for caution in CAUTIONS if fmean(lost[caution]) <= errors[caution])
    tried = {f"{c:g}": {"worth": means[c], "lost": fmean(lost[c]), "error": errors[c]} for c in CAUTIONS}
    return chosen, tried


def worth(judged: Sequence[Trial]) -> dict[str, float]:
    """Return for each family the mean gain of decisions over the better of leaving alone and resetting.

    The early, middle and late decisions of a family count the same, and a mean loss counts twice.
    """
    groups: dict[str, dict[str, list[float]]] = {}
    for trial in judged:
        scenarios = groups.setdefault(trial.left_out, {})
        scenarios.setdefault(trial.example.point.scenario, []).append(gains(trial)["better"])
    means = {name: [fmean(values) for values in scenarios.values()] for name, scenarios in groups.items()}
    return {name: fmean(mean if mean > 0 else 2 * mean for mean in found) for name, found in means.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Teach, judge and write the agent."""
    parser = argparse.ArgumentParser(prog="python -m argosy.grow.study.teach", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the agent's file")
    parser.add_argument("-t", "--tables", type=Path, default=SHIPPED, help="folder of branch tables")
    given = parser.parse_args(arguments)
    command = "python -m argosy.grow.study.teach " + shlex.join(arguments or sys.argv[1:])
    teach_agent(given.output, given.tables, command)


def teach_agent(output: Path, folder: Path, command: str, say: Callable[[str], object] = print) -> ForecastingAgent:
    """Teach an agent by the branch tables of a folder, judge it, and write it to a file."""
    torch.set_num_threads(1)
    tables = read_all(folder)
    for by, name_of in BY.items():
        if len({name_of(table) for table in tables}) < 2:
            raise GrowError(
                f"all tables are of one {by}, so that none can be left out to choose intervals and caution",
                where=str(folder),
                hint=f"make tables of another {by}, too",
            )
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
    left_alone = {by: alone(tables, found, by) for by, found in taught.items()}
    about = {"command": command, "caution tried": tried, "left out": judged, "left alone": left_alone}
    agent.save(output, about)
    level = NormalDist().cdf(caution)
    worths = ", ".join(f"{c} {100 * row['worth']:+.2f}" for c, row in tried.items())
    say(f"spread {spread:.2f}, caution {caution:g} (sure to {level:.0%}); points that each caution gains: {worths}")
    for by, rows in judged.items():
        for name, row in [*rows.items(), *((f"left alone, {s}", found) for s, found in left_alone[by].items())]:
            figures = ", ".join(f"{key} {value:.4g}" for key, value in row.items() if value is not None)
            say(f"without each {by}, {name}: {figures}")
    return agent


if __name__ == "__main__":
    main()
