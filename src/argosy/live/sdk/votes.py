"""What workers must do after the same step: switch to a plan, suspend, save. Agreed by sums that travel with gradients.

Each worker writes the newest plan it has seen into a place of its own, so that a sum tells the newest that anybody has
seen; wishes are counted, and one is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Votes:
    plan: int = 0  # the newest version seen
    suspend: bool = False
    save: bool = False

    def __or__(self, other: Votes) -> Votes:
        return Votes(max(self.plan, other.plan), self.suspend or other.suspend, self.save or other.save)

    def encode(self, rank: int, world: int, since: int) -> Tensor:
        """`since` is the version in force, equal everywhere."""
        places = [0.0] * (world + 2)
        places[rank] = float(max(self.plan - since, 0))
        places[world:] = [float(self.suspend), float(self.save)]
        return torch.tensor(places, dtype=torch.float64)

    @classmethod
    def decode(cls, summed: Tensor, world: int, since: int) -> Votes:
        places = summed.tolist()
        newest = round(max(places[:world]))
        return cls(since + newest if newest else 0, places[world] > 0.5, places[world + 1] > 0.5)
