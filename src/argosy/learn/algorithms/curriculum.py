"""A curriculum: the load and the length of episodes grow as training goes on.

Load and length grow linearly over `updates`. As in Decima, an episode may also end early, at a time drawn from a
geometric distribution whose mean grows, so that an untrained policy does not spend most of its time in the bad states
that it leads to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from argosy.errors import InputError
from argosy.learn.algorithms.learner import positive
from argosy.seeding import stream


class Difficulty(NamedTuple):
    """Holds factors for load and length, and after how many time slots episodes end (None: no limit)."""

    load: float
    length: float
    slots: int | None


@dataclass(frozen=True)
class Curriculum:
    """Says how training becomes more difficult. Each pair is the value at the start, and that from `updates` on."""

    updates: int
    load: tuple[float, float] = (0.5, 1.0)
    length: tuple[float, float] = (1.0, 1.0)
    mean_slots: tuple[float, float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        positive(updates=self.updates)
        for name, pair in (("load", self.load), ("length", self.length), ("mean_slots", self.mean_slots)):
            if pair is not None and not (min(pair) > 0 and len(pair) == 2):
                raise InputError(f"{name} must be two numbers above 0, is {pair}")
        if self.mean_slots is not None and min(self.mean_slots) < 1:
            raise InputError(f"mean_slots must be at least 1, is {self.mean_slots}")

    def difficulty(self, update: int) -> Difficulty:
        """Return the difficulty of update number 0, 1, …; it is the same every time."""
        done = min(max(update / self.updates, 0.0), 1.0)
        return Difficulty(_between(self.load, done), _between(self.length, done), self._slots(update, done))

    def _slots(self, update: int, done: float) -> int | None:
        if self.mean_slots is None:
            return None
        first, last = (1.0 / slots for slots in self.mean_slots)
        chance = _between((first, last), done)
        return int(stream(self.seed, "curriculum", update).geometric(chance))


def _between(pair: tuple[float, float], done: float) -> float:
    return pair[0] + done * (pair[1] - pair[0])
