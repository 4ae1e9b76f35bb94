"""What workers must do after the same step: switch to a plan, suspend, save, rest. Agreed by sums beside gradients.

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
    rest: bool = False

    def __or__(self, other: Votes) -> Votes:
        plan, suspend = max(self.plan, other.plan), self.suspend or other.suspend
        return Votes(plan, suspend, self.save or other.save, self.rest or other.rest)

    def encode(self, rank: int, world: int, since: int) -> Tensor:
        """`since` is the version in force, equal everywhere."""
        places = [0.0] * (world + 3)
        places[rank] = float(max(self.plan - since, 0))
        places[world:] = [float(self.suspend), float(self.save), float(self.rest)]
        return torch.tensor(places, dtype=torch.float64)

    @classmethod
    def decode(cls, summed: Tensor, world: int, since: int) -> Votes:
        places = summed.tolist()
        newest = round(max(places[:world]))
        return cls(since + newest if newest else 0, *(place > 0.5 for place in places[world:]))
