"""How the gradients of one optimizer step become one: the seam between the session and its two ways of training.

A *piece* is what one turn of the script's loop works on. By default a step is one piece on every worker; in exact mode
a worker goes through the pieces of several virtual ranks before the optimizer acts.
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
    samples: int  # how many count; 0: a stand-in whose gradient has no weight
    slot: int  # which slice of the global batch
    last: bool  # the last of this step on this worker


class Combiner(Protocol):
    def bind(self, modules: Sequence[Module], parameters: Sequence[Parameter]) -> None:
        """These are trained."""

    def regroup(self, group: Group) -> None:
        """From now on these workers take part."""

    def slots(self) -> tuple[Sequence[int], int]:
        """Which slices of the global batch are mine, and how many there are in all."""

    def begin(self, piece: Piece, step: int) -> None:
        """The script is about to get this piece."""

    def combine(self, piece: Piece, votes: Tensor) -> Tensor | None:
        """A backward pass has ended, and gradients of the piece are there.

        None: pieces of this step are still to come. Otherwise the gradients are final and equal on all workers, and
        the sum of everybody's votes is returned. Raises `GroupBroken`.
        """

    def state(self) -> dict[str, Any]:
        """What must be saved and handed to newcomers; equal on all workers."""

    def load(self, state: dict[str, Any]) -> None: ...
