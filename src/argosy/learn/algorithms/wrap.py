"""Wrap plain networks as the modules that TorchRL's losses work with.

An actor maps observations [B, …] to logits [B, A]; a critic maps them to values [B]. The mask is applied here, in the
same way as when acting.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch import nn
from torch.distributions import Categorical

from argosy.learn.algorithms.masked import check_logits, mask_logits


class Masked(nn.Module):
    """An actor whose logits are masked."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observation: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return masked logits."""
        logits = self.actor(observation)
        check_logits(logits)
        return mask_logits(logits, mask)


class Column(nn.Module):
    """A critic whose values are a column, as TorchRL expects."""

    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return values [B, 1]."""
        return torch.as_tensor(self.critic(observation)).unsqueeze(-1)


def policy_module(actor: nn.Module) -> Any:
    """Return the module that maps an observation and a mask to a distribution of actions."""
    return ProbabilisticTensorDictSequential(
        TensorDictModule(Masked(actor), in_keys=["observation", "mask"], out_keys=["logits"]),
        ProbabilisticTensorDictModule(
            in_keys=["logits"],
            out_keys=["action"],
            distribution_class=Categorical,
            distribution_kwargs={"validate_args": False},
            return_log_prob=True,
            log_prob_key="log_prob",
        ),
    )


def value_module(critic: nn.Module, key: str = "observation") -> Any:
    """Return the module that maps an observation to `state_value`."""
    return TensorDictModule(Column(critic), in_keys=[key], out_keys=["state_value"])


def action_value_module(critic: nn.Module) -> Any:
    """Return the module that maps an observation to a value for each action."""
    return TensorDictModule(critic, in_keys=["observation"], out_keys=["action_value"])
