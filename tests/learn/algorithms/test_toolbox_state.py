"""States of all learners: safetensors can write them, resuming is exact, and bad steps spoil no weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from toolbox_help import actor, critic, same, weights
from torch import nn

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.actor_critic import ActorCritic
from argosy.learn.algorithms.clone import Clone
from argosy.learn.algorithms.collect import episodes
from argosy.learn.algorithms.multi import IPPO, MAPPO
from argosy.learn.algorithms.ppo import PPO
from argosy.learn.algorithms.returns import Returns
from argosy.learn.algorithms.rewards import Rewards
from argosy.learn.algorithms.sac import SAC
from argosy.learn.algorithms.team import team_episodes
from argosy.learn.algorithms.toy_envs import Queue, Twins
from argosy.learn.errors import TrainingError

NAMES = ("castor", "pollux")


def ppo(policy: nn.Module) -> PPO:
    returns = Returns(rewards=Rewards(differential=True, normalise=True))
    return PPO(policy, critic(9), returns=returns, epochs=2, batch=8)


def sac(policy: nn.Module) -> SAC:
    return SAC(policy, (actor(9, 4, seed=1), actor(9, 4, seed=2)), batch=8, warm_up=1, replay=40, per_step=0.13)


def actor_critic(policy: nn.Module) -> ActorCritic:
    return ActorCritic(policy, critic(9), batch=8, replay=20, lr=1e-2)


def average(policy: nn.Module) -> ActorCritic:
    return ActorCritic(policy, None, replay=None, lr=1e-2)


def clone(policy: nn.Module) -> Clone:
    return Clone(policy, batch=8, steps=3, keep=20)


SINGLE: list[Callable[[nn.Module], Any]] = [ppo, sac, actor_critic, average, clone]


def steps(seed: int) -> Any:
    return episodes([Queue(), Queue()], NetworkActs(actor(9, 4), seed=seed), [seed, seed + 1])


@pytest.mark.parametrize("make", SINGLE)
def test_a_learner_goes_on_exactly_from_its_file(make: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    policy = actor(9, 4)
    learner = make(policy)
    for seed in range(2):
        learner.update(steps(seed))
    save_file(learner.state(), tmp_path / "state.safetensors")
    other = actor(9, 4, seed=5)
    resumed = make(other)
    resumed.restore(load_file(tmp_path / "state.safetensors"))
    assert same(weights(policy), weights(other))
    for seed in range(2, 4):
        assert learner.update(steps(seed)) == resumed.update(steps(seed))
    assert same(weights(policy), weights(other)) and learner.updates == resumed.updates
    left, right = learner.state(), resumed.state()
    assert left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.mark.parametrize("kind", [IPPO, MAPPO])
def test_teams_go_on_exactly(kind: Any, tmp_path: Path) -> None:
    def start(seed: int) -> Any:
        critics = {n: critic(2, seed=seed + i) for i, n in enumerate(NAMES)} if kind is IPPO else critic(4, seed=seed)
        return kind({n: actor(2, 3, seed=seed + i) for i, n in enumerate(NAMES)}, critics, epochs=1)

    def play(seed: int) -> Any:
        acts = {n: NetworkActs(actor(2, 3), seed=seed) for n in NAMES}
        return team_episodes([Twins(), Twins()], acts, [seed, seed + 1])

    learner = start(0)
    learner.update(play(0))
    save_file(learner.state(), tmp_path / "state.safetensors")
    resumed = start(10)
    resumed.restore(load_file(tmp_path / "state.safetensors"))
    assert learner.update(play(1)) == resumed.update(play(1))
    assert same(weights(*learner.actors.values()), weights(*resumed.actors.values()))


@pytest.mark.parametrize("make", SINGLE)
def test_a_loss_that_is_no_number_stops_training_and_leaves_the_weights(make: Callable[[nn.Module], Any]) -> None:
    policy = actor(9, 4)
    learner = make(policy)
    learner.update(steps(0))
    before = weights(policy)
    bad = steps(1)
    bad.observation[:] = np.nan
    with pytest.raises(TrainingError, match=r"(the loss '\w+' is nan|logits are not finite) at update \d+"):
        learner.update(bad)
    assert all(torch.isfinite(w).all() for w in weights(policy))
    if make in (ppo, average):  # the others have good samples in memory, and may have drawn those first
        assert same(before, weights(policy))


def test_the_message_names_the_update_and_the_loss() -> None:
    learner = PPO(actor(9, 4), critic(9))
    learner.update(steps(0))
    bad = steps(1)
    bad.log_prob[:] = np.nan
    with pytest.raises(TrainingError, match="the loss 'loss_objective' is nan at update 2") as caught:
        learner.update(bad)
    assert "smaller learning rate" in str(caught.value)
    assert isinstance(caught.value, InputError)
    bad.reward[0] = np.inf
    with pytest.raises(TrainingError, match="some rewards are not finite"):
        learner.update(bad)


@pytest.mark.parametrize("make", SINGLE)
def test_the_state_of_something_else_is_refused(make: Callable[[nn.Module], Any]) -> None:
    learner = make(actor(9, 4))
    learner.update(steps(0))
    state = learner.state()
    larger = make(actor(9, 4, hidden=8))
    with pytest.raises(InputError, match="does not fit this actor"):
        larger.restore(state)
    with pytest.raises(InputError, match="does not fit this"):
        make(actor(9, 4)).restore({name: t for name, t in state.items() if not name.startswith("optimizer/lr")})
    with pytest.raises(InputError, match="does not fit"):
        make(actor(9, 4)).restore({})


def test_learning_rates_that_were_changed_are_kept() -> None:
    learner = ppo(actor(9, 4))
    learner.optimizer.param_groups[0]["lr"] = 0.125
    other = ppo(actor(9, 4))
    other.restore(learner.state())
    assert other.optimizer.param_groups[0]["lr"] == 0.125


def test_a_smaller_memory_is_refused() -> None:
    learner = actor_critic(actor(9, 4))
    learner.update(steps(0))
    other = ActorCritic(actor(9, 4), critic(9), replay=2)
    with pytest.raises(InputError, match="has room for 2"):
        other.restore(learner.state())
