"""Reinforcement by PPO and by SAC: whole episodes, collected side by side, and one update of the learner on them.

Several rollouts share their arrivals. The reward of a slot is minus the hours that jobs have spent in the system, so
returns are about completion times and nothing else.
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
from argosy.learn.training.ground import Ground, easier
from argosy.learn.training.lessons import Practice, practise
from argosy.learn.training.pupil import Arrays, Pupil
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.workers import Workers
from argosy.seeding import stream

REWARD = "jct"


class WholeEpisodes:
    """Stage: each update is some episodes of the actor as it is."""

    learner: PPO | SAC

    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, actor: Actor, workers: Workers) -> None:
        self._recipe, self._pupil, self._ground, self._workers, self._actor = recipe, pupil, ground, workers, actor
        self._curriculum = Curriculum(recipe.curriculum, seed=recipe.seed) if recipe.curriculum else None
        self.name, self.total = recipe.algo, recipe.updates

    @property
    def done(self) -> int:
        return self.learner.updates

    def update(self) -> dict[str, float]:
        rollout = join(self._workers.map(practise, self._tasks()))
        figures = self.learner.update(rollout)
        return figures | {"steps": float(len(rollout)), "hours": -float(rollout.totals().mean())}

    def _tasks(self) -> list[Practice]:
        """As many rollouts as wanted of each of the update's arrivals."""
        options, draws = self._recipe.options, stream(self._recipe.seed, "rollouts", self.done)
        ground, slots = easier(self._ground, self._curriculum, self.done), int(options["slots"]) or None
        seeds = draws.integers(*TRAINING_SEEDS, size=int(options["arrivals"])).tolist()
        return [
            Practice(self._pupil, ground, seed, self.arrays(), REWARD, int(draws.integers(2**62)), slots)
            for seed in seeds
            for _ in range(int(options["rollouts"]))
        ]

    def arrays(self) -> Arrays:
        return self._actor.arrays()

    def state(self) -> State:
        return self.learner.state()

    def restore(self, state: State) -> None:
        self.learner.restore(state)


class ByPpo(WholeEpisodes):
    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, actor: Actor, workers: Workers) -> None:
        super().__init__(recipe, pupil, ground, actor, workers)
        options = recipe.options
        paired = bool(options["paired"])
        critic = None if paired else pupil.critic(torch.Generator().manual_seed(recipe.seed))
        returns = Returns(options["gamma"], options["lam"], baseline="paired" if paired else "critic",
                          rewards=Rewards(normalise=True))  # fmt: skip
        self.learner = PPO(
            actor, critic, returns=returns, lr=options["lr"], entropy=options["entropy"],
            epochs=int(options["epochs"]), batch=int(options["batch"]), seed=recipe.seed,
        )  # fmt: skip


class BySac(WholeEpisodes):
    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, actor: Actor, workers: Workers) -> None:
        super().__init__(recipe, pupil, ground, actor, workers)
        options, generator = recipe.options, torch.Generator().manual_seed(recipe.seed)
        self.learner = SAC(
            actor, (ActionValues(pupil, generator), ActionValues(pupil, generator)), gamma=options["gamma"],
            rewards=Rewards(normalise=True), alpha=options["alpha"], target=options["target"], lr=options["lr"],
            replay=int(options["memory"]), batch=int(options["batch"]), per_step=options["per_step"],
            warm_up=int(options["start"]), seed=recipe.seed,
        )  # fmt: skip


class ActionValues(nn.Module):
    """The value of a state, and how much better or worse each action is than to stop."""

    def __init__(self, pupil: Pupil, generator: torch.Generator) -> None:
        super().__init__()
        self.state, self.gain = pupil.critic(generator), pupil.actor(generator)

    def forward(self, observation: Tensor) -> Tensor:
        gain = self.gain(observation)
        values: Tensor = self.state(observation).unsqueeze(-1) + gain - gain[..., -1:]
        return values
