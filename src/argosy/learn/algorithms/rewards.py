"""Transformations of rewards before learning: the differential form, and normalisation.

In the differential (average-reward) form, the mean reward per unit of time, times the time that has passed, is
subtracted from each reward. A return then says how much better than average the decisions were, and is finite even if
jobs never stop arriving. The mean is that of the last `window` slots. Normalisation divides by the running standard
deviation of the slots' rewards.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.state import State, need, number
from argosy.learn.errors import TrainingError


class Rewards:
    """Transforms rewards, and keeps their running mean and deviation."""

    def __init__(self, *, differential: bool = False, normalise: bool = False, window: int = 100_000) -> None:
        if window < 1:
            raise InputError(f"the window must be at least 1 slot, is {window}")
        self.differential, self.normalise, self.window = differential, normalise, window
        self._rewards, self._times = np.zeros(0), np.zeros(0)
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    @property
    def rate(self) -> float:
        """Return the mean reward per unit of time."""
        time = float(self._times.sum())
        return float(self._rewards.sum()) / time if time > 0 else 0.0

    @property
    def scale(self) -> float:
        """Return the standard deviation of the time slots' rewards so far; 1 while it is not known, or is 0."""
        deviation = float(np.sqrt(self._squares / self._count)) if self._count else 0.0
        return deviation if deviation > 1e-8 else 1.0

    def __call__(self, rollout: Rollout) -> NDArray[np.float64]:
        """Return the transformed rewards of the steps, after adding them to the running figures."""
        rewards = rollout.reward.copy()
        if not np.isfinite(rewards).all():
            raise TrainingError("some rewards are not finite", hint="check the environment, which gave them")
        if self.differential:
            self._times = np.concatenate((self._times, _by_slot(rollout.dt, rollout)))[-self.window :]
            self._rewards = np.concatenate((self._rewards, rollout.slot_reward))[-self.window :]
            rewards -= self.rate * rollout.dt
        if self.normalise:
            self._watch(_by_slot(rewards, rollout))
            rewards /= self.scale
        return rewards

    def _watch(self, values: NDArray[np.float64]) -> None:
        """Combine the mean and squared deviations so far with those of new rewards."""
        count, mean = len(values), float(values.mean())
        both, apart = self._count + count, mean - self._mean
        self._squares += float(((values - mean) ** 2).sum()) + apart**2 * self._count * count / both
        self._mean += apart * count / both
        self._count = both

    def state(self) -> State:
        """Return the running figures."""
        return {
            "rewards": torch.from_numpy(self._rewards),
            "times": torch.from_numpy(self._times),
            "count": number(self._count),
            "mean": number(self._mean),
            "squares": number(self._squares),
        }

    def restore(self, state: State) -> None:
        """Restore saved running figures."""
        self._rewards, self._times = (need(state, key, "rewards").numpy().copy() for key in ("rewards", "times"))
        self._count = int(need(state, "count", "rewards"))
        self._mean, self._squares = (float(need(state, key, "rewards")) for key in ("mean", "squares"))


def _by_slot(values: NDArray[np.float64], rollout: Rollout) -> NDArray[np.float64]:
    return np.add.reduceat(values, rollout.slot_start)
