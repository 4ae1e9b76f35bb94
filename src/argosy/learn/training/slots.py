"""Reinforcement as DL2 does it: several clusters side by side, and a step of the optimizer after each slot."""

from __future__ import annotations

import torch

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.actor_critic import ActorCritic
from argosy.learn.algorithms.collect import Collector
from argosy.learn.algorithms.state import State, number, pack, unpack
from argosy.learn.networks import Actor
from argosy.learn.training.explore import JobAware
from argosy.learn.training.ground import Ground
from argosy.learn.training.lanes import Endless
from argosy.learn.training.pupil import Arrays, Pupil
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.workers import Workers


class SlotBySlot:
    """Stage: each update is one slot of every environment.

    In the first updates only the critic learns: one that knows nothing yet takes every slot for a success.
    """

    name = "dl2"

    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, actor: Actor, workers: Workers) -> None:
        options, seed = recipe.options, recipe.seed
        self.total, self.done = recipe.updates, 0
        self._actor = actor
        critic = pupil.critic(torch.Generator().manual_seed(seed)) if recipe.critic else None
        self._learner = ActorCritic(
            actor, critic, gamma=options["gamma"], entropy=options["entropy"], lr=options["lr"],
            replay=int(options["memory"]) if recipe.replay else None, batch=int(options["batch"]),
            correction="importance" if options["importance"] else "none", seed=seed,
            own=bool(options["own"]), normalise=bool(options["normalise"]),
        )  # fmt: skip
        self._first = int(options["critic_first"]) if critic is not None else 0
        if critic is not None:
            _own_rate(self._learner.optimizer, actor, critic, options["critic_lr"])
        act, types = NetworkActs(actor, seed=seed), len(pupil.types)
        self._act = JobAware(actor, types, seed=seed) if recipe.exploration else act
        slots = int(options["slots"]) or None
        self._envs = [Endless(pupil, ground, seed, lane, "progress", slots) for lane in range(int(options["envs"]))]
        self._collector = Collector(self._envs, seeds=[0] * len(self._envs), timed=True)

    def update(self) -> dict[str, float]:
        for parameter in self._actor.parameters():
            parameter.requires_grad_(self.done >= self._first)
        rollout = self._collector.collect(self._act, slots=1)
        figures = self._learner.update(rollout)
        self.done += 1
        return figures | {"steps": float(len(rollout))}

    def arrays(self) -> Arrays:
        return self._actor.arrays()

    def state(self) -> State:
        lanes = {f"lane{i}": env for i, env in enumerate(self._envs)}
        return pack({"learner": self._learner, "act": self._act, **lanes}) | {"done": number(self.done)}

    def restore(self, state: State) -> None:
        lanes = {f"lane{i}": env for i, env in enumerate(self._envs)}
        unpack({"learner": self._learner, "act": self._act, **lanes}, state)
        self.done = int(state["done"])


def _own_rate(optimizer: torch.optim.Optimizer, actor: Actor, critic: torch.nn.Module, lr: float) -> None:
    """Another learning rate for the critic."""
    (group,) = optimizer.param_groups
    group["params"] = list(actor.parameters())
    optimizer.add_param_group({"params": list(critic.parameters()), "lr": lr})
