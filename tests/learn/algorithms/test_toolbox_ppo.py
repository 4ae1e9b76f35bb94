"""PPO solves its toys, with a critic and with paired arrivals, the same way for the same seed."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from toolbox_help import actor, critic, same, score, weights
from torch import nn

from argosy.errors import InputError
from argosy.learn.algorithms import masked
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import Collector, episodes
from argosy.learn.algorithms.ppo import PPO, samples, shuffled
from argosy.learn.algorithms.returns import Returns
from argosy.learn.algorithms.rewards import Rewards
from argosy.learn.algorithms.toy_envs import Bandit, Queue


class Detour(gymnasium.Env[Any, Any]):
    """EndlessEnv: one point in one minute, or three points in five."""

    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.now = 0.0
        return np.ones(1, np.float32), {"now": self.now}

    def step(self, action: Any) -> Any:
        self.now += (60.0, 300.0)[action]
        return np.ones(1, np.float32), (1.0, 3.0)[action], False, False, {"now": self.now}


def bandit(updates: int, *, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    policy, judge = actor(1, 3, seed=seed), critic(1, seed=seed)
    ppo = PPO(policy, judge, lr=1e-2, batch=64, seed=seed)
    collector, act = Collector([Bandit() for _ in range(16)], seeds=list(range(16))), NetworkActs(policy, seed=seed)
    for _ in range(updates):
        ppo.update(collector.collect(act, steps=4))
    return policy, judge


def chances(policy: nn.Module) -> list[float]:
    mask = torch.tensor([[True, True, False]])
    return masked.log_probabilities(policy(torch.ones(1, 1)), mask).exp()[0].tolist()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_better_arm_is_found(seed: int) -> None:
    policy, judge = bandit(40, seed=seed)
    assert chances(policy)[1] > 0.95
    assert chances(policy)[2] == 0.0
    assert judge(torch.ones(1, 1)).item() == pytest.approx(0.8, abs=0.15)


def test_same_seed_same_weights_bit_by_bit() -> None:
    assert same(weights(*bandit(3)), weights(*bandit(3)))
    assert not same(weights(*bandit(3)), weights(*bandit(3, seed=1)))


def test_the_shortest_job_goes_first() -> None:
    policy, judge = actor(9, 4), critic(9)
    ppo = PPO(policy, judge, lr=5e-3)
    collector, act = Collector([Queue() for _ in range(8)], seeds=list(range(8))), NetworkActs(policy, seed=1)
    for _ in range(35):
        report = ppo.update(collector.collect(act, slots=24))
    assert score(policy) >= Queue().best - 0.3
    assert {"loss_objective", "loss_critic", "loss_entropy", "entropy", "kl_approx", "gradient_norm"} <= report.keys()


def test_paired_arrivals_need_no_critic() -> None:
    def make() -> Queue:
        return Queue((1, 4))

    policy = actor(6, 3)
    ppo = PPO(policy, None, returns=Returns(gamma=1.0, baseline="paired"), lr=1e-2, epochs=1, batch=10**6)
    act = NetworkActs(policy, seed=2)
    for seed in range(50):
        ppo.update(episodes([make() for _ in range(16)], act, [seed] * 16))
    assert score(policy, make) == make().best


@pytest.mark.parametrize("differential", [True, False])
def test_the_differential_form_knows_that_time_is_dear(differential: bool) -> None:
    policy, judge = actor(1, 2), critic(1)
    rewards = Rewards(differential=differential)
    ppo = PPO(policy, judge, returns=Returns(gamma=1.0, lam=0.0, rewards=rewards), lr=1e-2, batch=64)
    collector, act = Collector([Detour() for _ in range(8)], seeds=list(range(8))), NetworkActs(policy, seed=1)
    for _ in range(20):
        ppo.update(collector.collect(act, steps=8))
    quick = policy(torch.ones(1, 1)).softmax(-1)[0, 0].item()
    assert quick > 0.9 if differential else quick < 0.1


def test_masked_actions_get_no_gradient_from_the_loss() -> None:
    policy, judge = nn.Linear(1, 3), critic(1)
    ppo = PPO(policy, judge)
    got = episodes([Bandit() for _ in range(32)], NetworkActs(policy), list(range(32)))
    data = samples(got, np.linspace(-1, 1, 32, dtype=np.float32), np.ones(32, np.float32))
    report = ppo.loss(data)
    sum(report[name] for name in ("loss_objective", "loss_entropy")).backward()
    assert policy.weight.grad is not None
    assert policy.weight.grad[2].item() == 0.0 and policy.weight.grad[:2].abs().min() > 0.0
    assert float(report["entropy"]) <= math.log(2) + 1e-6


def test_an_update_ends_early_when_the_policy_moves_far() -> None:
    for limit, steps in ((None, 8), (1e-6, 2)):
        policy, judge = actor(1, 3), critic(1)
        ppo = PPO(policy, judge, lr=5e-2, epochs=4, batch=16, target_kl=limit)
        ppo.update(episodes([Bandit() for _ in range(32)], NetworkActs(policy), list(range(32))))
        assert int(ppo.state()["optimizer/0/step"]) == steps


def test_batches_are_all_rows_once_and_nearly_equal() -> None:
    parts = shuffled(10, 4, torch.Generator().manual_seed(0))
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert [len(p) for p in parts] == [4, 3, 3]


def test_without_a_critic_gae_is_refused() -> None:
    ppo = PPO(actor(1, 3), None)
    with pytest.raises(InputError, match="need a critic"):
        ppo.update(episodes([Bandit()], NetworkActs(ppo.actor), [0]))


@pytest.mark.parametrize("setting", ["clip", "lr", "epochs", "batch", "max_norm"])
def test_settings_must_be_above_0(setting: str) -> None:
    with pytest.raises(InputError, match=f"{setting} must be above 0"):
        PPO(actor(1, 3), None, **{setting: 0})  # type: ignore[arg-type]
