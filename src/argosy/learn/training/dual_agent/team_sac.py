"""Discrete soft actor-critic for the two agents, on decisions of a memory of past episodes.

The ordering agent's action is the job that comes first (the others follow by key), the placement agent's is the place.
Twin critics have the agents' architecture: a value for each job, and for each place. Both agents' targets are

    y = reward + keep · V(next),        V = Σ π (min Q − α log π) over the jobs

and alpha adapts so that the entropy is a share of the largest possible one. The usual share of 0.98 would make nearly
random orders, which is why it is much smaller here. Reference: Christodoulou, arXiv 1910.07207.
"""

from __future__ import annotations

import copy

import numpy as np
import torch

from argosy.errors import InputError
from argosy.learn.training.dual_agent.episodes import Step, collect
from argosy.learn.training.dual_agent.networks import Batch, Team, entropy, logits
from argosy.learn.training.dual_agent.recipe import DualAgentRecipe
from argosy.policies.dual_agent.agents import OUTER, SHAPES, Agents, first_weights
from argosy.seeding import stream

MEMORY = 20_000  # steps
FOLLOW = 0.02  # how far target critics move towards the critics in a step
BATCH = 128
CRITIC_LR = 3e-3


class TeamSAC:
    """Improves both agents by soft actor-critic."""

    def __init__(self, recipe: DualAgentRecipe) -> None:
        self.recipe, self.done = recipe, 0
        self.team = Team(first_weights(recipe.seed), recipe.squeeze)
        self.critics = [Team(_critic_weights(recipe.seed + number), recipe.squeeze) for number in (1, 2)]
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.nn.Parameter(torch.full((2,), -3.0))  # of orders and of places
        self._actor = torch.optim.Adam(self.team.parameters(), lr=recipe.lr)
        self._critic = torch.optim.Adam([p for net in self.critics for p in net.parameters()], lr=CRITIC_LR)
        self._alpha = torch.optim.Adam([self.log_alpha], lr=1e-2)
        self.memory: list[tuple[Step, Step]] = []  # a step and the next one

    def agents(self) -> Agents:
        """Return the policy's networks with the present weights."""
        return Agents(self.team.arrays(), squeeze=self.recipe.squeeze)

    def update(self) -> dict[str, float]:
        """Run episodes, and learn from the memory."""
        episodes = collect(self.recipe, self.agents(), self.done, 1)
        for episode in episodes:
            pairs = zip(episode, [*episode[1:], episode[-1]], strict=True)
            self.memory += [(step, following) for step, following in pairs if len(step.jobs) and len(following.jobs)]
        del self.memory[:-MEMORY]
        draws = stream(self.recipe.seed, "dual-agent memory", self.done)
        self.done += 1
        figures: dict[str, float] = {}
        for _ in range(self.recipe.sac_steps):
            rows = draws.integers(len(self.memory), size=BATCH)
            figures = self.learn([self.memory[int(row)] for row in rows])
        figures["gain"] = float(np.mean([sum(step.reward for step in steps) for steps in episodes]))
        return figures

    def learn(self, some: list[tuple[Step, Step]]) -> dict[str, float]:
        """Take one gradient step of critics, agents and temperatures."""
        heat, alpha = self.recipe.heat, self.log_alpha.exp().detach()
        now, following = Batch.of([step for step, _ in some]), Batch.of([step for _, step in some])
        with torch.no_grad():
            of_jobs, _ = logits(self.team, following, heat)
            log = torch.log_softmax(of_jobs, 1)
            worth = torch.minimum(*(net(following)[0] for net in self.targets))
            value = (log.exp() * (worth - alpha[0] * log) * following.here).sum(1)
            reward = torch.tensor([step.reward for step, _ in some])
            wanted = reward + torch.tensor([step.keep for step, _ in some]) * value
        loss = torch.zeros(())
        for net in self.critics:
            of_job, of_place = net(now)
            loss = loss + ((of_job.gather(1, now.picks[:, :1])[:, 0] - wanted) ** 2).mean()
            if len(now.step):
                loss = loss + ((of_place.gather(1, now.taken[:, None])[:, 0] - wanted[now.step]) ** 2).mean()
        _descend(self._critic, loss)
        with torch.no_grad():
            values = [net(now) for net in self.critics]
            best = [torch.minimum(values[0][kind], values[1][kind]) for kind in (0, 1)]
        choices = logits(self.team, now, heat)
        actor, alpha_loss = torch.zeros(()), torch.zeros(())
        for kind, (of, worth, real) in enumerate(zip(choices, best, (now.here, now.open), strict=True)):
            if not len(of):
                continue
            log = torch.log_softmax(of, 1)
            actor = actor + (log.exp() * (alpha[kind] * log - worth) * real).sum(1).mean()
            most = self.recipe.target_entropy * torch.log(real.sum(1).float())
            alpha_loss = alpha_loss + self.log_alpha[kind] * (entropy(of).detach() - most).mean()
        _descend(self._actor, actor)
        _descend(self._alpha, alpha_loss)
        with torch.no_grad():
            for net, target in zip(self.critics, self.targets, strict=True):
                for theirs, ours in zip(target.parameters(), net.parameters(), strict=True):
                    theirs.lerp_(ours, FOLLOW)
        return {"critic_error": float(loss.detach()), "alpha": float(alpha[0]), "alpha_places": float(alpha[1])}


def _critic_weights(seed: int) -> dict[str, np.ndarray]:
    """Return weights of a critic that values everything at 0."""
    arrays = first_weights(seed)
    return {name: np.zeros(SHAPES[name], np.float32) if name in OUTER else array for name, array in arrays.items()}


def _descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    if not torch.isfinite(loss):
        raise InputError("the loss is not a finite number, so training cannot go on", hint="lower the learning rate lr")
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for group in optimizer.param_groups:
        torch.nn.utils.clip_grad_norm_(group["params"], 0.5)
    optimizer.step()
