"""Many runs for the study of learned policies: where, who, with which seed; on all cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from argosy.errors import ArgosyError
from benchmarks.harness import Json
from benchmarks.learning_policies import FLOOR, for_place

if TYPE_CHECKING:
    from argosy.policies.base import Floats
    from argosy.scenario import Scenario
    from argosy.workload.trace import Trace

SLOT_S = 1200.0
CAP = 16  # most workers and most servers of a job, for everybody
COSTS: dict[str, Json] = {
    "none": {"overheads": "none"},
    "hot": {"overheads": "realistic", "hot_resize": True},
    "cold": {"overheads": "realistic", "hot_resize": False},
}


@dataclass(frozen=True)
class Place:
    """A scenario, perhaps with other speeds, machines, jobs or costs of resizing."""

    scenario: str
    speeds: str = "rough"  # or measured, which needs the data
    nodes: int | None = None  # the first so many of its nodes
    jobs: int | None = None
    costs: str = "none"

    def open(self, data: str | None, quick: bool) -> Scenario:
        from argosy.scenario import read_scenario

        found = read_scenario(self.scenario, quick=quick, data=Path(data) if data and self.speeds != "rough" else None)
        if self.jobs is not None:
            found = found.with_count(self.jobs)
        if self.nodes is not None:
            found = replace(found, cluster=replace(found.cluster, nodes=found.cluster.nodes[: self.nodes]))
        return replace(found, settings=replace(found.settings, **COSTS[self.costs]))


@dataclass(frozen=True)
class Run:
    """One run to be made; the floor is no policy, but is computed the same way."""

    place: Place
    label: str
    policy: str
    seed: int
    data: str | None
    quick: bool

    def play(self) -> Json | ArgosyError:
        """Hours of the mean JCT, of the 99th percentile, and the longest that a job held nothing."""
        from argosy.sim.compare import as_error

        try:
            scenario, trace = jobs_of(self.place, self.seed, self.data, self.quick)
            if self.label == FLOOR:
                return summary(floor_s(scenario, trace), np.zeros(1))
            return simulated(scenario, trace, self.policy, self.seed)
        except Exception as problem:  # comes from another process: told when all are done
            error, details = as_error(problem)
            return ArgosyError(f"{self.label} in {self.place.scenario} (seed {self.seed}): {error}\n{details}".rstrip())


@lru_cache(maxsize=1)  # policies with the same jobs follow each other
def jobs_of(place: Place, seed: int, data: str | None, quick: bool) -> tuple[Scenario, Trace]:
    scenario = place.open(data, quick)
    return scenario, scenario.trace(seed)


def simulated(scenario: Scenario, trace: Trace, policy: str, seed: int) -> Json:
    from argosy.sim.metrics import Run as Measured
    from argosy.sim.run import simulate

    result = simulate(trace, scenario.cluster, policy, scenario.settings.with_seed(seed))
    measured = Measured.of(result, scenario.window(trace))
    if not measured.finished.all():
        raise ArgosyError(f"{(~measured.finished).sum()} jobs did not finish")
    return summary(measured.jct_s, measured.queueing_s)


def summary(jct_s: Floats, waited_s: Floats) -> Json:
    hours = np.array([jct_s.mean(), np.percentile(jct_s, 99), waited_s.max()]) / 3600.0
    return dict(zip(("jct_h", "p99_h", "longest_wait_h"), hours.tolist()))


def floor_s(scenario: Scenario, trace: Trace) -> Floats:
    """JCT of each job if it were alone at its best speed from the next slot on; no policy can do better."""
    from argosy.perf.rate_tables import compile_tables

    tables = compile_tables(trace.frame, scenario.cluster, ps_speeds=scenario.settings.ps_speeds, locality=False)
    best = tables.ps_rate[:, : CAP + 1, : CAP + 1].max(axis=(1, 2))[tables.ps_class]
    submitted = trace.frame["submit_s"].to_numpy()
    begins = np.ceil(submitted / SLOT_S - 1e-9) * SLOT_S
    return np.asarray(begins - submitted + tables.work_s * tables.reference / best)


def compare(
    places: Iterable[Place],
    policies: Mapping[str, Mapping[str, str]],
    seeds: Sequence[int],
    data: str | None,
    quick: bool,
    what: str,
) -> list[Json]:
    """Every policy (by speeds, then by label) in every place: one entry a place, lists by seed."""
    places = list(places)
    runs = [
        Run(place, label, policy, seed, data, quick)
        for place in places
        for seed in seeds
        for label, policy in {FLOOR: "", **chosen(place, policies)}.items()
    ]
    found = iter(zip(runs, play_all(runs, what, workers=1 if quick else None)))
    cases = []
    for place in places:
        scores: dict[str, Json] = {}
        for _ in range(len(seeds) * (1 + len(policies[place.speeds]))):
            run, score = next(found)
            for name, value in score.items():
                scores.setdefault(run.label, {}).setdefault(name, []).append(value)
        cases.append({**asdict(place), "policies": {label: shortened(of) for label, of in scores.items()}})
    return cases


def chosen(place: Place, policies: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Weights that were trained for a scenario are for the scenario as it is."""
    specs = dict(policies[place.speeds])
    return specs if place.nodes is not None else for_place(place.speeds, place.scenario, specs)


def shortened(score: Json) -> Json:
    """Mean JCTs stay by seed; of the others the mean, and the longest of all waits."""
    return {
        "jct_h": score["jct_h"],
        "p99_h": float(np.mean(score["p99_h"])),
        "longest_wait_h": max(score["longest_wait_h"]),
    }


def play_all(runs: Sequence[Run], what: str, workers: int | None = None) -> list[Json]:
    """In processes, under a bar; the first error ends it."""
    from argosy.cli._shared import progress_bar
    from argosy.sim.pool import run_tasks

    with progress_bar(what, len(runs), None) as bar:
        ended: list[Json | ArgosyError] = []

        def done(outcome: Json | ArgosyError) -> None:
            ended.append(outcome)
            bar(len(ended))
            if isinstance(outcome, ArgosyError):
                raise outcome

        outcomes = run_tasks(Run.play, runs, lambda run, died: died, workers, done)
    return [outcome for outcome in outcomes if not isinstance(outcome, ArgosyError)]
