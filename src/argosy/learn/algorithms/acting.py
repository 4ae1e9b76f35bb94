"""Functions that choose actions from observations, for collectors: a network, or any other callable."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from argosy.learn.algorithms import masked
from argosy.learn.algorithms.state import State

Floats = NDArray[np.floating[Any]]
Masks = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Act(Protocol):
    """Returns actions for a batch of states, and the log-probabilities with which they were chosen."""

    def __call__(self, observation: Floats, mask: Masks) -> tuple[Ints, Floats]: ...


class NetworkActs:
    """Samples actions from a network's logits, or takes the most probable one (`greedy`; its log-probability is 0)."""

    def __init__(self, actor: nn.Module, *, seed: int = 0, greedy: bool = False) -> None:
        self.actor, self.greedy = actor, greedy
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(self, observation: Floats, mask: Masks) -> tuple[Ints, Floats]:
        allowed = torch.from_numpy(mask)
        masked.check_masks(allowed)
        logits = self.actor(torch.from_numpy(observation))
        masked.check_logits(logits)
        if self.greedy:
            return masked.best(logits, allowed).numpy(), np.zeros(len(mask), np.float32)
        logs = masked.log_probabilities(logits, allowed)
        action = torch.multinomial(logs.exp(), 1, generator=self.generator)
        return action.squeeze(-1).numpy(), logs.gather(-1, action).squeeze(-1).numpy()

    def state(self) -> State:
        """Return the state of the random number generator."""
        return {"random": self.generator.get_state()}

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        self.generator.set_state(state["random"])
