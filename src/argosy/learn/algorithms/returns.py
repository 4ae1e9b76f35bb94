"""Advantages of steps: generalised advantage estimates, or returns against a paired baseline.

Rewards are discounted by time. No time passes between the inferences of one slot, so gamma applies only between slots.
So does lambda, since the first inference of a slot contributes to its reward as much as the last. Therefore all steps
of a slot have the same outcome, and it is estimated once for each slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.objectives.value.functional import generalized_advantage_estimate

from argosy.errors import InputError
from argosy.learn.algorithms.paired import paired_baseline
from argosy.learn.algorithms.rewards import Rewards
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.state import State

Values = NDArray[np.float64]
BASELINES = ("critic", "paired")


class Estimate(NamedTuple):
    """Holds, for each step, its advantage and the target of its value."""

    advantage: NDArray[np.float32]
    target: NDArray[np.float32]


@dataclass
class Returns:
    """Computes advantages from rewards.

    `unit_s`: the time to which gamma refers; without it, gamma is per slot. `baseline`: "critic" (GAE), or "paired",
    which needs no critic: plain returns minus the mean of the episodes with the same arrivals.
    """

    gamma: float = 0.99
    lam: float = 0.95
    unit_s: float | None = None
    baseline: str = "critic"
    rewards: Rewards = field(default_factory=Rewards)

    def __post_init__(self) -> None:
        if self.baseline not in BASELINES:
            raise InputError(f"unknown baseline {self.baseline!r}; there are {', '.join(BASELINES)}")
        for name, value in (("gamma", self.gamma), ("lam", self.lam)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"{name} must be from 0 to 1, is {value}")

    def __call__(self, rollout: Rollout, value: Values | None = None, final_value: Values | None = None) -> Estimate:
        """Return the advantages of a rollout.

        `value` has the critic's value of every step's observation, `final_value` that of every episode's final one.
        """
        rewards = self.rewards(rollout)
        discount = self.gamma ** elapsed(rollout, self.unit_s)[rollout.slot_end]
        if self.baseline == "paired":
            outcome = discounted(rollout, rewards, discount)
            expected = paired_baseline(rollout, outcome)
        elif value is None or final_value is None:
            raise InputError("advantages need a critic's values", hint="give a critic, or Returns(baseline='paired')")
        else:
            lam = np.where(rollout.passes[rollout.slot_end], self.lam, 1.0)
            outcome = generalised(rollout, rewards, value, final_value, discount, lam)
            expected = value
        return Estimate((outcome - expected).astype(np.float32), outcome.astype(np.float32))

    def state(self) -> State:
        """Return the state of the rewards."""
        return self.rewards.state()

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        self.rewards.restore(state)


def elapsed(rollout: Rollout, unit_s: float | None = None) -> Values:
    """Return how much time passes after each step, in units of `unit_s`; without it in time slots, 0 or 1."""
    return rollout.passes.astype(np.float64) if unit_s is None else rollout.dt / unit_s


def discounted(rollout: Rollout, rewards: Values, discount: Values) -> Values:
    """Return, for each step, the discounted rewards up to its episode's end; `discount` has one value per time slot."""
    by_slot = np.add.reduceat(rewards, rollout.slot_start)
    last = (rollout.terminated | rollout.truncated)[rollout.slot_end]
    outcome, ahead = np.zeros(len(by_slot)), 0.0
    for k in range(len(by_slot) - 1, -1, -1):
        outcome[k] = ahead = by_slot[k] + (0.0 if last[k] else discount[k] * ahead)
    return _by_step(rollout, rewards, outcome)


def generalised(
    rollout: Rollout, rewards: Values, value: Values, final_value: Values, discount: Values, lam: Values
) -> Values:
    """Return, for each step, the value target of TorchRL's GAE; `discount` and `lam` have one value per time slot."""
    start, end = rollout.slot_start, rollout.slot_end
    episode, first = rollout.episode[start], np.flatnonzero(np.diff(rollout.episode[start], prepend=-1))
    at = (episode, np.arange(len(start)) - first[episode], 0)
    following = np.append(value[start[1:]], 0.0)
    last = (rollout.terminated | rollout.truncated)[end]
    following[last] = final_value

    def padded(column: NDArray[np.generic], fill: float = 0.0) -> torch.Tensor:
        table = np.full((rollout.episodes, int(at[1].max()) + 1, 1), fill, column.dtype)
        table[at] = column
        return torch.from_numpy(table)

    _, target = generalized_advantage_estimate(
        padded(discount),
        padded(lam),
        padded(value[start]),
        padded(following),
        padded(np.add.reduceat(rewards, start)),
        padded(last, True),
        padded(rollout.terminated[end], True),
    )
    return _by_step(rollout, rewards, target.numpy()[at])


def _by_step(rollout: Rollout, rewards: Values, outcome: Values) -> Values:
    """Return the outcome of each step's time slot, minus the slot's rewards before the step."""
    before = np.cumsum(rewards) - rewards
    outcomes: Values = outcome[rollout.slot] - (before - before[rollout.slot_start][rollout.slot])
    return outcomes
