"""Answers the growth of a live job as schedulers answer `argosy.grow.Trainer`: time left, allocation, time budget.

The allocation follows from the number of workers: "up" when more train than ever before, "down" when no more are left
than the job began with. Times are of the real clock, because a job may go on in another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Done:
    """How far the training is, in epochs, and how much data they have; None is unknown."""

    epochs: float = 0.0
    of: int | None = None
    examples: int | None = None  # of an epoch
    batch: int | None = None  # examples of a step, of all workers together


class JobScheduler:
    """The scheduler of a live job. `budget_s` is that of the job file; without one it follows from the progress."""

    def __init__(self, budget_s: float | None, done: Callable[[], Done]) -> None:
        self._budget_s, self._done = budget_s, done
        self._began = time.time()  # when the job began, perhaps in another process, so it is not a monotonic time
        self.base = 0  # workers at the start of the job; 0: not begun
        self.told = 0  # the largest number of workers that growth has been told
        self.world = 0  # workers now

    def resized(self, world: int) -> None:
        """Note how many workers train now."""
        self.world = world
        if not self.base:
            self.base = self.told = world

    def allocation(self) -> Literal["up", "down", "none"]:
        """Return whether workers have come ("up"), all that came have gone ("down"), or neither; each only once."""
        before, self.told = self.told, max(self.told, self.world) if self.world > self.base else self.world
        if self.world > max(before, self.base):
            return "up"
        return "down" if self.world <= self.base < before else "none"

    def wants_back(self, now: float = 0.0) -> bool:
        """Return whether a "down" is due; asking does not consume it."""
        return self.world <= self.base < self.told

    def gpus_gained(self) -> float:
        """Return how many more workers there are than at the start."""
        return float(self.world - self.base)

    def spent(self) -> float:
        """Return the seconds since the job began."""
        return max(time.time() - self._began, 1e-3)

    @property
    def epoch_s(self) -> float | None:
        """Return how long an epoch takes; None if none is done."""
        done = self._done()
        return self.spent() / done.epochs if done.epochs else None

    def time_budget(self) -> float:
        """Return the time of the whole training: by the job file or, without one, by the progress so far."""
        if self._budget_s is not None:
            return self._budget_s
        epoch_s, of = self.epoch_s, self._done().of
        return epoch_s * of if epoch_s and of else 2 * self.spent()  # unknown: assume that half is done

    def time_left(self) -> float:
        """Return the seconds until the end of the budget."""
        return max(self.time_budget() - self.spent(), 0.0)

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart of the job."""
        return {"began": self._began, "base": self.base, "told": self.told}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._began, self.base, self.told = state["began"], state["base"], state["told"]
