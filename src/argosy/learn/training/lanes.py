"""Environments that go on for ever: when one episode ends, the next begins, each with the seed that follows.

An environment in the middle of an episode can not be written to a file. What led there can: the number of the episode
and the actions since it began. Taking them again leads to the same state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.learn.algorithms.state import State, need, number
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.training.ground import Ground
from argosy.learn.training.pupil import Pupil
from argosy.seeding import stream


class Endless:
    """One environment as a collector sees it, with a state."""

    def __init__(
        self, pupil: Pupil, ground: Ground, seed: int, lane: int, reward: str, slots: int | None = None
    ) -> None:
        """`slots`: the most of an episode; ends of runs, when few jobs are left, teach little."""
        self._pupil, self._ground, self._reward, self._slots = pupil, ground, reward, slots
        self._seed, self._lane = seed, lane
        self._episode = -1
        self._actions: list[int] = []
        self._env: ClusterEnv | None = None
        self._replayed: tuple[NDArray[np.float32], dict[str, Any]] | None = None

    @property
    def env(self) -> ClusterEnv:
        assert self._env is not None
        return self._env

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The next episode, or the middle of the one that was restored. Seeds are not asked for: they follow."""
        if self._replayed is not None:
            shown, self._replayed = self._replayed, None
            return shown
        self._episode += 1
        self._actions = []
        return self._begin()

    def _begin(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        drawn = stream(self._seed, "episodes", self._lane, self._episode).integers(*TRAINING_SEEDS)
        self._env = self._pupil.env(self._ground, int(drawn), reward=self._reward, slots=self._slots)
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
        """Take the same actions again."""
        self._episode = int(need(state, "episode", "environment"))
        self._actions = need(state, "actions", "environment").tolist()
        if self._episode < 0:
            return
        observation, info = self._begin()
        ended = False
        for action in self._actions:
            observation, _, terminated, truncated, more = self.env.step(action)
            info, ended = {**info, **more}, terminated or truncated
        if ended:  # the next one begins when it is asked for
            return
        self._replayed = observation, {key: info[key] for key in ("now", "trace_seed")}
