"""Steps to learn from, gathered in worker processes: a teacher's, or the pupil's own.

A task says everything, also the seed of each draw, so its answer is the same wherever it is worked on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import episodes
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.training.ground import Ground
from argosy.learn.training.pupil import Pupil
from argosy.learn.training.teaching import correct, demonstrate
from argosy.seeding import stream

BY_EPISODE = ("final_observation", "final_mask", "arrivals")
SHARE_OF_ENDS = 0.25  # of a lesson's samples, at least, are ends of decisions: most steps are grants


@dataclass(frozen=True, eq=False)
class Lesson:
    """One episode under a teacher's eyes."""

    pupil: Pupil
    ground: Ground
    seed: int  # of the jobs
    teacher: str
    arrays: Mapping[str, NDArray[np.float32]] | None = None  # of the pupil; None: the teacher acts
    share: float = 1.0  # of the steps in which the teacher acts
    samples: int = 1024
    draws: int = 0


@dataclass(frozen=True, eq=False)
class Practice:
    """One episode of the pupil's own."""

    pupil: Pupil
    ground: Ground
    seed: int
    arrays: Mapping[str, NDArray[np.float32]]
    reward: str
    draws: int
    slots: int | None = None


def learn(lesson: Lesson) -> Rollout:
    """Some of the steps of an episode, with what the teacher advised."""
    pupil, seed, rng = lesson.pupil, lesson.seed, stream(lesson.draws, "lesson")
    source = lesson.ground.source(seed)
    if lesson.arrays is None:
        rollout = demonstrate(pupil, source, seed, lesson.teacher, rng)
    else:
        act = NetworkActs(pupil.actor_with(lesson.arrays), seed=lesson.draws)
        student = pupil.policy(lesson.arrays)
        rollout = correct(pupil, source, seed, lesson.teacher, rng, student, act, lesson.share)
    return thin(rollout, lesson.samples, rng)


def practise(task: Practice) -> Rollout:
    """All steps of an episode, or of its first slots."""
    env = task.pupil.env(task.ground, task.seed, reward=task.reward)
    act = NetworkActs(task.pupil.actor_with(task.arrays), seed=task.draws)
    return episodes([env], act, [task.seed], slots=task.slots)


def thin(rollout: Rollout, samples: int, rng: np.random.Generator) -> Rollout:
    """So many of its steps, in order; the rare ends of decisions are kept more often than the others."""
    if len(rollout) <= samples:
        return rollout
    ends = np.flatnonzero(rollout.advice == rollout.mask.shape[1] - 1)
    ends = rng.permutation(ends)[: int(samples * SHARE_OF_ENDS)]
    others = rng.permutation(np.setdiff1d(np.arange(len(rollout)), ends))[: samples - len(ends)]
    rows = np.sort(np.concatenate([ends, others]))
    columns = {f.name: getattr(rollout, f.name) for f in fields(rollout)}
    return Rollout(**{name: c if name in BY_EPISODE else c[rows] for name, c in columns.items()})
