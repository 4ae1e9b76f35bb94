"""DAgger: the student acts, the teacher says what it should have done, and the student learns from all rounds so far.

Cloning shows a student only the states that its teacher visits. One small mistake leads it to other states, in which it
has not been told what to do. In DAgger the student learns from the states that it visits itself; in the first rounds
the teacher takes some of the steps (the share `share` in the first, `share`² in the second, …).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.clone import Clone
from argosy.learn.algorithms.collect import Teaching, episodes
from argosy.learn.algorithms.state import State
from argosy.seeding import stream


class Dagger:
    """Alternates acting and learning. Each round runs new episodes, whose seeds follow from the number of the round."""

    def __init__(
        self,
        clone: Clone,
        envs: Sequence[Any],
        *,
        share: float = 0.5,
        seeds: tuple[int, int] = (1_000_000, 2_000_000),
        slots: int | None = None,
        greedy: bool = False,
        seed: int = 0,
    ) -> None:
        """Draw seeds from the range `seeds`, and end episodes after `slots`. `greedy`: the student does not sample."""
        if not 0.0 <= share <= 1.0:
            raise InputError(f"the teacher's share must be from 0 to 1, is {share}")
        self.clone, self.envs, self.share, self.seeds = clone, list(envs), share, seeds
        self.slots, self.greedy, self.seed = slots, greedy, seed

    @property
    def rounds(self) -> int:
        """Return the number of rounds done."""
        return self.clone.updates

    def round(self) -> dict[str, float]:
        """Run one more round; return the student's loss and accuracy, and the mean total reward of its episodes."""
        draws = stream(self.seed, "dagger", self.rounds)
        seeds = draws.integers(*self.seeds, size=len(self.envs)).tolist()
        act = NetworkActs(self.clone.actor, seed=int(draws.integers(2**62)), greedy=self.greedy)
        teaching = Teaching(self.share ** (self.rounds + 1), seed=int(draws.integers(2**62)))
        rollout = episodes(self.envs, act, seeds, slots=self.slots, teaching=teaching)
        return self.clone.update(rollout) | {"total": float(rollout.totals().mean())}

    def state(self) -> State:
        """Return the student's state; the rest follows from the number of rounds."""
        return self.clone.state()

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        self.clone.restore(state)
