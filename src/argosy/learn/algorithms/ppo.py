"""Proximal policy optimisation with TorchRL's clipped loss: several passes over the newest rollout only.

With `Returns(baseline="paired")`, one epoch and one batch it is Decima's policy gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import nn
from torchrl.objectives import ClipPPOLoss

from argosy.learn.algorithms.learner import Learner, Means, in_chunks, positive, unique
from argosy.learn.algorithms.returns import Returns
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.wrap import policy_module, value_module

LOSSES = ("loss_objective", "loss_critic", "loss_entropy")


class PPO(Learner):
    """Learns an actor and a critic from rollouts that the actor itself has collected."""

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        *,
        returns: Returns | None = None,
        clip: float = 0.2,
        entropy: float = 0.01,
        value: float = 0.5,
        lr: float = 3e-4,
        epochs: int = 4,
        batch: int = 256,
        max_norm: float | None = 0.5,
        target_kl: float | None = None,
        seed: int = 0,
    ) -> None:
        """Weigh the critic's loss by `value`, and end an update when the KL divergence exceeds `target_kl`."""
        positive(clip=clip, lr=lr, epochs=epochs, batch=batch, max_norm=max_norm, target_kl=target_kl)
        self.actor, self.critic = actor, critic
        self.returns = Returns() if returns is None else returns
        self.epochs, self.batch, self.max_norm, self.target_kl = epochs, batch, max_norm, target_kl
        self.optimizer = torch.optim.Adam(unique(actor, critic), lr=lr)
        self.generator = torch.Generator().manual_seed(seed)
        self.loss = clipped_loss(ClipPPOLoss, actor, critic, clip=clip, entropy=entropy, value=value)
        super().__init__(
            {
                "actor": actor,
                "critic": critic,
                "optimizer": self.optimizer,
                "order": self.generator,
                "returns": self.returns,
            }
        )

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from one rollout; return the mean losses."""
        values = (None, None) if self.critic is None else critic_values(self.critic, rollout)
        data = samples(rollout, *self.returns(rollout, *values))
        means = Means()
        for _ in range(self.epochs):
            for rows in shuffled(len(rollout), self.batch, self.generator):
                report = self.loss_of(self.loss, data[rows])
                losses = {name: report[name] for name in LOSSES if name in report.keys()}  # noqa: SIM118
                norm = self.descend(self.optimizer, losses, self.max_norm)
                means.add(**{name: report[name].mean() for name in report.keys()}, gradient_norm=norm)  # noqa: SIM118
            if self.target_kl is not None and means.result()["kl_approx"] > self.target_kl:
                break
        self.updates += 1
        return means.result()


def clipped_loss(
    kind: Callable[..., Any],
    actor: nn.Module,
    critic: nn.Module | None,
    *,
    clip: float,
    entropy: float,
    value: float,
    critic_reads: str = "observation",
) -> Any:
    """Return a loss of TorchRL's PPO family for plain networks."""
    loss = kind(
        policy_module(actor),
        None if critic is None else value_module(critic, critic_reads),
        clip_epsilon=clip,
        entropy_coeff=entropy,
        critic_coeff=None if critic is None else value,
        loss_critic_type="l2",
        normalize_advantage=True,
        normalize_advantage_exclude_dims=(),
        functional=False,
    )
    loss.set_keys(sample_log_prob="log_prob", action="action")
    return loss


def critic_values(critic: nn.Module, rollout: Rollout) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values of every step's observation, and of every episode's final one."""
    values = in_chunks(critic, np.concatenate((rollout.observation, rollout.final_observation)))
    return values[: len(rollout)], values[len(rollout) :]


def samples(rollout: Rollout, advantage: NDArray[np.float32], target: NDArray[np.float32]) -> Any:
    """Return the columns that the loss reads, as a TensorDict."""
    columns = {
        "observation": rollout.observation,
        "mask": rollout.mask,
        "action": rollout.action,
        "log_prob": rollout.log_prob,
        "advantage": advantage[:, None],
        "value_target": target[:, None],
    }
    return TensorDict({name: torch.from_numpy(column) for name, column in columns.items()}, [len(rollout)])


def shuffled(count: int, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return all rows in random order, in batches of nearly equal size."""
    return torch.randperm(count, generator=generator).tensor_split(-(-count // batch))
