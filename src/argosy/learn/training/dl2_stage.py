"""Reinforcement as DL2 does it: several clusters side by side, and an optimizer step after each time slot."""

from __future__ import annotations

import torch

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.actor_critic import ActorCritic
from argosy.learn.algorithms.collect import Collector
from argosy.learn.algorithms.state import Part, State, number, pack, unpack
from argosy.learn.networks import Actor
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.endless_env import EndlessEnv
from argosy.learn.training.exploration import JobAware
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import Arrays, Student
from argosy.learn.training.workers import Workers


class Dl2Stage:
    """A stage in which each update is one time slot of every environment.

    In the first updates only the critic learns: with an untrained critic, every time slot would look like a success.
    """

    name = "dl2"

    def __init__(self, recipe: Recipe, student: Student, cases: TrainingCases, actor: Actor, workers: Workers) -> None:
        options, seed = recipe.options, recipe.seed
        self.total, self.done = recipe.updates, 0
        self._actor = actor
        critic = student.critic(torch.Generator().manual_seed(seed)) if recipe.critic else None
        self._learner = ActorCritic(
            actor,
            critic,
            gamma=options["gamma"],
            entropy=options["entropy"],
            lr=options["lr"],
            replay=int(options["memory"]) if recipe.replay else None,
            batch=int(options["batch"]),
            correction="importance" if options["importance"] else "none",
            seed=seed,
            own=bool(options["own"]),
            normalise=bool(options["normalise"]),
        )
        self._first = int(options["critic_first"]) if critic is not None else 0
        if critic is not None:
            _own_rate(self._learner.optimizer, actor, critic, options["critic_lr"])
        act, types = NetworkActs(actor, seed=seed), len(student.types)
        self._act = JobAware(actor, types, seed=seed) if recipe.exploration else act
        slots = int(options["slots"]) or None
        self._envs = [EndlessEnv(student, cases, seed, i, "progress", slots) for i in range(int(options["envs"]))]
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

    def _parts(self) -> dict[str, Part]:
        """Return the parts with a state by their names in checkpoints."""
        envs = {f"lane{i}": env for i, env in enumerate(self._envs)}
        return {"learner": self._learner, "act": self._act, **envs}

    def state(self) -> State:
        return pack(self._parts()) | {"done": number(self.done)}

    def restore(self, state: State) -> None:
        unpack(self._parts(), state)
        self.done = int(state["done"])


def _own_rate(optimizer: torch.optim.Optimizer, actor: Actor, critic: torch.nn.Module, lr: float) -> None:
    """Give the critic a learning rate of its own."""
    (group,) = optimizer.param_groups
    group["params"] = list(actor.parameters())
    optimizer.add_param_group({"params": list(critic.parameters()), "lr": lr})
