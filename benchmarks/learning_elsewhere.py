"""Learned policies away from home: over another policy on three GPU types, and in every shipped scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from argosy.scenario import Scenario, read_scenario, scenario_names
from argosy.workload.trace import Trace
from benchmarks.harness import Json
from benchmarks.learning_jct import Study
from benchmarks.learning_policies import FITTED, LEARNED, RIVALS, learned
from benchmarks.learning_runs import SLOT_S

if TYPE_CHECKING:
    from argosy.league.run import Score

LEAGUE_SEEDS = (0, 1, 2)
UNDER = ("gavel-max-min", "las", "srtf")
GANGS, SIZED = 200, 100  # Gavel's jobs, and DL2's among them
QUICK_SCENARIOS, QUICK_POLICIES = ("dl2-short", "philly-rigid"), ("fifo", "srtf", "optimus")


class Blend(Scenario):
    """Gavel's gangs and, evenly among them, DL2's jobs with servers, which can have 1 to 16 of each.

    The speed of a job with servers does not depend on the GPU type here: what is gained by types the gangs gain.
    """

    def trace(self, seed: int) -> Trace:
        gangs = super().trace(seed).frame.with_columns(pl.format("gang-{}", "job_id").alias("job_id"))
        sized = read_scenario("dl2-500").with_count(max(2, self.count * SIZED // GANGS)).trace(seed).frame
        stretch = float(gangs["submit_s"].max()) / max(float(sized["submit_s"].max()), 1.0)  # type: ignore[arg-type]
        later = (pl.col("submit_s") * stretch / SLOT_S).floor() * SLOT_S
        sized = sized.with_columns(later, pl.format("sized-{}", "job_id").alias("job_id"))
        return Trace.of(pl.concat([gangs, sized]).sort("submit_s", maintain_order=True), f"{self.name}-seed{seed}")


def blend(quick: bool) -> Blend:
    """On Gavel's 36 + 36 + 36 GPUs, without costs of resizing, as both papers simulate."""
    base = read_scenario("hetero-108", quick=quick)
    jobs = base.file.jobs.model_copy(update={"count": GANGS, "quick": GANGS // 5, "load": 0.5})
    settings = replace(base.settings, ps_speeds="rough", overheads="none", min_run_s=0.0)
    return Blend("three types", base.file.model_copy(update={"jobs": jobs}), base.cluster, settings, quick)


def two_levels(study: Study) -> Json:
    """Other policies alone, the learned sizer alone, and the sizer over the others, on the same jobs."""
    under = UNDER[:1] if study.quick else UNDER
    sizer = learned("rough", study.weights)["dl2+"]
    policies = {name: name for name in under} | {FITTED: RIVALS[FITTED], "dl2+": sizer}
    policies |= {f"dl2+ over {name}": f"{sizer}:under={name}" for name in under}
    places = [blend(study.quick)] if study.quick else [blend(False), read_scenario("mixed")]
    return season(places, policies, study.seeds, "two levels", study.quick)


def lose(study: Study) -> Json:
    """Every shipped scenario with fewer jobs: the learned policies and all hand-written ones."""
    from argosy.policies.base import POLICIES

    names = QUICK_SCENARIOS if study.quick else scenario_names()
    rivals = QUICK_POLICIES if study.quick else tuple(name for name in POLICIES if name not in LEARNED)
    policies = {name: name for name in rivals} | learned("rough", study.weights)
    places = [read_scenario(name, quick=True) for name in names]
    return season(places, policies, LEAGUE_SEEDS[:1] if study.quick else LEAGUE_SEEDS, "lose", study.quick)


def season(places: Sequence[Scenario], policies: dict[str, str], seeds: Sequence[int], what: str, quick: bool) -> Json:
    """Mean JCT by seed of every policy in every place; a policy that fails somewhere has no figure there."""
    from argosy.cli._shared import progress_bar
    from argosy.league.run import Season

    played = Season(tuple(places), tuple(policies.values()), tuple(seeds))
    ended: list[Score] = []
    with progress_bar(what, len(played.matches()), None) as bar:

        def done(score: Score) -> None:
            ended.append(score)
            bar(len(ended))

        scores = played.play_all(1 if quick else None, done)
    labels = {spec: label for label, spec in policies.items()}
    cases: dict[str, Json] = {place.name: {"scenario": place.name, "policies": {}, "failed": {}} for place in places}
    for score in scores:
        case, label = cases[score.match.scenario], labels[score.match.policy]
        if score.metrics is None or score.metrics["unfinished"]:
            case["failed"][label] = str(score.error or "jobs did not finish")
        else:
            found = case["policies"].setdefault(label, {"jct_h": [], "sees_future": score.sees_future})
            found["jct_h"].append(score.metrics["jct_mean_s"] / 3600.0)
    for case in cases.values():
        for label in case["failed"]:
            case["policies"].pop(label, None)
    return {"seeds": list(seeds), "cases": list(cases.values())}
