"""Reinforcement by evolution strategies, which directly minimise the mean job completion time of whole runs.

Every candidate of a generation gets the same jobs, and decides with the same policy and kernels as after training.
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
from argosy.learn.training.score import Cases, completion_times_s, jobs_of
from argosy.learn.training.student import Arrays, Trainable, flatten, shape_like
from argosy.learn.training.workers import Workers

LATE = 0.99


@dataclass(frozen=True, eq=False)
class Trial:
    """A task: run one candidate on some seeds."""

    student: Trainable
    cases: Cases
    arrays: Arrays
    seeds: tuple[int, ...]
    tail: float = 0.0  # weight of the 99th percentile beside the mean


def attempt(trial: Trial) -> list[float]:
    """Return, for each seed, minus the logarithm of the mean completion time divided by the floor; more is better."""
    policy, found = trial.student.policy(trial.arrays), []
    for seed in trial.seeds:
        jobs = jobs_of(trial.cases, seed, trial.student.cap)
        spent = completion_times_s(policy, jobs, seed)
        score = -np.log(spent.mean() / jobs.floor_s)
        if trial.tail:
            score -= trial.tail * np.log(np.quantile(spent, LATE) / jobs.floor_s)
        found.append(float(score))
    return found


class EvolutionStage:
    """A stage in which each update is a generation."""

    name = "es"

    def __init__(self, recipe: Recipe, student: Trainable, cases: Cases, actor: Actor, workers: Workers) -> None:
        options = recipe.options
        self._student, self._cases, self._workers, self._like = student, cases, workers, actor.arrays()
        self._curriculum = Curriculum(recipe.curriculum, seed=recipe.seed) if recipe.curriculum else None
        self.total, self._tail = recipe.updates, options["tail"]
        self._evolution = Evolution(
            flatten(self._like),
            pairs=int(options["pairs"]),
            sigma=options["sigma"],
            lr=options["lr"],
            decay=options["decay"],
            arrivals=int(options["arrivals"]),
            seed=recipe.seed,
            scale=student.scale(self._like, options),
            average=options["average"],
        )

    @property
    def done(self) -> int:
        return self._evolution.updates

    def update(self) -> dict[str, float]:
        return self._evolution.update(self._evaluate)

    def _evaluate(self, vectors: Vector, seeds: Sequence[int]) -> Vector:
        cases = self._cases
        if isinstance(cases, TrainingCases):
            cases = easier(cases, self._curriculum, self.done)
        each = spread_over(seeds, len(cases.scenarios), self.done)
        trials = [Trial(self._student, cases, shape_like(v, self._like), each, self._tail) for v in vectors]
        return np.array(self._workers.map(attempt, trials))

    def arrays(self) -> Arrays:
        return shape_like(self._evolution.averaged, self._like)

    def state(self) -> State:
        return self._evolution.state()

    def restore(self, state: State) -> None:
        self._evolution.restore(state)


def spread_over(seeds: Sequence[int], scenarios: int, generation: int) -> tuple[int, ...]:
    """Move seeds so that they bring the scenarios in turn; the next generation goes on where this one ends."""
    first = generation * len(seeds)
    return tuple(seed - seed % scenarios + (first + i) % scenarios for i, seed in enumerate(seeds))
