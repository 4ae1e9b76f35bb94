"""The common part of all modes: a padded table of jobs, a mask of actions, and their translation into answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.envs.host import Host
from argosy.policies.common.demands import DemandReader
from argosy.policies.learned.features import MOST, JobTypes


class ActionTable:
    """Shows jobs as rows, and takes actions; the last action ends the decision.

    `observation` and `mask` are changed in place.
    """

    sizing = False  # whether running jobs may be resized
    bidding = False  # whether actions are values of bids
    lowest = 0.0  # no number of an observation is smaller
    newcomers = "wait"  # what jobs do that arrive between two time slots

    def __init__(self, rows: int, types: int, columns: int, choices: int, cap: int) -> None:
        """Make rows of `columns` after the one-hot types, with `choices` actions each. `cap`: most workers of a job."""
        self.rows, self.types, self.choices, self.cap = rows, types, choices, cap
        self.observation = np.zeros((rows, types + columns), np.float32)
        self.mask = np.zeros(rows * choices + 1, np.bool_)
        self.mask[-1] = True
        self.end = rows * choices

    def observation_space(self, *, flat: bool) -> spaces.Box[np.float32]:
        """Return the space of observations; `flat`: of vectors."""
        shape = (self.observation.size,) if flat else self.observation.shape
        return spaces.Box(self.lowest, MOST, shape, np.float32)

    def action_space(self) -> spaces.Space[Any]:
        """Return the space of actions."""
        return spaces.Discrete(len(self.mask))

    def reset(self, host: Host, types: JobTypes) -> None:
        """Begin a run."""
        self.host, self._types = host, types
        self.demand_reader = DemandReader(host.engine.context, self.cap)
        self.faithful = True  # whether all answers so far were those of the policy under the learner
        self.clear()

    def clear(self) -> None:
        """Show no jobs, and allow only the action that ends the decision."""
        self.observation.fill(0.0)
        self.mask.fill(False)
        self.mask[-1] = True

    def begin(self) -> bool:
        """Begin a decision; return False if there is nothing to choose and the answer has already been given."""
        raise NotImplementedError

    def accept(self, action: Any, *, strict: bool) -> tuple[bool, bool]:
        """Take an action as a learner gives it; return whether the decision is over, and whether it was refused.

        An action that is not possible now ends the decision; with `strict` it is an error.
        """
        chosen = int(action)
        if not 0 <= chosen <= self.end:
            raise InputError(f"there is no action {action}; actions are 0..{self.end}")
        if self.mask[chosen]:
            return self.act(chosen), False
        if strict:
            hint = "choose an action for which action_masks() is true"
            raise InputError(f"the action {chosen} is not possible now", hint=hint)
        return self.act(self.end), True

    def act(self, action: int) -> bool:
        """Take a valid action; return True if it was the last one and the answer has been given."""
        raise NotImplementedError

    def idle(self) -> Any:
        """Return an action that grants nothing."""
        return self.end

    def advice(self) -> int | NDArray[np.float32]:
        """Return the action that leads to what the policy under the learner would do."""
        raise NotImplementedError
