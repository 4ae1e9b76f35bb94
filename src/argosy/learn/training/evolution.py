"""Reinforcement by evolution strategies: what counts is the mean job completion time itself, of whole runs.

Every candidate of a generation meets the same jobs, through the same policy and kernels that will decide in earnest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from argosy.learn.algorithms.curriculum import Curriculum
from argosy.learn.algorithms.evolve import Evolution, Vector
from argosy.learn.algorithms.state import State
from argosy.learn.networks import Actor
from argosy.learn.training.ground import Ground, easier
from argosy.learn.training.pupil import Arrays, Pupil, flatten, shape_like
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.score import jobs_of, mean_jct_s
from argosy.learn.training.workers import Workers


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate on some seeds."""

    pupil: Pupil
    ground: Ground
    arrays: Arrays
    seeds: tuple[int, ...]


def attempt(trial: Trial) -> list[float]:
    """Minus the logarithm of the mean completion time over the floor, by seed: more is better."""
    policy, found = trial.pupil.policy(trial.arrays), []
    for seed in trial.seeds:
        jobs = jobs_of(trial.ground, seed, trial.pupil.cap)
        found.append(-float(np.log(mean_jct_s(policy, jobs, seed) / jobs.floor_s)))
    return found


class Evolving:
    """Stage: each update is a generation."""

    name = "es"

    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, actor: Actor, workers: Workers) -> None:
        options = recipe.options
        self._pupil, self._ground, self._workers, self._like = pupil, ground, workers, actor.arrays()
        self._curriculum = Curriculum(recipe.curriculum, seed=recipe.seed) if recipe.curriculum else None
        self.total = recipe.updates
        self._evolution = Evolution(
            flatten(self._like), pairs=int(options["pairs"]), sigma=options["sigma"], lr=options["lr"],
            decay=options["decay"], arrivals=int(options["arrivals"]), seed=recipe.seed,
        )  # fmt: skip

    @property
    def done(self) -> int:
        return self._evolution.updates

    def update(self) -> dict[str, float]:
        return self._evolution.update(self._evaluate)

    def _evaluate(self, vectors: Vector, seeds: Sequence[int]) -> Vector:
        ground = easier(self._ground, self._curriculum, self.done)
        trials = [Trial(self._pupil, ground, shape_like(vector, self._like), tuple(seeds)) for vector in vectors]
        return np.array(self._workers.map(attempt, trials))

    def arrays(self) -> Arrays:
        return shape_like(self._evolution.vector, self._like)

    def state(self) -> State:
        return self._evolution.state()

    def restore(self, state: State) -> None:
        self._evolution.restore(state)
