"""The interface of growth agents: the situation in which an agent is asked, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from argosy.grow.describe import LayerGraph
from argosy.grow.surgery.record import Surgery


@dataclass(frozen=True)
class Situation:
    """Holds what is known when spare GPUs have appeared for a network in training.

    `graph` describes the network as its author wrote it; `done` lists the surgeries since then, each with the time
    that was left. `options` lists the surgeries that are possible now; doing nothing is always possible.
    """

    graph: LayerGraph
    options: tuple[Surgery, ...]
    time_left: float
    time_budget: float
    done: tuple[tuple[float, Surgery], ...] = ()
    decisions_left: int = 1  # including this one
    epoch_s: float | None = None  # how long the last epoch took
    gpus_gained: float | None = None
    utilisation: float | None = None  # of the GPUs that the job holds, 0 to 1

    @property
    def share_left(self) -> float:
        """Return the time that is left as a share of the budget."""
        return self.time_left / self.time_budget if self.time_budget > 0 else 0.0


class Agent(Protocol):
    """An agent decides how a network grows."""

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return the surgeries to do now; an empty answer leaves the network as it is."""
        ...
