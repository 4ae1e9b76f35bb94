"""Reinforcement by evolution strategies, which minimise the mean job completion time of whole runs itself.

Every candidate of a generation meets the same jobs, through the same policy and kernels that decide after training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from argosy.learn.algorithms.curriculum import Curriculum
from argosy.learn.algorithms.evolve import Evolution, Vector
from argosy.learn.algorithms.state import State
from argosy.learn.networks import Actor
from argosy.learn.training.cases import TrainingCases, easier
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.score import jobs_of, mean_jct_s
from argosy.learn.training.student import Arrays, Student, flatten, shape_like
from argosy.learn.training.workers import Workers


@dataclass(frozen=True, eq=False)
class Trial:
    """A task: run one candidate on some seeds."""

    student: Student
    cases: TrainingCases
    arrays: Arrays
    seeds: tuple[int, ...]


def attempt(trial: Trial) -> list[float]:
    """Return, for each seed, minus the logarithm of the mean completion time over the floor: more is better."""
    policy, found = trial.student.policy(trial.arrays), []
    for seed in trial.seeds:
        jobs = jobs_of(trial.cases, seed, trial.student.cap)
        found.append(-float(np.log(mean_jct_s(policy, jobs, seed) / jobs.floor_s)))
    return found


class EvolutionStage:
    """A stage in which each update is a generation."""

    name = "es"

    def __init__(self, recipe: Recipe, student: Student, cases: TrainingCases, actor: Actor, workers: Workers) -> None:
        options = recipe.options
        self._student, self._cases, self._workers, self._like = student, cases, workers, actor.arrays()
        self._curriculum = Curriculum(recipe.curriculum, seed=recipe.seed) if recipe.curriculum else None
        self.total = recipe.updates
        self._evolution = Evolution(
            flatten(self._like),
            pairs=int(options["pairs"]),
            sigma=options["sigma"],
            lr=options["lr"],
            decay=options["decay"],
            arrivals=int(options["arrivals"]),
            seed=recipe.seed,
        )

    @property
    def done(self) -> int:
        return self._evolution.updates

    def update(self) -> dict[str, float]:
        return self._evolution.update(self._evaluate)

    def _evaluate(self, vectors: Vector, seeds: Sequence[int]) -> Vector:
        cases = easier(self._cases, self._curriculum, self.done)
        trials = [Trial(self._student, cases, shape_like(vector, self._like), tuple(seeds)) for vector in vectors]
        return np.array(self._workers.map(attempt, trials))

    def arrays(self) -> Arrays:
        return shape_like(self._evolution.vector, self._like)

    def state(self) -> State:
        return self._evolution.state()

    def restore(self, state: State) -> None:
        self._evolution.restore(state)
