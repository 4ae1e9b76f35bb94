"""What all modes share: a padded table of jobs, a mask of actions, and how actions become an answer to the engine."""

from __future__ import annotations

import numpy as np

from argosy.learn.envs.host import Host
from argosy.policies.common.demands import DemandReader
from argosy.policies.learned.features import JobTypes


class ActionTable:
    """Shows jobs as rows, and takes actions; the last action ends the decision.

    Observation and mask are changed in place.
    """

    sizing = False  # may running jobs be resized?
    newcomers = "wait"  # what jobs do that come between two time slots

    def __init__(self, rows: int, types: int, columns: int, choices: int, cap: int) -> None:
        """`columns`: those after the one-hot types. `choices`: actions of a row. `cap`: most workers of a job."""
        self.rows, self.types, self.choices, self.cap = rows, types, choices, cap
        self.observation = np.zeros((rows, types + columns), np.float32)
        self.mask = np.zeros(rows * choices + 1, np.bool_)
        self.mask[-1] = True
        self.end = rows * choices

    def reset(self, host: Host, types: JobTypes) -> None:
        """Begin a run."""
        self.host, self._types = host, types
        self.demand_reader = DemandReader(host.engine.context, self.cap)
        self.faithful = True  # whether all answers so far were those of the policy under the learner
        self.clear()

    def clear(self) -> None:
        """Show no jobs, and allow only to end the decision."""
        self.observation.fill(0.0)
        self.mask.fill(False)
        self.mask[-1] = True

    def begin(self) -> bool:
        """Begin a decision; return False if there is nothing to choose, and the answer is given already."""
        raise NotImplementedError

    def act(self, action: int) -> bool:
        """Take a valid action; return True if that was the last, and the answer is given."""
        raise NotImplementedError

    def advice(self) -> int:
        """Return the action that leads to what the policy under the learner would do."""
        raise NotImplementedError
