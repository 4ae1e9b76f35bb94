"""The networks of the learned sizers, for training: the same numbers as `policies.learned.networks`, as torch modules.

An actor maps observations of the `size` mode, [batch, J, columns], to the logits of 3J + 1 actions; a critic maps them
to values. Arrays go back and forth without loss, so that what was trained decides without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.policies.learned.networks import CONTEXT, KINDS, SCALE, SIZE_FEATURES, ScoreNetwork, TableNetwork

COLUMNS = 5  # ran, left, share, workers, servers
Arrays: TypeAlias = dict[str, NDArray[np.float32]]


class Actor(nn.Module):
    """Parameters are named as the arrays in a file of weights."""

    kind: str
    context: bool  # whether it wants the columns about the crowd

    def arrays(self) -> Arrays:
        return {name: p.detach().numpy().astype(np.float32, copy=True) for name, p in self.named_parameters()}

    def take(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """These numbers instead."""
        with torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(torch.from_numpy(np.asarray(arrays[name], np.float32)))


class TableActor(Actor):
    """DL2's: everything at once, two layers of `hidden` units."""

    kind, context = TableNetwork.kind, False

    def __init__(self, rows: int, types: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        inputs, outputs = rows * (types + COLUMNS), rows * KINDS + 1
        self.w1, self.b1 = _layer(inputs, hidden, generator)
        self.w2, self.b2 = _layer(hidden, hidden, generator)
        self.w3, self.b3 = _layer(hidden, outputs, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        x = observation.flatten(-2)
        x = torch.relu(x @ self.w1 + self.b1)
        return torch.relu(x @ self.w2 + self.b2) @ self.w3 + self.b3


class ScoreActor(Actor):
    """One small network for every job, which also sees the mean over all of them. To stop always has the logit 0."""

    kind, context = ScoreNetwork.kind, True

    def __init__(
        self, types: int, cap: int, generator: torch.Generator, encoder: int = 32, hidden: int = 48, middle: int = 24
    ) -> None:
        super().__init__()
        self.types, self.cap = types, cap
        self.w1, self.b1 = _layer(types + 2 + CONTEXT, encoder, generator)
        self.w2, self.b2 = _layer(encoder, hidden, generator)
        self.wc, _ = _layer(encoder, hidden, generator)
        self.w3, _ = _layer(SIZE_FEATURES, hidden, generator)
        self.w4, self.b4 = _layer(hidden, middle, generator)
        self.w5, self.b5 = _layer(middle, KINDS, generator, gain=0.1)

    def embed(self, observation: Tensor) -> Tensor:
        """[batch, J, hidden]: what does not change within a slot."""
        types, (times, rest) = observation[..., : self.types], self._split(observation)
        seen = torch.cat([types, torch.log1p(SCALE * times) / 5.0, rest], dim=-1)
        hidden = torch.relu(seen @ self.w1 + self.b1)
        here = (observation[..., -1:] > 0).to(hidden.dtype)
        mean = (hidden * here).sum(-2, keepdim=True) / here.sum(-2, keepdim=True).clamp(min=1.0)
        return hidden @ self.w2 + (mean @ self.wc + self.b2)

    def _split(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        ran_left = observation[..., self.types : self.types + 2]
        return torch.cat([ran_left, observation[..., -CONTEXT : 1 - CONTEXT]], dim=-1), observation[..., 1 - CONTEXT :]

    def forward(self, observation: Tensor) -> Tensor:
        at = self.types + 3
        w, u = observation[..., at], observation[..., at + 1]
        logs = [torch.log2(1.0 + self.cap * n) * 0.25 for n in (w, u)]
        size = torch.stack([w, u, (w > 0).to(w.dtype), (u > 0).to(u.dtype), *logs], dim=-1)
        x = torch.relu(self.embed(observation) + size @ self.w3)
        scores = torch.relu(x @ self.w4 + self.b4) @ self.w5 + self.b5
        return nn.functional.pad(scores.flatten(-2), (0, 1))


class Critic(nn.Module):
    """The value of a state: a network for every job, added up over those that are there."""

    def __init__(self, columns: int, generator: torch.Generator, hidden: int = 64) -> None:
        super().__init__()
        self.w1, self.b1 = _layer(columns, hidden, generator)
        self.w2, self.b2 = _layer(hidden, hidden, generator)
        self.w3, self.b3 = _layer(hidden, 1, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        hidden = torch.relu(torch.log1p(SCALE * observation) @ self.w1 + self.b1)
        here = (observation != 0).any(-1, keepdim=True).to(hidden.dtype)
        crowd = (torch.relu(hidden @ self.w2 + self.b2) * here).sum(-2) / observation.shape[-2]
        return (crowd @ self.w3 + self.b3).squeeze(-1)


class TableCritic(nn.Module):
    """DL2's value network: as its policy network, with one output."""

    def __init__(self, rows: int, types: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.w1, self.b1 = _layer(rows * (types + COLUMNS), hidden, generator)
        self.w2, self.b2 = _layer(hidden, hidden, generator)
        self.w3, self.b3 = _layer(hidden, 1, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        x = torch.relu(observation.flatten(-2) @ self.w1 + self.b1)
        return (torch.relu(x @ self.w2 + self.b2) @ self.w3 + self.b3).squeeze(-1)


def _layer(
    inputs: int, outputs: int, generator: torch.Generator, gain: float = 1.0
) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights as He et al. draw them for rectified units, and no offset."""
    weights = torch.randn(inputs, outputs, generator=generator) * (gain * (2.0 / inputs) ** 0.5)
    return nn.Parameter(weights), nn.Parameter(torch.zeros(outputs))
