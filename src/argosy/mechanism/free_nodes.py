"""Keep track of what is free while a plan is made.

The kernels record what is free in the matrices, and `Supply` reads that device by device, to tell whether a job would
fit. A plan that is made job by job needs a record that shrinks with each start, which is `FreeNodes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.plan import Why
from argosy.slack import RESOURCE_SLACK

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Claim(NamedTuple):
    """What a job takes on one node."""

    node: int
    gpus: int  # whole free GPUs
    cpus: float
    memory_gib: float


@dataclass(slots=True)
class FreeNodes:
    """What is free on each node, for plans made in Python; it shrinks with every job that the plan starts."""

    gpus: Ints
    cpus: Floats
    memory_gib: Floats

    def copy(self) -> FreeNodes:
        return FreeNodes(self.gpus.copy(), self.cpus.copy(), self.memory_gib.copy())

    def take(self, claims: list[Claim], sign: int = 1) -> None:
        """Count what is claimed as taken."""
        for node, gpus, cpus, memory_gib in claims:
            self.gpus[node] -= sign * gpus
            self.cpus[node] -= sign * cpus
            self.memory_gib[node] -= sign * memory_gib

    def give(self, claims: list[Claim]) -> None:
        """Count what is claimed as free again."""
        self.take(claims, -1)

    def lacks(self, claim: Claim) -> Why | None:
        """Return what a node has too little of for a claim, or None."""
        if self.gpus[claim.node] < claim.gpus:
            return Why.NO_GPUS
        if self.cpus[claim.node] < claim.cpus - RESOURCE_SLACK:
            return Why.NO_CPUS
        return Why.NO_MEMORY if self.memory_gib[claim.node] < claim.memory_gib - RESOURCE_SLACK else None
