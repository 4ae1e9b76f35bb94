"""The interface between the training session and its two ways to combine gradients: all-reduce and exact mode.

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
    samples: int  # how many samples count; 0: a stand-in whose gradient has no weight
    slot: int  # which slice of the global batch
    last: bool  # whether it is the last piece of this step on this worker


class Combiner(Protocol):
    def bind(self, modules: Sequence[Module], parameters: Sequence[Parameter]) -> None:
        """Set the modules and parameters that are trained."""

    def regroup(self, group: Group) -> None:
        """Set the group of workers that take part from now on."""

    def slots(self) -> tuple[Sequence[int], int]:
        """Return which slices of the global batch are this worker's, and how many there are in all."""

    def begin(self, piece: Piece, step: int) -> None:
        """Prepare for a piece that the script is about to get."""

    def combine(self, piece: Piece, votes: Tensor) -> Tensor | None:
        """Combine the gradients of a piece after its backward pass.

        Returns None if pieces of this step are still to come. Otherwise the gradients are final and equal on all
        workers, and the sum of all workers' votes is returned. Raises `GroupBroken`.
        """

    def state(self) -> dict[str, Any]:
        """Return what must be saved and handed to newcomers; it is equal on all workers."""

    def load(self, state: dict[str, Any]) -> None:
        """Take over a state that `state` returned on another worker or in an earlier run."""
