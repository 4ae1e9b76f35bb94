"""MAPPO and IPPO for the two agents: PPO on drawn orders and places, trained jointly on one reward.

    MAPPO    one critic sees the squeezed jobs and machines, and judges both agents
    IPPO     the ordering agent's critic sees the squeezed jobs, the placement agent's the squeezed machines

Each pick of an order and each drawn place is a choice with its own clipped ratio; all choices of a step share the
step's advantage. Discounts follow the time between steps. References: Yu et al., NeurIPS 2022 (MAPPO); de Witt et al.,
2020 (IPPO); Mao et al., ICLR 2019 (baselines that depend on the arrivals).
"""

from __future__ import annotations

import numpy as np
import torch

from argosy.errors import InputError
from argosy.learn.training.dual_agent.episodes import Step, collect
from argosy.learn.training.dual_agent.networks import (
    SQUEEZED_JOBS,
    SQUEEZED_MACHINES,
    Batch,
    Team,
    entropy,
    log_picks,
    logits,
    mlp,
)
from argosy.learn.training.dual_agent.recipe import DualAgentRecipe
from argosy.policies.base import Floats
from argosy.policies.dual_agent.agents import Agents, first_weights

CRITIC_LR = 2e-3


class TeamPPO:
    """Improves both agents by PPO."""

    def __init__(self, recipe: DualAgentRecipe) -> None:
        self.recipe, self.done = recipe, 0
        self.team = Team(first_weights(recipe.seed), recipe.squeeze)
        if recipe.algo == "mappo":
            shared = mlp(SQUEEZED_JOBS + SQUEEZED_MACHINES, recipe.seed)
            self.critics = [shared]
        else:
            self.critics = [mlp(SQUEEZED_JOBS, recipe.seed), mlp(SQUEEZED_MACHINES, recipe.seed + 1)]
        self._actor = torch.optim.Adam(self.team.parameters(), lr=recipe.lr)
        self._critic = torch.optim.Adam([p for net in self.critics for p in net.parameters()], lr=CRITIC_LR)
        self._order = torch.Generator().manual_seed(recipe.seed)

    def agents(self) -> Agents:
        """Return the policy's networks with the present weights."""
        return Agents(self.team.arrays(), squeeze=self.recipe.squeeze)

    def update(self) -> dict[str, float]:
        """Run episodes, and learn from them."""
        episodes = collect(self.recipe, self.agents(), self.done, self.recipe.picks)
        self.done += 1
        figures = self.learn(episodes)
        figures["gain"] = float(np.mean([sum(step.reward for step in steps) for steps in episodes]))
        return figures

    def learn(self, episodes: list[list[Step]]) -> dict[str, float]:
        """Learn from episodes."""
        recipe, steps = self.recipe, [step for episode in episodes for step in episode]
        batch = Batch.of(steps)
        seen = self._seen(batch)
        with torch.no_grad():
            of_jobs, of_places = logits(self.team, batch, recipe.heat)
            then_jobs, then_places = log_picks(of_jobs, batch.picks), _log_taken(of_places, batch.taken)
            values = [critic(x)[:, 0].double().numpy() for critic, x in zip(self.critics, seen, strict=True)]
        estimates = [estimate(episodes, value, recipe.lam) for value in values]
        advantages = [torch.from_numpy(_normal(a).astype(np.float32)) for a, _ in estimates]
        targets = [torch.from_numpy(t.astype(np.float32)) for _, t in estimates]
        of_order, of_placing = advantages[0], advantages[-1]
        kl, losses, number = 0.0, 0.0, torch.arange(len(batch.step))
        stop = False
        for _ in range(recipe.epochs):
            for part in torch.split(torch.randperm(len(steps), generator=self._order), recipe.batch):
                some = batch.select(part)
                inside = torch.zeros(len(steps), dtype=torch.bool)
                inside[part] = True
                draws = number[inside[batch.step]]
                for_critics = [
                    ((c(x[part])[:, 0] - t[part]) ** 2).mean() for c, x, t in zip(self.critics, seen, targets)
                ]
                critic_loss = torch.stack(for_critics).sum()
                _descend(self._critic, critic_loss)
                losses = float(critic_loss.detach())
                if stop:
                    continue
                of_jobs, of_places = logits(self.team, some, recipe.heat)
                valid = (some.picks >= 0) & (some.here.sum(1, keepdim=True) > torch.arange(some.picks.shape[1]) + 1)
                now, then = log_picks(of_jobs, some.picks)[valid], then_jobs[part][valid]
                gain = of_order[part][:, None].expand_as(valid)[valid]
                now_places, then_taken = _log_taken(of_places, some.taken), then_places[draws]
                kl = float((then - now.detach()).mean()) if len(now) else 0.0
                kl = max(kl, float((then_taken - now_places.detach()).mean()) if len(draws) else 0.0)
                if kl > recipe.most_kl:
                    stop = True
                    continue
                loss = _clipped(now, then, gain, recipe.clip)
                loss = loss + _clipped(now_places, then_taken, of_placing[batch.step[draws]], recipe.clip)
                spread = entropy(of_jobs).mean() + (entropy(of_places).mean() if len(draws) else 0.0)
                _descend(self._actor, loss - recipe.entropy * spread, self.team.parameters())
        return {"kl": kl, "critic_error": losses, "steps": float(len(steps)), "draws": float(len(batch.step))}

    def _seen(self, batch: Batch) -> list[torch.Tensor]:
        jobs, machines = batch.squeezed()
        return [torch.cat([jobs, machines], 1)] if len(self.critics) == 1 else [jobs, machines]


def estimate(episodes: list[list[Step]], values: Floats, lam: float) -> tuple[Floats, Floats]:
    """Return generalised advantage estimates and targets of values; a step's `keep` is its discount."""
    advantage, at = np.zeros(len(values)), len(values)
    for episode in reversed(episodes):
        ahead = following = 0.0
        for step in reversed(episode):
            at -= 1
            ahead = step.reward + step.keep * following - values[at] + step.keep * lam * ahead
            advantage[at], following = ahead, values[at]
    return advantage, advantage + values


def _normal(x: Floats) -> Floats:
    out: Floats = (x - x.mean()) / max(float(x.std()), 1e-8)
    return out


def _log_taken(of_places: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(of_places, 1).gather(1, taken[:, None])[:, 0]


def _clipped(now: torch.Tensor, then: torch.Tensor, gain: torch.Tensor, clip: float) -> torch.Tensor:
    if not len(now):
        return now.sum()
    ratio = torch.exp(now - then)
    return -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()


def _descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor, clipped: object = None) -> None:
    if not torch.isfinite(loss):
        raise InputError("the loss is not a finite number, so training cannot go on", hint="lower the learning rate lr")
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if clipped is not None:
        torch.nn.utils.clip_grad_norm_(clipped, 0.5)  # type: ignore[arg-type]
    optimizer.step()
