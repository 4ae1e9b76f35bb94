"""The runs behind the study of joint scheduling, and how their figures are compared and written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

import numpy as np

from benchmarks.harness import Json

OURS = ("joint", "argonaut")
WANTED = ("jct_mean_s", "jct_p99_s", "deadlines_met")  # the last is NaN where no job has a deadline

T = TypeVar("T")
U = TypeVar("U")


class Case(NamedTuple):
    """One run: a scenario, a policy and a seed, and how lengths are estimated if not as the scenario says."""

    scenario: str
    policy: str
    seed: int
    quick: bool
    estimator: str = ""


Figures = dict[str, float]
Found = dict[Case, Figures]


def all_figures(cases: Sequence[Case]) -> Found:
    """Run each case once, on all cores."""
    cases = list(dict.fromkeys(cases))  # some may be wanted twice
    return dict(zip(cases, in_processes(figures_of, cases)))


def in_processes(work: Callable[[T], U], cases: Sequence[T]) -> list[U]:
    """Do the work for each case, on all cores."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, cases))


def figures_of(case: Case) -> Figures:
    """Run one case."""
    from argosy.report.comparison import sees_future
    from argosy.scenario import read_scenario
    from argosy.sim.metrics import metrics
    from argosy.sim.run import simulate

    scenario = read_scenario(case.scenario, quick=case.quick)
    trace = scenario.trace(case.seed)
    settings = scenario.settings.with_seed(case.seed)
    if case.estimator:
        settings = replace(settings, estimator=case.estimator)
    result = simulate(trace, scenario.cluster, scenario.spec(case.policy), settings)
    figures = metrics(result, window=scenario.window(trace))
    changes = sum(result.jobs[c].sum() for c in ("preemptions", "migrations", "resizes"))
    return {name: figures[name] for name in WANTED} | {
        "changes_per_job": max(float(changes) / len(trace), 1e-9),
        "star": float(sees_future(result)),
    }


def best_of(means: dict[str, list[float]]) -> str:
    """Return the policy with the smallest geometric mean over seeds."""
    return min(means, key=lambda policy: float(np.mean(np.log(means[policy]))))


def interval_of(mine: Sequence[float], theirs: Sequence[float]) -> Json:
    """Return the ratio of paired figures with its interval."""
    from argosy.report.stats import paired_ratio

    ratio = paired_ratio(mine, theirs)
    known = [value if np.isfinite(value) else None for value in ratio[:3]]  # one seed has no interval
    return dict(zip(("mean", "low", "high"), known))


def show(ratio: Json) -> str:
    return f"{ratio['mean']:.3f}"


def spread(ratio: Json) -> str:
    return f"{ratio['low']:.3f}–{ratio['high']:.3f}" if ratio["low"] is not None else "–"
