"""Record steps as they are taken, and return them as a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.learn.algorithms.acting import Masks
from argosy.learn.algorithms.rollout import Rollout

KINDS = (
    np.float32,
    np.bool_,
    np.int64,
    np.float32,
    np.float64,
    np.bool_,
    np.bool_,
    np.bool_,
    np.float64,
    np.float64,
    np.int64,
)


class Step(NamedTuple):
    """Holds one step; the fields are in the order of a rollout's columns."""

    observation: NDArray[np.float32]
    mask: Masks
    action: int
    log_prob: float
    reward: float
    terminated: bool
    truncated: bool
    passes: bool
    time: float
    dt: float
    advice: int = -1


class Record:
    """Records the steps of one environment, or of one agent in it."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.steps: list[Step] = []
        self._credit: list[float] = []
        self.slots = 0
        self._finals: list[tuple[NDArray[np.float32], Masks, int]] = []
        self._open = False  # a step has been taken since the last end

    def add(self, step: Step) -> None:
        """Add a step."""
        self.steps.append(step)
        self.slots += step.passes
        self._open = True

    def credit(self, values: Sequence[float]) -> None:
        """Store the credit of each step of the time slot that has just ended."""
        self._credit += [np.nan] * (len(self.steps) - len(self._credit) - len(values))
        self._credit += values

    def end(self, observation: NDArray[np.float32], mask: Masks, arrivals: int) -> None:
        """End the recorded part of an episode, at the episode's end or earlier; a second call changes nothing."""
        if not self._open:
            return
        if not self.steps[-1].terminated:
            self.steps[-1] = self.steps[-1]._replace(truncated=True)
        self._finals.append((observation, mask, arrivals))
        self._open = False

    def take(self) -> Rollout | None:
        """Return the steps so far, and forget them; None if there are none."""
        if not self.steps:
            return None
        columns: dict[str, Any] = {
            name: np.array(column, kind) for name, column, kind in zip(Step._fields, zip(*self.steps), KINDS)
        }
        ends = columns["terminated"] | columns["truncated"]
        seen, masks, arrivals = zip(*self._finals)
        credit = np.array(self._credit + [np.nan] * (len(self.steps) - len(self._credit)))
        self._clear()
        return Rollout(
            **columns,
            credit=credit,
            episode=np.concatenate(([0], np.cumsum(ends[:-1]))).astype(np.int64),
            final_observation=np.array(seen),
            final_mask=np.array(masks),
            arrivals=np.array(arrivals, np.int64),
        )
