"""Define profiles of workloads: how jobs arrive, how they are drawn, and what is promised about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl

from argosy.workload.synth.arrivals import Arrivals
from argosy.workload.synth.promises import Promise


class Drawing(Protocol):
    """Draws the jobs themselves, in order of submission, as trace columns without ids and times."""

    def draw(self, jobs: int, seed: int, largest_gpus: float) -> pl.DataFrame:
        """Draw the jobs; the mix of sizes is cut off at `largest_gpus`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of synthetic workload."""

    name: str
    describes: str
    arrivals: Arrivals
    jobs: Drawing
    promises: tuple[Promise, ...]
