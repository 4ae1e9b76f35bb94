"""Soft actor-critic for masked, discrete actions, with TorchRL's loss: off-policy, from a replay memory.

Impossible actions have probability 0, so the values and entropies that the loss sums over actions are those of the
possible ones. TorchRL's loss has one target entropy for all states; here it is set before each call, by state, to 0.98
of the largest possible entropy, which is the log of the number of possible actions. Time passes only between slots
(`elapsed`).
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import nn
from torchrl.objectives import DiscreteSACLoss, SoftUpdate
from torchrl.objectives.utils import ValueEstimators

from argosy.errors import InputError
from argosy.learn.algorithms.learner import Learner, Means, positive
from argosy.learn.algorithms.replay import Batch, Replay
from argosy.learn.algorithms.returns import elapsed
from argosy.learn.algorithms.rewards import Rewards
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.state import State, number
from argosy.learn.algorithms.wrap import action_value_module, policy_module

LOSSES = ("loss_actor", "loss_qvalue", "loss_alpha")


class SAC(Learner):
    """Learns an actor, two critics (observation → a value for each action) and the weight of entropy."""

    def __init__(
        self,
        actor: nn.Module,
        critics: tuple[nn.Module, nn.Module],
        *,
        gamma: float = 0.99,
        unit_s: float | None = None,
        rewards: Rewards | None = None,
        alpha: float = 0.2,
        target: float = 0.98,
        tau: float = 0.005,
        lr: float = 3e-4,
        replay: int = 100_000,
        batch: int = 256,
        per_step: float = 0.25,
        warm_up: int = 1000,
        max_norm: float | None = 10.0,
        seed: int = 0,
    ) -> None:
        """Take `per_step` gradient steps for each new step, once `warm_up` have been stored. `unit_s`: as in `Returns`.

        TorchRL trains copies of the critics; the given ones are not changed.
        """
        positive(alpha=alpha, tau=tau, lr=lr, batch=batch, per_step=per_step, max_norm=max_norm, unit_s=unit_s)
        if not 0.0 <= gamma <= 1.0:
            raise InputError(f"gamma must be from 0 to 1, is {gamma}")
        self.actor, self.target, self.unit_s = actor, target, unit_s
        self.rewards = Rewards() if rewards is None else rewards
        self.batch, self.per_step, self.warm_up, self.max_norm = batch, per_step, warm_up, max_norm
        self.loss: Any = DiscreteSACLoss(
            policy_module(actor),
            [action_value_module(critic) for critic in critics],
            action_space="categorical",
            target_entropy=0.0,
            alpha_init=alpha,
            loss_function="l2",
        )
        self.loss.make_value_estimator(ValueEstimators.TD0, gamma=gamma)
        self.follow = SoftUpdate(self.loss, tau=tau)
        self.optimizer = torch.optim.Adam(list(self.loss.parameters()), lr=lr)
        self.memory = Replay(replay)
        self.generator = torch.Generator().manual_seed(seed)
        self._owed = 0.0
        super().__init__(
            {
                "actor": actor,
                "critics": self.loss.qvalue_network_params,
                "slow": self.loss.target_qvalue_network_params,
                "optimizer": self.optimizer,
                "memory": self.memory,
                "draws": self.generator,
                "rewards": self.rewards,
            }
        )

    @property
    def alpha(self) -> float:
        """Return the present weight of entropy."""
        return float(self.loss.log_alpha.detach().exp())

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Store a rollout, and make the gradient steps that are due; return the mean losses."""
        self.memory.add(
            observation=rollout.observation,
            mask=rollout.mask,
            action=rollout.action,
            reward=self.rewards(rollout),
            elapsed=elapsed(rollout, self.unit_s),
            terminated=rollout.terminated,
            next_observation=rollout.next_observation(),
            next_mask=rollout.next_mask(),
        )
        means = Means()
        if len(self.memory) >= self.warm_up:
            self._owed += self.per_step * len(rollout)
        while self._owed >= 1.0:
            self._owed -= 1.0
            self._step(self.memory.draw(self.batch, self.generator), means)
        self.updates += 1
        return means.result()

    def _step(self, batch: Batch, means: Means) -> None:
        data = transitions(batch)
        self.loss.target_entropy = target_entropy(batch["mask"], self.target)
        report = self.loss_of(self.loss, data)
        norm = self.descend(self.optimizer, {name: report[name] for name in LOSSES}, self.max_norm)
        self.follow.step()
        means.add(**{name: report[name] for name in (*LOSSES, "alpha", "entropy")}, gradient_norm=norm)

    def state(self) -> State:
        """Return everything that the next update depends on; most of it is the replay memory."""
        return super().state() | {"log_alpha": self.loss.log_alpha.detach().clone(), "owed": number(self._owed)}

    def restore(self, state: State) -> None:
        """Continue as the saved learner would have."""
        super().restore(state)
        with torch.no_grad():
            self.loss.log_alpha.copy_(state["log_alpha"])
        self._owed = float(state["owed"])


def target_entropy(mask: torch.Tensor, share: float = 0.98) -> torch.Tensor:
    """Return, for each state, this share of the entropy of a uniform choice among possible actions."""
    return share * mask.sum(dim=-1).float().log()


def transitions(batch: Batch) -> Any:
    """Return the samples as a TensorDict for the loss. Their discount is gamma to the power of `steps_to_next_obs`."""
    size = len(batch["action"])
    end = batch["terminated"][:, None]
    following = {
        "observation": batch["next_observation"],
        "mask": batch["next_mask"],
        "terminated": end,
        "done": end,
        "reward": batch["reward"].float()[:, None],
    }
    return TensorDict(
        {
            "observation": batch["observation"],
            "mask": batch["mask"],
            "action": batch["action"],
            "steps_to_next_obs": batch["elapsed"].float()[:, None],
            "next": TensorDict(following, [size]),
        },
        [size],
    )
