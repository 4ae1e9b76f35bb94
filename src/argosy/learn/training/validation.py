"""Validation runs the policy with its present weights on fixed windows that training never sees.

The score is the mean job completion time divided by the floor (see `score`), as a geometric mean over the windows; no
score can be below 1. The teacher runs on the same windows. The policy takes its most probable actions, as after
training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from argosy.learn.training.cases import VALIDATION_SEED, TrainingCases
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.score import jobs_of, mean_jct_s
from argosy.learn.training.student import Arrays, Trainable
from argosy.learn.training.workers import Workers
from argosy.policies.base import create

LOADS = "loads"  # label of the windows at other loads


@dataclass(frozen=True)
class Window:
    """Identifies a set of jobs that is reserved for validation."""

    label: str
    cases: TrainingCases
    seed: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A task: one run of the student with these weights, or of the teacher."""

    window: Window
    student: Trainable
    arrays: Arrays | None = None
    teacher: str = ""


def evaluate(evaluation: Evaluation) -> tuple[float, float]:
    """Run a window, and return the mean completion time and the floor, in seconds."""
    cases, seed = evaluation.window.cases, evaluation.window.seed
    jobs = jobs_of(cases, seed, evaluation.student.cap)
    if evaluation.arrays is not None:
        policy = evaluation.student.policy(evaluation.arrays)
    else:
        policy = create(jobs.source.spec(evaluation.teacher))
    return mean_jct_s(policy, jobs, seed), jobs.floor_s


@dataclass(frozen=True)
class ValidationResult:
    """Holds the outcome of a validation. Hours are mean completion times by scenario."""

    stage: str
    update: int  # of the stage
    score: float  # mean completion time divided by the floor: smaller is better
    over_teacher: float  # mean completion time divided by the teacher's
    hours: Mapping[str, float]
    teacher_hours: Mapping[str, float]
    floor_hours: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Validation:
    """Validates weights on the same windows every time."""

    def __init__(self, recipe: Recipe, student: Trainable, cases: TrainingCases, workers: Workers) -> None:
        self._teacher, self._student, self._workers = recipe.teacher, student, workers
        alone = replace(cases, loads=False)
        case_sets = {name: replace(alone, scenario=name) for name in cases.scenarios}
        case_sets |= {LOADS: cases} if recipe.loads else {}
        case_sets |= {name: replace(alone, scenario=name) for name in recipe.judged}
        self.windows = []
        for label, where in case_sets.items():
            count = recipe.windows * len(where.scenarios)
            self.windows += [Window(label, where, VALIDATION_SEED + i) for i in range(count)]

    def check(self) -> None:
        """Raise an error if a scenario does not exist."""
        for window in self.windows:
            create(window.cases.source(window.seed).spec(self._teacher))

    def __call__(self, stage: str, update: int, arrays: Arrays) -> ValidationResult:
        """Return how good these weights are."""
        found = self._workers.map(evaluate, [Evaluation(window, self._student, arrays) for window in self.windows])
        spent, floor = np.array(found).T
        return ValidationResult(
            stage,
            update,
            float(np.exp(np.log(spent / floor).mean())),
            float(np.exp(np.log(spent / self._teacher_s).mean())),
            self._hours(spent),
            self._hours(self._teacher_s),
            self._hours(floor),
        )

    @cached_property
    def _teacher_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        evaluations = [Evaluation(window, self._student, teacher=self._teacher) for window in self.windows]
        return np.array([spent for spent, _ in self._workers.map(evaluate, evaluations)])

    def _hours(self, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
        labels = np.array([window.label for window in self.windows])
        return {str(label): float(seconds[labels == label].mean()) / 3600.0 for label in dict.fromkeys(labels.tolist())}
