"""PPO for several agents at once, with TorchRL's losses.

    IPPO     each agent has a critic that sees what the agent sees
    MAPPO    one critic sees what all agents see, side by side; agents still act on their own

Agents may differ in observations and actions; those that do not may share a network. Steps at which an agent had only
one possible action teach it nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torchrl.objectives import IPPOLoss, MAPPOLoss

from argosy.errors import InputError
from argosy.learn.algorithms.learner import Learner, Means, in_chunks, positive, unique
from argosy.learn.algorithms.ppo import LOSSES, clipped_loss, samples
from argosy.learn.algorithms.returns import Returns
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.team import Rollouts


class TeamPPO(Learner):
    """The common part of IPPO and MAPPO."""

    kind: Callable[..., Any]

    def __init__(
        self,
        actors: Mapping[str, nn.Module],
        critics: Mapping[str, nn.Module],
        *,
        returns: Callable[[], Returns] = Returns,
        clip: float = 0.2,
        entropy: float = 0.01,
        value: float = 0.5,
        lr: float = 3e-4,
        epochs: int = 4,
        batch: int = 256,
        max_norm: float | None = 0.5,
        seed: int = 0,
    ) -> None:
        """Call `returns` once for each agent, so that each has its own; the other settings are those of `PPO`."""
        positive(clip=clip, lr=lr, epochs=epochs, batch=batch, max_norm=max_norm)
        if set(actors) != set(critics):
            raise InputError(f"there are actors for {', '.join(actors)}, but critics for {', '.join(critics)}")
        self.actors, self.critics = dict(actors), dict(critics)
        self.returns = {agent: returns() for agent in actors}
        self.epochs, self.batch, self.max_norm = epochs, batch, max_norm
        self.optimizer = torch.optim.Adam(unique(*actors.values(), *critics.values()), lr=lr)
        self.generator = torch.Generator().manual_seed(seed)
        self.losses = {
            agent: clipped_loss(
                self.kind,
                actors[agent],
                critics[agent],
                clip=clip,
                entropy=entropy,
                value=value,
                critic_reads="critic_input",
            )
            for agent in actors
        }
        super().__init__(
            {f"actor/{agent}": net for agent, net in actors.items()}
            | {f"critic/{agent}": net for agent, net in critics.items()}
            | {f"returns/{agent}": own for agent, own in self.returns.items()}
            | {"optimizer": self.optimizer, "order": self.generator}
        )

    def critic_input(self, rollouts: Rollouts, agent: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return what an agent's critic sees, at every step and at the end of every episode."""
        raise NotImplementedError

    def update(self, rollouts: Rollouts) -> dict[str, float]:
        """Learn from one rollout of each agent; return the mean losses, by agent."""
        data = {agent: self._samples(rollouts, agent) for agent in self.actors}
        parts = max(1, max(-(-len(rows) // self.batch) for rows in data.values()))
        means = Means()
        for _ in range(self.epochs):
            orders = {
                agent: torch.randperm(len(rows), generator=self.generator).tensor_split(parts)
                for agent, rows in data.items()
            }
            for part in range(parts):
                losses: dict[str, torch.Tensor] = {}
                for agent, rows in data.items():
                    if not len(orders[agent][part]):
                        continue
                    report = self.loss_of(self.losses[agent], rows[orders[agent][part]])
                    losses |= {f"{agent}/{name}": report[name] for name in LOSSES}
                    means.add(**{f"{agent}/{name}": report[name] for name in (*LOSSES, "entropy", "kl_approx")})
                if losses:
                    means.add(gradient_norm=self.descend(self.optimizer, losses, self.max_norm))
        self.updates += 1
        return means.result()

    def _samples(self, rollouts: Rollouts, agent: str) -> Any:
        rollout = rollouts[agent]
        seen, final = self.critic_input(rollouts, agent)
        values = in_chunks(self.critics[agent], np.concatenate((seen, final)))
        data = samples(rollout, *self.returns[agent](rollout, values[: len(rollout)], values[len(rollout) :]))
        data["critic_input"] = torch.from_numpy(seen)
        return data[torch.from_numpy(rollout.mask.sum(axis=1) > 1)]


class IPPO(TeamPPO):
    """Independent PPO: every agent learns by itself."""

    kind = IPPOLoss

    def critic_input(self, rollouts: Rollouts, agent: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return what the agent sees."""
        return rollouts[agent].observation, rollouts[agent].final_observation


class MAPPO(TeamPPO):
    """Multi-agent PPO: one critic sees the observations of all agents, flattened and joined."""

    kind = MAPPOLoss

    def __init__(self, actors: Mapping[str, nn.Module], critic: nn.Module, **settings: Any) -> None:
        super().__init__(actors, dict.fromkeys(actors, critic), **settings)

    def critic_input(self, rollouts: Rollouts, agent: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return what all agents see."""
        every: list[Rollout] = [rollouts[name] for name in self.actors]
        return _flat([r.observation for r in every]), _flat([r.final_observation for r in every])


def _flat(tables: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate([table.reshape(len(table), -1) for table in tables], axis=1)
