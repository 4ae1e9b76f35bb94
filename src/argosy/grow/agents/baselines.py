"""Baselines that agents are compared with: do nothing, decide at random, follow a fixed sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from argosy.grow.agents.base import Situation
from argosy.grow.surgery.record import Surgery
from argosy.seeding import stream


class Nothing:
    """This agent leaves every network as it is."""

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return no surgery."""
        return ()


class RandomGrowth:
    """This agent takes each option, or none, with equal chances."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = stream(seed, "random growth")

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return one option at random."""
        choice = int(self._rng.integers(len(situation.options) + 1))
        return situation.options[choice : choice + 1]

    def state(self) -> dict[str, Any]:
        """Return the state of its random numbers, so that interrupted training continues exactly."""
        return dict(self._rng.bit_generator.state)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the saved state."""
        self._rng.bit_generator.state = dict(state)


class FixedSequence:
    """This agent follows a fixed sequence, whatever the network is: entry i at decision i.

    An entry None does nothing, and so do decisions after the last entry. The sequence begins again when a situation
    has more decisions left than the one before.
    """

    def __init__(self, sequence: Sequence[Surgery | None]) -> None:
        self.sequence = tuple(sequence)
        self._next = 0
        self._decisions_left = 0

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return the next entry of the sequence."""
        if situation.decisions_left > self._decisions_left:
            self._next = 0
        self._decisions_left = situation.decisions_left
        entry = self.sequence[self._next] if self._next < len(self.sequence) else None
        self._next += 1
        return () if entry is None else (entry,)

    def state(self) -> dict[str, Any]:
        """Return its position in the fixed sequence."""
        return {"next": self._next, "decisions_left": self._decisions_left}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the saved state."""
        self._next, self._decisions_left = int(state["next"]), int(state["decisions_left"])
