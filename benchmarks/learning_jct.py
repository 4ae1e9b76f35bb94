"""Completion times of learned policies and their rivals: as published, with costs of resizing, over many loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Json, Options
from benchmarks.learning_policies import DRF, FITTED, LITERAL, RIVALS, WEIGHTS, from_drf, learned
from benchmarks.learning_runs import Place, compare

SEEDS = tuple(range(10))  # training draws from 1,000,000 on, validation from 500,000 on
SCENARIOS = ("dl2-500", "dl2-100", "dl2-testbed", "dl2-short", "dl2-heavy")
RESIZED = ("dl2-500", "dl2-100")
NODES = (5, 13, 25, 50, 100, 200, 500)
JOBS, FEW_JOBS = 200, 40  # few on the smallest cluster, or it would take weeks
MEASUREMENTS = "throughput/dl2_speed.csv"


@dataclass(frozen=True)
class Study:
    """What every part of the study is told."""

    options: Options
    weights: Path | None = None  # a folder instead of the zoo

    @property
    def quick(self) -> bool:
        return self.options.quick

    @property
    def seeds(self) -> tuple[int, ...]:
        return SEEDS[:2] if self.quick else SEEDS

    @property
    def data(self) -> str | None:
        return str(self.options.data) if self.options.data is not None else None

    @property
    def speeds(self) -> tuple[str, ...]:
        """Measured ones only where the measurements are."""
        there = self.options.data is not None and (self.options.data / MEASUREMENTS).is_file()
        return tuple(WEIGHTS) if there else ("rough",)

    def policies(self, *labels: str) -> dict[str, dict[str, str]]:
        """Specs by speeds and label: these rivals (none named: all), and the learned ones."""
        rivals = {label: RIVALS[label] for label in labels or RIVALS}
        return {speeds: rivals | learned(speeds, self.weights) for speeds in self.speeds}

    def compare(self, places: list[Place], policies: dict[str, dict[str, str]], what: str) -> Json:
        cases = compare(places, policies, self.seeds, self.data, self.quick, what)
        return {"seeds": list(self.seeds), "cases": cases}


def jct(study: Study) -> Json:
    """Every policy in every one of DL2's settings, without costs of resizing, as the published figures are."""
    scenarios = ("dl2-short",) if study.quick else SCENARIOS
    places = [Place(scenario, speeds) for speeds in study.speeds for scenario in scenarios]
    policies = {s: specs | from_drf(s, study.weights) for s, specs in study.policies().items()}
    return study.compare(places, policies, "jct")


def resize(study: Study) -> Json:
    """The same where resizing takes time: without restarting the survivors, and from a checkpoint."""
    scenarios = ("dl2-short",) if study.quick else RESIZED
    places = [
        Place(scenario, speeds, costs=costs)
        for speeds in study.speeds[: 1 if study.quick else None]
        for scenario in scenarios
        for costs in ("none", "hot", "cold")
    ]
    return study.compare(places, study.policies(DRF, LITERAL, FITTED), "resize")


def loads(study: Study) -> Json:
    """The same jobs and the same weights on clusters from empty to crowded."""
    nodes = (5, 50) if study.quick else NODES
    jobs = 12 if study.quick else JOBS
    places = [
        Place("dl2-500", speeds, nodes=n, jobs=min(jobs, FEW_JOBS) if n == NODES[0] else jobs)
        for speeds in study.speeds[: 1 if study.quick else None]
        for n in nodes
    ]
    return study.compare(places, study.policies(DRF, LITERAL, FITTED), "loads")
