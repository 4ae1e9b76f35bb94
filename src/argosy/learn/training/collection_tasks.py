"""Tasks for worker processes: collect steps to learn from, a teacher's or the student's own.

A task contains everything that its answer depends on, including the seeds of random draws, so the answer is the same
wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import episodes
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.demonstrations import correct, demonstrate
from argosy.learn.training.student import Student
from argosy.seeding import stream

BY_EPISODE = ("final_observation", "final_mask", "arrivals")
SHARE_OF_ENDS = 0.25  # at least this share of the samples are ends of decisions; most steps are grants


@dataclass(frozen=True, eq=False)
class DemonstrationTask:
    """A task: collect one episode, with a teacher's advice for each step."""

    student: Student
    cases: TrainingCases
    seed: int  # of the jobs
    teacher: str
    arrays: Mapping[str, NDArray[np.float32]] | None = None  # weights of the student; None: the teacher acts
    share: float = 1.0  # the share of steps in which the teacher acts
    samples: int = 1024
    draws: int = 0


@dataclass(frozen=True, eq=False)
class EpisodeTask:
    """A task: collect one episode in which the student acts."""

    student: Student
    cases: TrainingCases
    seed: int
    arrays: Mapping[str, NDArray[np.float32]]
    reward: str
    draws: int
    slots: int | None = None


def collect_demonstration(task: DemonstrationTask) -> Rollout:
    """Return some of the steps of an episode, with what the teacher advised."""
    student, seed, rng = task.student, task.seed, stream(task.draws, "lesson")
    source = task.cases.source(seed)
    if task.arrays is None:
        rollout = demonstrate(student, source, seed, task.teacher, rng)
    else:
        act = NetworkActs(student.actor_with(task.arrays), seed=task.draws)
        acting = student.policy(task.arrays)
        rollout = correct(student, source, seed, task.teacher, rng, acting, act, task.share)
    return thin(rollout, task.samples, rng)


def collect_episode(task: EpisodeTask) -> Rollout:
    """Return all steps of an episode, or those of its first time slots."""
    env = task.student.env(task.cases, task.seed, reward=task.reward)
    act = NetworkActs(task.student.actor_with(task.arrays), seed=task.draws)
    return episodes([env], act, [task.seed], slots=task.slots)


def thin(rollout: Rollout, samples: int, rng: np.random.Generator) -> Rollout:
    """Return this many of its steps, in order; ends of decisions, which are rare, are kept more often than grants."""
    if len(rollout) <= samples:
        return rollout
    ends = np.flatnonzero(rollout.advice == rollout.mask.shape[1] - 1)
    ends = rng.permutation(ends)[: int(samples * SHARE_OF_ENDS)]
    others = rng.permutation(np.setdiff1d(np.arange(len(rollout)), ends))[: samples - len(ends)]
    rows = np.sort(np.concatenate([ends, others]))
    columns = {f.name: getattr(rollout, f.name) for f in fields(rollout)}
    return Rollout(**{name: c if name in BY_EPISODE else c[rows] for name, c in columns.items()})
