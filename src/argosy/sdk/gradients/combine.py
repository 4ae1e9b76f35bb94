"""The interface of the two ways to combine gradients: all-reduce and exact mode.

A *piece* is what one iteration of the script's loop works on. By default a step is one piece on every worker; in exact
mode a worker goes through the pieces of several virtual ranks before the optimizer acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module, Parameter

from argosy.sdk.group.process_group import Group


@dataclass(frozen=True, slots=True)
class Piece:
    batch: Any
    samples: int  # the number of samples; 0: the piece is only a copy, and its gradient has no weight
    slot: int  # the slice of the global batch
    last: bool  # whether it is the last piece of this step on this worker


class Combiner(Protocol):
    def bind(self, modules: Sequence[Module], parameters: Sequence[Parameter]) -> None:
        """Set the modules and parameters to train."""

    def regroup(self, group: Group) -> None:
        """Set the group of workers to use from now on."""

    def slots(self) -> tuple[Sequence[int], int]:
        """Return the slices of the global batch that this worker takes, and the number of all slices."""

    def begin(self, piece: Piece, step: int) -> None:
        """Prepare for a piece before the script gets it."""

    def combine(self, piece: Piece, votes: Tensor) -> Tensor | None:
        """Combine the gradients of a piece after its backward pass.

        Returns None if pieces of this step are still to come. Otherwise the gradients are final and equal on all
        workers, and the sum of all workers' votes is returned. Raises `GroupBroken`.
        """

    def state(self) -> dict[str, Any]:
        """Return the state to save and to send to new workers; it is equal on all workers."""

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` returned on another worker or in an earlier run."""
