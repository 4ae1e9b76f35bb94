"""Lets workers agree on what to do after the same step: switch to a plan, suspend, save, pause.

Votes are summed together with the gradients. Each worker writes the newest plan it has received into its own element,
so that the sum shows the newest plan that any worker has. The other votes are counted, and one vote is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Votes:
    plan: int = 0  # the version of the newest plan received
    suspend: bool = False
    save: bool = False
    rest: bool = False

    def __or__(self, other: Votes) -> Votes:
        plan, suspend = max(self.plan, other.plan), self.suspend or other.suspend
        return Votes(plan, suspend, self.save or other.save, self.rest or other.rest)

    def encode(self, rank: int, world: int, since: int) -> Tensor:
        """Encode the votes as a vector to be summed. `since` is the version in force, which is equal on all workers."""
        places = [0.0] * (world + 3)
        places[rank] = float(max(self.plan - since, 0))
        places[world:] = [float(self.suspend), float(self.save), float(self.rest)]
        return torch.tensor(places, dtype=torch.float64)

    @classmethod
    def decode(cls, summed: Tensor, world: int, since: int) -> Votes:
        places = summed.tolist()
        newest = round(max(places[:world]))
        return cls(since + newest if newest else 0, *(place > 0.5 for place in places[world:]))
