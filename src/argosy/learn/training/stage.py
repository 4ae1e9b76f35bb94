"""A stage of training: updates of one kind, one after the other."""

from __future__ import annotations

from typing import Protocol

from argosy.learn.algorithms.state import State
from argosy.learn.training.pupil import Arrays


class Stage(Protocol):
    """Everything that an update draws follows from its number, or is in the state."""

    name: str
    total: int  # updates

    @property
    def done(self) -> int:
        """How many of them."""

    def update(self) -> dict[str, float]:
        """One more; figures to watch."""

    def arrays(self) -> Arrays:
        """The weights now."""

    def state(self) -> State:
        """What the next update depends on."""

    def restore(self, state: State) -> None:
        """Go on from there."""
