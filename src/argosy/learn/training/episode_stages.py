"""Reinforcement by PPO and by SAC: episodes are collected side by side, and each update learns from all of them.

Several rollouts share their arrivals. The reward of a time slot is minus the hours that jobs have spent in the system,
so returns measure completion times and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from argosy.learn.algorithms.curriculum import Curriculum
from argosy.learn.algorithms.ppo import PPO
from argosy.learn.algorithms.returns import Returns
from argosy.learn.algorithms.rewards import Rewards
from argosy.learn.algorithms.rollout import join
from argosy.learn.algorithms.sac import SAC
from argosy.learn.algorithms.state import State
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.networks import Actor
from argosy.learn.training.cases import TrainingCases, easier
from argosy.learn.training.collection_tasks import EpisodeTask, collect_episode
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import Arrays, Student
from argosy.learn.training.workers import Workers
from argosy.seeding import stream

REWARD = "jct"


class EpisodeStage:
    """A stage in which each update collects some episodes with the present actor."""

    learner: PPO | SAC

    def __init__(self, recipe: Recipe, student: Student, cases: TrainingCases, actor: Actor, workers: Workers) -> None:
        self._recipe, self._student, self._cases, self._workers, self._actor = recipe, student, cases, workers, actor
        self._curriculum = Curriculum(recipe.curriculum, seed=recipe.seed) if recipe.curriculum else None
        self.name, self.total = recipe.algo, recipe.updates

    @property
    def done(self) -> int:
        return self.learner.updates

    def update(self) -> dict[str, float]:
        rollout = join(self._workers.map(collect_episode, self._tasks()))
        figures = self.learner.update(rollout)
        return figures | {"steps": float(len(rollout)), "hours": -float(rollout.totals().mean())}

    def _tasks(self) -> list[EpisodeTask]:
        """Return the tasks of an update: some rollouts of each of its arrivals."""
        options, draws = self._recipe.options, stream(self._recipe.seed, "rollouts", self.done)
        cases, slots = easier(self._cases, self._curriculum, self.done), int(options["slots"]) or None
        seeds = draws.integers(*TRAINING_SEEDS, size=int(options["arrivals"])).tolist()
        return [
            EpisodeTask(self._student, cases, seed, self.arrays(), REWARD, int(draws.integers(2**62)), slots)
            for seed in seeds
            for _ in range(int(options["rollouts"]))
        ]

    def arrays(self) -> Arrays:
        return self._actor.arrays()

    def state(self) -> State:
        return self.learner.state()

    def restore(self, state: State) -> None:
        self.learner.restore(state)


class PpoStage(EpisodeStage):
    def __init__(self, recipe: Recipe, student: Student, cases: TrainingCases, actor: Actor, workers: Workers) -> None:
        super().__init__(recipe, student, cases, actor, workers)
        options = recipe.options
        paired = bool(options["paired"])
        critic = None if paired else student.critic(torch.Generator().manual_seed(recipe.seed))
        returns = Returns(
            options["gamma"], options["lam"], baseline="paired" if paired else "critic", rewards=Rewards(normalise=True)
        )
        self.learner = PPO(
            actor,
            critic,
            returns=returns,
            lr=options["lr"],
            entropy=options["entropy"],
            epochs=int(options["epochs"]),
            batch=int(options["batch"]),
            seed=recipe.seed,
        )


class SacStage(EpisodeStage):
    def __init__(self, recipe: Recipe, student: Student, cases: TrainingCases, actor: Actor, workers: Workers) -> None:
        super().__init__(recipe, student, cases, actor, workers)
        options, generator = recipe.options, torch.Generator().manual_seed(recipe.seed)
        self.learner = SAC(
            actor,
            (ActionValues(student, generator), ActionValues(student, generator)),
            gamma=options["gamma"],
            rewards=Rewards(normalise=True),
            alpha=options["alpha"],
            target=options["target"],
            lr=options["lr"],
            replay=int(options["memory"]),
            batch=int(options["batch"]),
            per_step=options["per_step"],
            warm_up=int(options["start"]),
            seed=recipe.seed,
        )


class ActionValues(nn.Module):
    """Estimates the value of a state, and how much better or worse each action is than ending the decision."""

    def __init__(self, student: Student, generator: torch.Generator) -> None:
        super().__init__()
        self.state, self.gain = student.critic(generator), student.actor(generator)

    def forward(self, observation: Tensor) -> Tensor:
        gain = self.gain(observation)
        values: Tensor = self.state(observation).unsqueeze(-1) + gain - gain[..., -1:]
        return values
