"""Validation: the policy with its weights of the moment, on fixed windows that training never sees.

The score is the mean job completion time over the floor, as a geometric mean over the windows: 1 can not be beaten.
The teacher's runs stand beside it. Actions are the likeliest, as they will be in earnest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from argosy.learn.training.ground import VALIDATION_SEED, Ground
from argosy.learn.training.pupil import Arrays, Pupil
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.score import jobs_of, mean_jct_s
from argosy.learn.training.workers import Workers
from argosy.policies.base import create

LOADS = "loads"  # the windows at other loads


@dataclass(frozen=True)
class Window:
    """Jobs that are kept for validation."""

    label: str
    ground: Ground
    seed: int


@dataclass(frozen=True, eq=False)
class Exam:
    """One run: of the pupil with these weights, or of the teacher."""

    window: Window
    pupil: Pupil
    arrays: Arrays | None = None
    teacher: str = ""


def sit(exam: Exam) -> tuple[float, float]:
    """Mean completion time and floor, in seconds."""
    ground, seed = exam.window.ground, exam.window.seed
    jobs = jobs_of(ground, seed, exam.pupil.cap)
    chosen = exam.pupil.policy(exam.arrays) if exam.arrays is not None else create(jobs.source.spec(exam.teacher))
    return mean_jct_s(chosen, jobs, seed), jobs.floor_s


@dataclass(frozen=True)
class Verdict:
    """What a validation found. Hours are mean completion times by scenario."""

    stage: str
    update: int  # of the stage
    score: float  # over the floor: smaller is better
    over_teacher: float  # the same over the teacher's
    hours: Mapping[str, float]
    teacher_hours: Mapping[str, float]
    floor_hours: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Judge:
    """The same windows every time."""

    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, workers: Workers) -> None:
        self._teacher, self._pupil, self._workers = recipe.teacher, pupil, workers
        alone = replace(ground, loads=False)
        grounds = {recipe.scenario: alone} | ({LOADS: ground} if recipe.loads else {})
        grounds |= {name: replace(alone, scenario=name) for name in recipe.judged}
        seeds = range(VALIDATION_SEED, VALIDATION_SEED + recipe.windows)
        self.windows = [Window(label, where, seed) for label, where in grounds.items() for seed in seeds]

    def check(self) -> None:
        """Refuse scenarios that are not there."""
        for window in self.windows:
            create(window.ground.source(window.seed).spec(self._teacher))

    def __call__(self, stage: str, update: int, arrays: Arrays) -> Verdict:
        """How good these weights are."""
        found = self._workers.map(sit, [Exam(window, self._pupil, arrays) for window in self.windows])
        spent, floor = np.array(found).T
        return Verdict(
            stage, update, float(np.exp(np.log(spent / floor).mean())),
            float(np.exp(np.log(spent / self._taught).mean())), self._hours(spent), self._hours(self._taught),
            self._hours(floor),
        )  # fmt: skip

    @cached_property
    def _taught(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        exams = [Exam(window, self._pupil, teacher=self._teacher) for window in self.windows]
        return np.array([spent for spent, _ in self._workers.map(sit, exams)])

    def _hours(self, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
        labels = np.array([window.label for window in self.windows])
        return {str(label): float(seconds[labels == label].mean()) / 3600.0 for label in dict.fromkeys(labels.tolist())}
