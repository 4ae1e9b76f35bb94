"""An environment without an end: when one episode ends, the next begins, with a new seed.

An environment in the middle of an episode cannot be written to a file. Instead, the number of the episode and its
actions so far are saved: taking them again leads to the same state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.learn.algorithms.state import State, need, number
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.student import Student
from argosy.seeding import stream


class EndlessEnv:
    """An environment for a collector, whose state can be saved and restored."""

    def __init__(
        self, student: Student, cases: TrainingCases, seed: int, index: int, reward: str, slots: int | None = None
    ) -> None:
        """Make environment number `index` of a training run.

        An episode has at most `slots` time slots, since the ends of runs, when few jobs are left, teach little.
        """
        self._student, self._cases, self._reward, self._slots = student, cases, reward, slots
        self._seed, self._index = seed, index
        self._episode = -1
        self._actions: list[int] = []
        self._env: ClusterEnv | None = None
        self._replayed: tuple[NDArray[np.float32], dict[str, Any]] | None = None

    @property
    def env(self) -> ClusterEnv:
        assert self._env is not None
        return self._env

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the next episode, or go on in the middle of the restored one; `seed` is ignored."""
        if self._replayed is not None:
            shown, self._replayed = self._replayed, None
            return shown
        self._episode += 1
        self._actions = []
        return self._begin()

    def _begin(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        drawn = stream(self._seed, "episodes", self._index, self._episode).integers(*TRAINING_SEEDS)
        self._env = self._student.env(self._cases, int(drawn), reward=self._reward, slots=self._slots)
        observation, info = self._env.reset(seed=int(drawn))
        return observation, {"now": 0.0, **info}

    def step(self, action: int) -> Any:
        self._actions.append(int(action))
        return self.env.step(action)

    def action_masks(self) -> NDArray[np.bool_]:
        return self.env.action_masks()

    def state(self) -> State:
        return {"episode": number(self._episode), "actions": torch.tensor(self._actions, dtype=torch.int64)}

    def restore(self, state: State) -> None:
        """Return to a saved state by taking the same actions again."""
        self._episode = int(need(state, "episode", "environment"))
        self._actions = need(state, "actions", "environment").tolist()
        if self._episode < 0:
            return
        observation, info = self._begin()
        ended = False
        for action in self._actions:
            observation, _, terminated, truncated, more = self.env.step(action)
            info, ended = {**info, **more}, terminated or truncated
        if ended:  # the next episode begins with the next reset
            return
        self._replayed = observation, {key: info[key] for key in ("now", "trace_seed")}
