"""What training brings: the warm-up alone, DL2 without its parts, and three algorithms for the same network.

Arms are trained side by side, each on one core, so that they have the same time. None of them sees the jobs that it is
judged by: those of validation (`ablations`, and all curves) or those of the comparison (`warmup`, `algorithms`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.errors import ArgosyError
from argosy.zoo import find, names
from benchmarks.harness import Json
from benchmarks.learning_jct import Study
from benchmarks.learning_policies import DRF, FITTED, FROM_DRF, RIVALS, TEACHER
from benchmarks.learning_runs import Place, compare

if TYPE_CHECKING:
    from argosy.learn.training.recipe import Recipe
    from argosy.learn.training.validation import ValidationResult

TRAINING_SEEDS = (1, 2, 3)
WARM_UP = "warm-up"  # the stage before reinforcement
TEACHERS = {
    DRF: "drf",
    FITTED: "optimus:work=estimate:newcomers=wait:verbatim=no",
    TEACHER: "frontier:newcomers=wait",
}
TAUGHT = (*(("dl2", teacher) for teacher in TEACHERS), ("dl2+", TEACHER))
ABLATED = "dl2-testbed"
PUBLISHED: Json = {  # one reward for a whole slot, old samples taken as new ones, everything from the first slot on
    "own": 0,
    "normalise": 0,
    "importance": 0,
    "critic_first": 0,
    "gamma": 0.9,
    "entropy": 0.1,
    "critic_lr": 1e-4,
}
ABLATIONS: dict[str, Json] = {
    "full": {},
    "no warm-up": {"warm_up": 0, "dagger": 0},
    "no exploration": {"exploration": False},
    "no replay": {"replay": False},
    "no critic": {"critic": False},
    "as published": {"options": PUBLISHED},
}
UPDATES = 500  # of every arm
ALGORITHMS = ("es", "ppo", "sac")
MINUTES = 3.0  # of every algorithm, with its warm-up
JUDGED = ("dl2-500", "dl2-100", "dl2-heavy")
TINY: Json = {
    "quick": True,
    "scenario": "dl2-short",
    "loads": False,
    "warm_up": 1,
    "dagger": 0,
    "windows": 1,
    "every": 1,
    "options": {"lessons": 1, "clone_steps": 5},
}
FEW: Json = {"updates": 1, "options": {"pairs": 2, "arrivals": 1}}


@dataclass(frozen=True)
class Arm:
    """One training."""

    label: str
    recipe: Recipe
    file: Path
    minutes: float | None = None


def warmup(study: Study) -> Json:
    """After the warm-up alone, beside its teacher, on jobs that neither was tuned on."""
    from argosy.learn.training.recipe import Recipe

    usual: Json = TINY if study.quick else {"scenario": "dl2-500", "seed": TRAINING_SEEDS[0]}
    taught = TAUGHT[-1:] if study.quick else TAUGHT
    with tempfile.TemporaryDirectory() as folder:
        arms = [
            Arm(
                f"{system} from {teacher}",
                Recipe.of(system, teacher=TEACHERS[teacher], updates=0, **usual),
                Path(folder) / f"{number}.safetensors",
            )
            for number, (system, teacher) in enumerate(taught)
        ]
        trained = train_all(arms, "warm-up")
        policies = {label: RIVALS[label] for label in TEACHERS} | specs(arms)
        places = [Place(usual["scenario"])]
        cases = compare(places, {"rough": policies}, study.seeds, None, study.quick, "judging")
    lessons = [
        {"label": arm.label, "policy": system, "teacher": teacher, "minutes": found["minutes"]}
        for arm, (system, teacher), found in zip(arms, taught, trained)
    ]
    return {"seeds": list(study.seeds), "cases": cases, "lessons": lessons, "versions": trained[0]["versions"]}


def reinforced(study: Study) -> Json:
    """The validations of the trainings that made `dl2-drf` and all other shipped weights, as their files have them."""
    files = {name: name if study.weights is None else str(study.weights / f"{name}.safetensors") for name in names()}
    about = {name: find(file).about for name, file in files.items()}
    curves = {
        name: [
            {"update": update if stage != WARM_UP else 0, "score": score, "over_teacher": over}
            for stage, update, score, over in one["curve"]
        ]
        for name, one in about.items()
    }
    way = about["dl2-drf"]
    case = {"arm": FROM_DRF, "curves": [curves["dl2-drf"]], **{key: way[key] for key in ("command", "minutes", "seed")}}
    shipped = [
        {
            "name": name,
            "teacher": about[name]["recipe"]["teacher"],
            "updates": about[name]["updates"],
            "minutes": about[name]["minutes"],
            "before": curve[0],
            "best": min(curve, key=lambda point: point["score"]),
        }
        for name, curve in curves.items()
    ]
    return {"seeds": [way["seed"]], "cases": [case], "shipped": shipped}


def ablations(study: Study) -> Json:
    """DL2's own algorithm with and without its parts: final weights after the same number of updates."""
    from argosy.learn.training.recipe import Recipe

    usual: Json = {"scenario": ABLATED, "dagger": 0, "windows": 10, "every": UPDATES // 10, "updates": UPDATES}
    usual |= TINY | {"updates": 2} if study.quick else {}
    seeds = TRAINING_SEEDS[:1] if study.quick else TRAINING_SEEDS
    arms = list(ABLATIONS)[:2] if study.quick else list(ABLATIONS)
    with tempfile.TemporaryDirectory() as folder:
        todo = [
            Arm(
                label,
                Recipe.of("dl2", seed=seed, patience=0, **(usual | ABLATIONS[label])),
                Path(folder) / f"{number}-{seed}.safetensors",
            )
            for number, label in enumerate(arms)
            for seed in seeds
        ]
        return grouped(todo, train_all(todo, "ablations"), "arm", seeds)


def algorithms(study: Study) -> Json:
    """dl2+ from the same warm-up, reinforced by three algorithms for the same time; the best weights are judged."""
    from argosy.learn.training.recipe import Recipe

    usual: Json = {"scenario": "dl2-500", "loads": True, "every": 3, "updates": 100_000}
    usual |= TINY | FEW if study.quick else {}
    seeds = TRAINING_SEEDS[:1] if study.quick else TRAINING_SEEDS
    minutes = None if study.quick else MINUTES
    with tempfile.TemporaryDirectory() as folder:
        todo = [
            Arm(
                algo,
                Recipe.of("dl2+", algo=algo, seed=seed, patience=0, **usual),
                Path(folder) / f"{algo}-{seed}.safetensors",
                minutes,
            )
            for algo in (ALGORITHMS[:1] if study.quick else ALGORITHMS)
            for seed in seeds
        ]
        found = grouped(todo, train_all(todo, "algorithms"), "algo", seeds)
        policies = {"rough": {DRF: RIVALS[DRF], FITTED: RIVALS[FITTED]} | specs(todo)}
        places = [Place(name) for name in (("dl2-short",) if study.quick else JUDGED)]
        found["judged"] = compare(places, policies, study.seeds, None, study.quick, "judging")
    return found


def specs(arms: Sequence[Arm]) -> dict[str, str]:
    """Policies with the weights that were trained; seeds tell arms of one label apart."""
    twice = len({arm.label for arm in arms}) < len(arms)
    return {
        f"{arm.label} {arm.recipe.seed}" if twice else arm.label: f"{arm.recipe.system}:weights={arm.file}"
        for arm in arms
    }


def grouped(arms: Sequence[Arm], trained: Sequence[Json], name: str, seeds: Sequence[int]) -> Json:
    """One case a label, with a curve and the last score for each seed."""
    cases: dict[str, Json] = {}
    for arm, found in zip(arms, trained):
        case = cases.setdefault(arm.label, {name: arm.label, "curves": [], "last": [], "best": [], "minutes": []})
        case["curves"].append(found["curve"])
        case["last"].append(found["curve"][-1]["score"])
        case["best"].append(min(point["score"] for point in found["curve"]))
        case["minutes"].append(found["minutes"])
    return {"seeds": list(seeds), "cases": list(cases.values()), "versions": trained[0]["versions"]}


def train_all(arms: Sequence[Arm], what: str) -> list[Json]:
    """Side by side, under a bar."""
    from argosy.cli._shared import progress_bar
    from argosy.sim.pool import run_tasks

    with progress_bar(what, len(arms), None) as bar:
        ended: list[Json | ArgosyError] = []

        def done(outcome: Json | ArgosyError) -> None:
            ended.append(outcome)
            bar(len(ended))
            if isinstance(outcome, ArgosyError):
                raise outcome

        outcomes = run_tasks(teach, arms, lambda arm, died: died, None if len(arms) > 2 else 1, done)
    return [outcome for outcome in outcomes if not isinstance(outcome, ArgosyError)]


def teach(arm: Arm) -> Json | ArgosyError:
    """One training in this process: its validations, and when they were made."""
    from argosy.learn.training.progress import ProgressListener
    from argosy.learn.training.train import train
    from argosy.sim.compare import as_error

    began = time.monotonic()
    curve: list[Json] = []

    class Clock(ProgressListener):
        def validated(self, validation: ValidationResult, best: bool) -> None:
            update = validation.update if validation.stage != WARM_UP else 0
            minutes = (time.monotonic() - began) / 60
            hours = dict(validation.hours)
            curve.append({"update": update, "minutes": minutes, "score": validation.score, "hours": hours})

    try:
        trained = train(arm.recipe, arm.file, workers=1, minutes=arm.minutes, progress=Clock())
    except Exception as problem:  # comes from another process: told when all are done
        error, details = as_error(problem)
        return ArgosyError(f"{arm.label} (seed {arm.recipe.seed}): {error}\n{details}".rstrip())
    if trained.weights is None:
        return ArgosyError(
            f"{arm.label} (seed {arm.recipe.seed}): {arm.minutes:g} minutes were over before any validation"
        )
    versions: Any = trained.weights.about["versions"]
    return {"curve": curve, "minutes": (time.monotonic() - began) / 60, "versions": versions}
