"""The jobs of each seed: those of the scenario or, with `loads`, those of another case of it for every seed.

Seeds from 1,000,000 on are for training, and those from 500,000 on for validation. Policies are compared on small
seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from argosy.errors import InputError
from argosy.learn.algorithms.curriculum import Curriculum
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.envs.source import Source, check_elastic, type_names
from argosy.learn.loads import draw_case, draw_variant
from argosy.learn.training.recipe import Recipe
from argosy.perf.rate_tables import compile_tables
from argosy.scenario import Scenario, read_scenario
from argosy.workload.trace import Trace

VALIDATION_SEED = 500_000
PROBE = TRAINING_SEEDS[0]
SIZERS = ("dl2", "dl2+")  # systems that decide sizes alone


@dataclass(frozen=True)
class TrainingCases:
    """Says which jobs belong to a seed. It is sent to other processes, each of which reads the scenario once."""

    scenario: str
    quick: bool = False
    data: str | None = None
    loads: bool = False
    slot_s: float = 1200.0
    load: float = 1.0  # factor on the load that is drawn; a curriculum begins with a small one
    jobs: float = 1.0
    sizing: bool = True  # whether it is for a policy that only sizes jobs: then some must be elastic

    @classmethod
    def of(cls, recipe: Recipe, data: Path | None) -> TrainingCases:
        folder = None if data is None else str(data)
        sizing = recipe.system in SIZERS
        return cls(recipe.scenario, recipe.quick, folder, recipe.loads, recipe.slot_s, sizing=sizing)

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Return the scenarios whose jobs the seeds bring in turn."""
        return tuple(name.strip() for name in self.scenario.split(","))

    def source(self, seed: int) -> Source:
        """Return the source of the jobs of this seed."""
        names = self.scenarios
        base = _scenario(names[seed % len(names)], self.quick, self.data)
        if not self.loads:
            return base
        if not self.sizing:
            return draw_variant(base, seed)
        return draw_case(base, seed, load=self.load, jobs=self.jobs, slot_s=self.slot_s)

    def check(self) -> None:
        """Raise an error if there is nothing to learn from a scenario."""
        for name in self.scenarios:
            base = _scenario(name, self.quick, self.data)
            trace = base.trace(PROBE)
            if len(trace) < base.count:
                hint = "use a longer trace, or a scenario that asks for fewer jobs"
                raise InputError(
                    f"the trace has {len(trace)} jobs, fewer than the {base.count} of a training window",
                    where=str(base.real or base.name),
                    hint=hint,
                )
            if self.sizing:
                check_elastic(trace, base)

    def types(self) -> tuple[str, ...]:
        """Return the models that observations distinguish, as traces name them."""
        return _types(self.scenario, self.quick, self.data)

    def seen_types(self) -> tuple[str, ...]:
        """Return the same models as policies name them: a trace may use another name for a known network."""
        base = _scenario(self.scenario, self.quick, self.data)
        seen: dict[str, str] = {}
        seed = 0
        while missing := [name for name in self.types() if name not in seen]:
            seen |= _names(base.trace(seed), base)
            seed += 1
            if seed > 100:
                raise InputError(f"no job of the scenario {base.name} has the model {missing[0]}")
        return tuple(seen[name] for name in self.types())


@lru_cache(maxsize=8)
def _scenario(name: str, quick: bool, data: str | None) -> Scenario:
    return read_scenario(name, quick=quick, data=None if data is None else Path(data))


@lru_cache(maxsize=8)
def _types(name: str, quick: bool, data: str | None) -> tuple[str, ...]:
    return type_names(_scenario(name, quick, data).trace, None)


def _names(trace: Trace, base: Scenario) -> dict[str, str]:
    """Return, for each model of the trace, its name in the performance tables."""
    tables = compile_tables(trace.frame, base.cluster, model=base.settings.perf, ps_speeds=base.settings.ps_speeds)  # type: ignore[arg-type]
    seen = {"any": "any"}
    for row, model in enumerate(trace.frame["model"].to_list()):
        served, plain = int(tables.ps_class[row]), int(tables.job_class[row])
        if model is not None:
            name = tables.ps_names[served] if served >= 0 else tables.class_names[plain].partition("@")[0]
            seen.setdefault(model, name)
    return seen


def easier(cases: TrainingCases, curriculum: Curriculum | None, update: int) -> TrainingCases:
    """Return the cases of an update; with a curriculum the first updates have less load and fewer jobs."""
    if curriculum is None:
        return cases
    difficulty = curriculum.difficulty(update)
    return replace(cases, load=difficulty.load, jobs=difficulty.length)
