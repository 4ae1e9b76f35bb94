"""The losses of a training run's steps: where they began, where they are now, and what would be a spike."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

FIRST = 10  # steps whose mean is the loss at the beginning
RECENT = 100  # steps from which the spread is estimated
LEVEL = 20  # steps from which the present level is estimated
ENOUGH = 10  # recent steps without which nothing is called a spike
DEVIATIONS = 4.0  # of recent losses; a loss at most this far above their level is no spike
SHARE_LOST = 0.5  # of the loss that training has taken off so far: losing less than this is no spike
NORMAL = 1.4826 / math.sqrt(2.0)  # standard deviation of normal noise, in median absolute differences of two values


class Losses:
    """Remembers the first and the latest losses of a run."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, loss: float) -> None:
        """Note the loss of one step, if it is finite."""
        if not math.isfinite(loss):
            return
        if len(self.first) < FIRST:
            self.first.append(loss)
        self.recent.append(loss)

    def spike(self) -> float:
        """Return the loss above which a run has clearly become worse; infinite if too little is known.

        It is above the level of recent losses by some of their deviations and by half of what training has taken off
        the loss so far. Medians are used, because single batches may have any loss; the deviation is that of successive
        steps, because the level falls.
        """
        if len(self.recent) < ENOUGH:
            return math.inf
        recent = list(self.recent)
        level = median(recent[-LEVEL:])
        spread = NORMAL * median(abs(after - before) for before, after in itertools.pairwise(recent))
        begin = sum(self.first) / len(self.first)
        return level + max(DEVIATIONS * spread, SHARE_LOST * (begin - level))

    def copy(self) -> Losses:
        """Return a copy with a future of its own."""
        other = Losses()
        other.first, other.recent = list(self.first), deque(self.recent, maxlen=RECENT)
        return other

    def state(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"first": list(self.first), "recent": list(self.recent)}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Restore a saved state."""
        self.first, self.recent = list(state["first"]), deque(state["recent"], maxlen=RECENT)
