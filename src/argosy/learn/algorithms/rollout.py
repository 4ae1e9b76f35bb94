"""A rollout: the steps of several episodes, one after the other, as arrays.

A *slot* is a sequence of steps between which no time passes: several inferences may make one decision, and time passes
(`passes`) only after the last of them. An episode here is a part of one environment's episode; its last step has
`terminated`, or `truncated` where the rest was cut off, and a critic can estimate the rest from `final_observation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.algorithms.acting import Ints, Masks


@dataclass(frozen=True)
class Rollout:
    """Holds N steps of E episodes. The last three fields have one row per episode, all others one row per step."""

    observation: NDArray[np.float32]
    mask: Masks
    action: Ints
    log_prob: NDArray[np.float32]  # of the action, under the distribution from which it was drawn
    reward: NDArray[np.float64]
    terminated: Masks
    truncated: Masks
    passes: Masks  # whether time passes after this step
    time: NDArray[np.float64]  # of the decision
    dt: NDArray[np.float64]  # how much time passes after this step
    advice: Ints  # the action that a teacher would have taken; -1: it was not asked
    credit: NDArray[np.float64]  # the step's own part of the reward; nan: not known, and its slot's reward counts
    episode: Ints  # 0, 1, …: the row of the step's episode in the fields below
    final_observation: NDArray[np.float32]  # after the last step
    final_mask: Masks
    arrivals: Ints  # the seed of the episode's jobs; -1: unknown

    def __len__(self) -> int:
        return len(self.action)

    @cached_property
    def last(self) -> Ints:
        """Return the row of each episode's last step."""
        return np.flatnonzero(self.terminated | self.truncated)

    @cached_property
    def first(self) -> Ints:
        """Return the row of each episode's first step."""
        return np.concatenate(([0], self.last[:-1] + 1))

    @property
    def episodes(self) -> int:
        """Return the number of episodes."""
        return len(self.arrivals)

    @cached_property
    def slot(self) -> Ints:
        """Return the number of each step's time slot, counted across all episodes."""
        ends = self.passes | self.terminated | self.truncated
        return np.concatenate(([0], np.cumsum(ends[:-1]))).astype(np.int64)

    @cached_property
    def slot_start(self) -> Ints:
        """Return the row of each time slot's first step."""
        return np.flatnonzero(np.diff(self.slot, prepend=-1))

    @cached_property
    def slot_end(self) -> Ints:
        """Return the row of each time slot's last step."""
        return np.append(self.slot_start[1:], len(self)) - 1

    @cached_property
    def slot_reward(self) -> NDArray[np.float64]:
        """Return the total reward of each time slot: one number for all of its steps."""
        return np.add.reduceat(self.reward, self.slot_start)

    def own_reward(self) -> NDArray[np.float64]:
        """Return the credit of each step, or its time slot's reward where the credit is not known."""
        return np.where(np.isnan(self.credit), self.slot_reward[self.slot], self.credit)

    def next_observation(self) -> NDArray[np.float32]:
        """Return the observation after each step."""
        return self._next(self.observation, self.final_observation)

    def next_mask(self) -> Masks:
        """Return the mask after each step."""
        return self._next(self.mask, self.final_mask)

    def next_slot_observation(self) -> NDArray[np.float32]:
        """Return the first observation after each step's time slot."""
        following: NDArray[np.float32] = self.next_observation()[self.slot_end[self.slot]]
        return following

    def totals(self) -> NDArray[np.float64]:
        """Return the sum of rewards of each episode."""
        return np.add.reduceat(self.reward, self.first)

    def _next(self, rows: NDArray[Any], final: NDArray[Any]) -> NDArray[Any]:
        following = np.roll(rows, -1, axis=0)
        following[self.last] = final
        return following


def join(rollouts: Sequence[Rollout]) -> Rollout:
    """Join several rollouts into one, such as those of several processes."""
    if not rollouts:
        raise InputError("there are no rollouts to join")
    columns: dict[str, Any] = {f.name: [getattr(r, f.name) for r in rollouts] for f in fields(Rollout)}
    offsets = np.cumsum([0, *(r.episodes for r in rollouts[:-1])])
    columns["episode"] = [rows + offset for rows, offset in zip(columns["episode"], offsets)]
    return Rollout(**{name: np.concatenate(parts) for name, parts in columns.items()})
