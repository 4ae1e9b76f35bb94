"""Discrete SAC: only possible actions count, and the target entropy is each state's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from toolbox_help import actor, same, score, weights
from torch import nn

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import Collector, episodes
from argosy.learn.algorithms.sac import SAC, target_entropy, transitions
from argosy.learn.algorithms.toy_envs import Bandit, Queue


def make() -> Queue:
    return Queue((1, 4))


def learner(policy: nn.Module, inputs: int, actions: int, **settings: float) -> SAC:
    critics = (actor(inputs, actions, seed=1), actor(inputs, actions, seed=2))
    return SAC(policy, critics, **({"lr": 3e-3, "batch": 64, "warm_up": 100, "tau": 0.02} | settings))  # type: ignore[arg-type]


def train(updates: int) -> nn.Module:
    policy = actor(6, 3)
    sac = learner(policy, 6, 3, lr=1e-2, gamma=0.9, target=0.3)
    collector, act = Collector([make() for _ in range(8)], seeds=list(range(8))), NetworkActs(policy, seed=1)
    for _ in range(updates):
        sac.update(collector.collect(act, slots=8))
    return policy


def test_the_short_job_goes_first() -> None:
    assert score(train(10), make) == make().best


def test_same_seed_same_weights_bit_by_bit() -> None:
    assert same(weights(train(2)), weights(train(2)))


def test_the_target_entropy_adapts_to_the_number_of_valid_actions() -> None:
    mask = torch.arange(8)[None] < torch.tensor([[1], [2], [8]])
    assert target_entropy(mask).tolist() == pytest.approx([0.0, 0.98 * math.log(2), 0.98 * math.log(8)])
    # a uniform choice has a little more entropy than the target, so alpha falls; a sure one has less, so it grows
    for bias, grows in ((0.0, False), (20.0, True)):
        policy = nn.Linear(1, 3)
        with torch.no_grad():
            policy.weight.zero_()
            policy.bias.copy_(torch.tensor([bias, 0.0, 0.0]))
        sac = learner(policy, 1, 3, warm_up=10, alpha=0.5, lr=1e-2)
        collector, act = Collector([Bandit() for _ in range(16)], seeds=list(range(16))), NetworkActs(policy)
        sac.actor.requires_grad_(False)
        sac.update(collector.collect(act, steps=1))
        assert (sac.alpha > 0.5) == grows, bias


def test_values_and_entropy_are_over_valid_actions_only() -> None:
    policy = actor(1, 3)
    sac = learner(policy, 1, 3)
    got = episodes([Bandit() for _ in range(16)], NetworkActs(policy), list(range(16)))
    batch = {
        "observation": got.observation,
        "mask": got.mask,
        "action": got.action,
        "reward": got.reward,
        "elapsed": np.ones(16),
        "terminated": np.zeros(16, bool),
        "next_observation": got.observation,
        "next_mask": got.mask,
    }
    data = transitions({name: torch.from_numpy(column) for name, column in batch.items()})
    target = sac.loss._compute_target(data)
    critics = sac.loss.qvalue_network_params
    with torch.no_grad():  # what the critics think of a masked action must not matter
        for level in (critics, sac.loss.target_qvalue_network_params):
            level["module", "3", "bias"][:, 2] += 1e6
    assert torch.equal(sac.loss._compute_target(data), target)
    loss, about = sac.loss.actor_loss(data)
    assert float(-about["log_prob"].mean()) <= math.log(2) + 1e-6
    loss.backward()
    last = policy[-1]  # type: ignore[index]
    assert last.weight.grad[2].abs().max() == 0.0 and last.weight.grad[:2].abs().min() > 0.0


def test_only_time_is_discounted() -> None:
    policy = actor(1, 2)
    sac = learner(policy, 1, 2, gamma=0.5)
    one, mask = torch.ones(2, 1), torch.ones(2, 2, dtype=torch.bool)
    data = transitions(
        {
            "observation": one,
            "mask": mask,
            "action": torch.zeros(2, dtype=torch.long),
            "reward": torch.zeros(2),
            "elapsed": torch.tensor([0.0, 1.0]),
            "terminated": torch.zeros(2, dtype=torch.bool),
            "next_observation": one,
            "next_mask": mask,
        }
    )
    within, across = sac.loss._compute_target(data).tolist()
    assert across == pytest.approx(0.5 * within)
    data["next", "terminated"] = torch.ones(2, 1, dtype=torch.bool)
    assert sac.loss._compute_target(data).tolist() == [0.0, 0.0]


def test_slow_critics_follow() -> None:
    policy = actor(1, 3)
    sac = learner(policy, 1, 3, warm_up=8, tau=0.1, per_step=1 / 16)
    slow = sac.loss.target_qvalue_network_params["module", "3", "bias"]
    before = slow.clone()
    sac.update(episodes([Bandit() for _ in range(16)], NetworkActs(policy), list(range(16))))
    now = sac.loss.qvalue_network_params["module", "3", "bias"].detach()
    assert torch.allclose(slow, 0.9 * before + 0.1 * now, atol=1e-7)
    assert not torch.equal(slow, before)


def test_nothing_is_learned_before_the_warm_up() -> None:
    policy = actor(1, 3)
    sac = learner(policy, 1, 3, warm_up=17)
    before = weights(policy)
    assert sac.update(episodes([Bandit() for _ in range(16)], NetworkActs(policy), list(range(16)))) == {}
    assert same(weights(policy), before) and sac.updates == 1
