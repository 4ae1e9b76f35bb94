"""A stage of training: updates of one kind, one after the other."""

from __future__ import annotations

from typing import Protocol

from argosy.learn.algorithms.state import State
from argosy.learn.training.student import Arrays


class Stage(Protocol):
    """One phase of training. The random numbers of an update follow from its number, or are part of the state."""

    name: str
    total: int  # updates

    @property
    def done(self) -> int:
        """Return how many updates are done."""

    def update(self) -> dict[str, float]:
        """Make one more update, and return figures that describe it."""

    def arrays(self) -> Arrays:
        """Return the present weights."""

    def state(self) -> State:
        """Return what the next update depends on."""

    def restore(self, state: State) -> None:
        """Continue from a state."""
