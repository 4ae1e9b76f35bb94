"""DL2's job-aware exploration: now and then, an action corrects the bad state of a job.

If some job of the observation is in a bad state, the action is, with probability `chance`, one that corrects it:

    workers and no server          +1 server
    servers and no worker          +1 worker
    more than 10 of one for each of the other    +1 of the other

The action is drawn from the mixture of both distributions, and its recorded probability is that of the mixture.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from argosy.learn.algorithms import masked
from argosy.learn.algorithms.acting import Floats, Ints, Masks, NetworkActs
from argosy.policies.learned.features import SERVERS, WORKERS
from argosy.policies.learned.kernels.constants import KINDS

CHANCE, RATIO = 0.4, 10.0


class JobAware(NetworkActs):
    """Samples actions from a network's distribution, mixed with the actions that would help a job."""

    def __init__(self, actor: nn.Module, types: int, *, chance: float = CHANCE, seed: int = 0) -> None:
        """Correct a bad state with probability `chance`; rows begin with `types` one-hot columns."""
        super().__init__(actor, seed=seed)
        self.types, self.chance = types, chance

    @torch.no_grad()
    def __call__(self, observation: Floats, mask: Masks) -> tuple[Ints, Floats]:
        allowed = torch.from_numpy(mask)
        masked.check_masks(allowed)
        chances = masked.log_probabilities(self.actor(torch.from_numpy(observation)), allowed).exp()
        helpful = torch.from_numpy(helping(observation, mask, self.types)).to(chances.dtype)
        count = helpful.sum(dim=-1, keepdim=True)
        mixed = torch.where(
            count > 0, (1 - self.chance) * chances + self.chance * helpful / count.clamp(min=1), chances
        )
        action = torch.multinomial(mixed, 1, generator=self.generator)
        return action.squeeze(-1).numpy(), mixed.gather(-1, action).log().squeeze(-1).numpy()


def helping(observation: Floats, mask: Masks, types: int) -> Masks:
    """Return which possible actions correct a bad state: [batch, actions]."""
    w, u = observation[..., types + WORKERS], observation[..., types + SERVERS]
    table = np.zeros((*w.shape, KINDS), np.bool_)
    table[..., 0] = u > RATIO * w
    table[..., 1] = w > RATIO * u
    flat = np.concatenate([table.reshape(len(w), -1), np.zeros((len(w), 1), np.bool_)], axis=1)
    return flat & mask
