"""The networks of the learned sizers as torch modules, for training.

An actor maps observations of the `size` mode, [batch, J, columns], to the logits of 3J + 1 actions; a critic maps them
to values. The actors' forward passes are those of the policies (`argosy.policies.learned.forward`). Parameters and
arrays convert into each other exactly, so that a policy can decide with trained weights without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.policies.learned.bid_network import BidNetwork
from argosy.policies.learned.features import COLUMNS
from argosy.policies.learned.forward import SCORE_INPUTS, SIZE_FEATURES, Ops, score_outputs, table_outputs
from argosy.policies.learned.kernels.constants import KINDS, SLOTS_PER_UNIT
from argosy.policies.learned.networks import Network, ScoreNetwork, TableNetwork

Arrays: TypeAlias = dict[str, NDArray[np.float32]]


class TorchOps:
    """The operations of torch, for the forward passes."""

    def relu(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def log1p(self, x: Tensor) -> Tensor:
        return torch.log1p(x)

    def log2(self, x: Tensor) -> Tensor:
        return torch.log2(x)

    def at_least(self, x: Tensor, least: float) -> Tensor:
        return x.clamp(min=least)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), dim=-1)

    def stack(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts), dim=-1)

    def sum_of_jobs(self, x: Tensor) -> Tensor:
        return x.sum(-2, keepdim=True)

    def as_numbers(self, yes: Tensor, like: Tensor) -> Tensor:
        return yes.to(like.dtype)

    def append_zero(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, (0, 1))


TORCH: Ops = TorchOps()


class Actor(nn.Module):
    """A network that chooses actions; its parameters are named like the arrays in a file of weights."""

    kind: str
    context: bool  # whether it sees the columns about the cluster

    def arrays(self) -> Arrays:
        return {name: p.detach().numpy().astype(np.float32, copy=True) for name, p in self.named_parameters()}

    def take(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Replace the parameters by these arrays."""
        with torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(torch.from_numpy(np.asarray(arrays[name], np.float32)))


class BidActor(Actor):
    """Argonaut's network."""

    kind, context = BidNetwork.kind, True

    def __init__(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        super().__init__()
        for name, array in weights.items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(array)))


class TableActor(Actor):
    """DL2's network: two layers of `hidden` units, whose input is the whole table."""

    kind, context = TableNetwork.kind, False

    def __init__(self, rows: int, types: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        inputs, outputs = rows * (types + COLUMNS), rows * KINDS + 1
        self.w1, self.b1 = _layer(inputs, hidden, generator)
        self.w2, self.b2 = _layer(hidden, hidden, generator)
        self.w3, self.b3 = _layer(hidden, outputs, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        outputs: Tensor = table_outputs(_tensors(self, TableNetwork), observation, TORCH)
        return outputs


class ScoreActor(Actor):
    """One small network for every job, which also sees the mean over all jobs. The end always has the logit 0."""

    kind, context = ScoreNetwork.kind, True

    def __init__(
        self, types: int, cap: int, generator: torch.Generator, encoder: int = 32, hidden: int = 48, middle: int = 24
    ) -> None:
        super().__init__()
        self.types, self.cap = types, cap
        self.w1, self.b1 = _layer(types + SCORE_INPUTS, encoder, generator)
        self.w2, self.b2 = _layer(encoder, hidden, generator)
        self.wc, _ = _layer(encoder, hidden, generator)
        self.w3, _ = _layer(SIZE_FEATURES, hidden, generator)
        self.w4, self.b4 = _layer(hidden, middle, generator)
        self.w5, self.b5 = _layer(middle, KINDS, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        outputs: Tensor = score_outputs(_tensors(self, ScoreNetwork), observation, self.types, self.cap, TORCH)
        return outputs


class Critic(nn.Module):
    """Estimates the value of a state: one network for every job, summed over the jobs that are present."""

    def __init__(self, columns: int, generator: torch.Generator, hidden: int = 64) -> None:
        super().__init__()
        self.w1, self.b1 = _layer(columns, hidden, generator)
        self.w2, self.b2 = _layer(hidden, hidden, generator)
        self.w3, self.b3 = _layer(hidden, 1, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        hidden = torch.relu(torch.log1p(SLOTS_PER_UNIT * observation) @ self.w1 + self.b1)
        here = (observation != 0).any(-1, keepdim=True).to(hidden.dtype)
        crowd = (torch.relu(hidden @ self.w2 + self.b2) * here).sum(-2) / observation.shape[-2]
        return (crowd @ self.w3 + self.b3).squeeze(-1)


class TableCritic(nn.Module):
    """DL2's value network: like its policy network, but with one output."""

    def __init__(self, rows: int, types: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.w1, self.b1 = _layer(rows * (types + COLUMNS), hidden, generator)
        self.w2, self.b2 = _layer(hidden, hidden, generator)
        self.w3, self.b3 = _layer(hidden, 1, generator, gain=0.1)

    def forward(self, observation: Tensor) -> Tensor:
        outputs: Tensor = table_outputs(_tensors(self, TableNetwork), observation, TORCH)
        return outputs.squeeze(-1)


def _tensors(module: nn.Module, network: type[Network]) -> dict[str, Tensor]:
    """Return the tensors of a module by name, even where torchrl has replaced its parameters by other tensors."""
    return {name: getattr(module, name) for name in network.shapes}


def _layer(
    inputs: int, outputs: int, generator: torch.Generator, gain: float = 1.0
) -> tuple[nn.Parameter, nn.Parameter]:
    """Draw weights as He et al. do for rectified units, with biases of 0."""
    weights = torch.randn(inputs, outputs, generator=generator) * (gain * (2.0 / inputs) ** 0.5)
    return nn.Parameter(weights), nn.Parameter(torch.zeros(outputs))
