"""DL2's reinforcement learning: one reward for a whole time slot, a replay memory, and one update per time slot.

Every inference of a time slot is credited with the slot's reward. Its advantage is

    r(slot) + gamma · V(first state of the next slot) − V(state)

This is the published form. But a time slot takes hundreds of inferences, most of them about other jobs; with `own`,
each inference is credited only with the progress of its own batch of jobs.

The published form learns from old samples as if the present policy had chosen them (`correction="none"`), which is
biased. With `correction="importance"` a sample is weighted by the ratio of its action's probabilities now and when it
was taken, at most `cap`. For the published ablations, `replay=None` learns from the newest slot only, and without a
critic the baseline is an exponential moving average of the slots' rewards.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from argosy.errors import InputError
from argosy.learn.algorithms import masked
from argosy.learn.algorithms.learner import Learner, Means, positive, unique
from argosy.learn.algorithms.replay import Batch, Replay
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.state import State, number

CORRECTIONS = ("none", "importance")


class ActorCritic(Learner):
    """Learns an actor, and a critic if there is one, from whole time slots."""

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        *,
        gamma: float = 0.9,
        bootstrap: bool = True,
        entropy: float = 0.1,
        lr: float = 1e-4,
        replay: int | None = 8192,
        batch: int = 256,
        correction: str = "none",
        own: bool = False,
        normalise: bool = False,
        cap: float = 2.0,
        keep: float = 0.99,
        max_norm: float | None = None,
        seed: int = 0,
    ) -> None:
        """Without `bootstrap`, the critic's target is the slot's reward alone, as in the authors' code.

        `own`: credit a step with the progress of its batch of jobs, not with the reward of the whole time slot.
        `normalise`: divide advantages by their standard deviation in the batch of samples. `keep`: the weight of the
        old value in the moving average of rewards.
        """
        positive(lr=lr, replay=replay, batch=batch, cap=cap, max_norm=max_norm)
        if correction not in CORRECTIONS:
            raise InputError(f"unknown correction {correction!r}; there are {', '.join(CORRECTIONS)}")
        self.actor, self.critic = actor, critic
        self.gamma, self.bootstrap, self.entropy = gamma, bootstrap, entropy
        self.own, self.normalise = own, normalise
        self.batch, self.correction, self.cap, self.keep, self.max_norm = batch, correction, cap, keep, max_norm
        self.optimizer = torch.optim.Adam(unique(actor, critic), lr=lr)
        self.memory = None if replay is None else Replay(replay)
        self.generator = torch.Generator().manual_seed(seed)
        self.usual: float | None = None  # the moving average of slots' rewards
        super().__init__(
            {
                "actor": actor,
                "critic": critic,
                "optimizer": self.optimizer,
                "memory": self.memory,
                "draws": self.generator,
            }
        )

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Store a rollout of whole time slots, with one gradient step after each; return the mean losses."""
        if not rollout.passes[rollout.last].all():
            raise InputError(
                "the rollout ends within a time slot, whose reward is not known yet",
                hint="collect whole time slots: collect(act, slots=1)",
            )
        reward = rollout.own_reward() if self.own else rollout.slot_reward[rollout.slot]
        columns = {
            "observation": rollout.observation,
            "mask": rollout.mask,
            "action": rollout.action,
            "log_prob": rollout.log_prob,
            "reward": reward,
            "next_observation": rollout.next_slot_observation(),
            "ended": np.maximum.reduceat(rollout.terminated, rollout.slot_start)[rollout.slot],
        }
        means = Means()
        for start, stop in zip(rollout.slot_start, np.append(rollout.slot_start[1:], len(rollout))):
            newest = {name: column[start:stop] for name, column in columns.items()}
            if self.memory is None:
                batch = {name: torch.from_numpy(column) for name, column in newest.items()}
            else:
                self.memory.add(**newest)
                batch = self.memory.draw(self.batch, self.generator)
            brought = float(reward[start:stop].mean())
            self.usual = brought if self.usual is None else self.usual
            self._learn(batch, means)
            self.usual += (1 - self.keep) * (brought - self.usual)
            self.updates += 1
        return means.result()

    def _learn(self, batch: Batch, means: Means) -> None:
        reward = batch["reward"].float()
        losses: dict[str, torch.Tensor] = {}
        if self.critic is None:
            assert self.usual is not None
            advantage = reward - self.usual
        else:
            worth = reward
            if self.bootstrap:
                with torch.no_grad():
                    worth = reward + self.gamma * self.critic(batch["next_observation"]) * ~batch["ended"]
            value = self.critic(batch["observation"])
            losses["critic"] = (value - worth).square().mean()
            advantage = (worth - value).detach()
        if self.normalise and len(advantage) > 1:
            advantage = advantage / (advantage.std() + 1e-8)
        logits = self.actor(batch["observation"])
        logs = masked.log_probabilities(logits, batch["mask"])
        log_prob = logs.gather(-1, batch["action"][:, None]).squeeze(-1)
        weight = importance(log_prob, batch["log_prob"], self.correction, self.cap)
        spread = -(logs.exp() * logs).sum(dim=-1).mean()
        losses["policy"] = -(weight * advantage * log_prob).mean()
        losses["entropy"] = -self.entropy * spread
        norm = self.descend(self.optimizer, losses, self.max_norm)
        means.add(
            **{f"loss_{name}": loss for name, loss in losses.items()},
            entropy=spread,
            gradient_norm=norm,
            weight=weight.mean(),
            advantage=advantage.mean(),
            reward=reward.mean(),
        )

    def state(self) -> State:
        """Return everything that the next update depends on, including the replay memory."""
        return super().state() | ({} if self.usual is None else {"usual": number(self.usual)})

    def restore(self, state: State) -> None:
        """Continue as the saved learner would have."""
        super().restore(state)
        self.usual = float(state["usual"]) if "usual" in state else None


def importance(log_prob: torch.Tensor, behaviour: torch.Tensor, correction: str, cap: float) -> torch.Tensor:
    """Return each sample's weight: 1, or its action's probability now over that when it was taken, at most `cap`."""
    if correction == "none":
        return torch.ones_like(behaviour)
    return (log_prob.detach() - behaviour).exp().clamp(max=cap)
