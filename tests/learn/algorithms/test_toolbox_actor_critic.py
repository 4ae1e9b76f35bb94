"""DL2's learner: slots share their reward, replay is first in first out, and the importance correction works."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from toolbox_help import actor, critic, rollout, same, score, weights
from torch import nn

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.actor_critic import ActorCritic, importance
from argosy.learn.algorithms.collect import Collector, episodes
from argosy.learn.algorithms.replay import Replay
from argosy.learn.algorithms.toy_envs import Bandit, Queue


def make() -> Queue:
    return Queue((1, 4))


def train(updates: int, *, with_critic: bool = True, seed: int = 0, **settings: object) -> nn.Module:
    policy = actor(6, 3, seed=seed)
    judge = critic(6, seed=seed) if with_critic else None
    learner = ActorCritic(policy, judge, lr=5e-3, entropy=0.02, batch=64, seed=seed, **settings)  # type: ignore[arg-type]
    envs = [Queue((1, 4), reward="progress") for _ in range(8)]
    collector, act = Collector(envs, seeds=list(range(8))), NetworkActs(policy, seed=1)
    for _ in range(updates):
        learner.update(collector.collect(act, slots=1))
    assert learner.updates == 8 * updates  # one for each slot
    return policy


@pytest.mark.parametrize("seed", [0, 1])
def test_the_corrected_form_solves_the_toy(seed: int) -> None:
    assert score(train(60, correction="importance", seed=seed), make) == make().best


@pytest.mark.parametrize("switch", [{}, {"replay": None}, {"with_critic": False}, {"bootstrap": False}])
def test_every_form_finds_the_better_arm(switch: dict[str, object]) -> None:
    policy = actor(1, 3)
    judge = critic(1) if switch.pop("with_critic", True) else None
    learner = ActorCritic(policy, judge, lr=1e-2, entropy=0.02, batch=32, seed=0, **switch)  # type: ignore[arg-type]
    collector, act = Collector([Bandit() for _ in range(8)], seeds=list(range(8))), NetworkActs(policy, seed=1)
    for _ in range(60):
        learner.update(collector.collect(act, slots=1))
    logits = policy(torch.ones(1, 1))[0, :2]
    assert float(logits.softmax(-1)[1].detach()) > 0.9


def test_same_seed_same_weights_bit_by_bit() -> None:
    assert same(weights(train(4)), weights(train(4)))
    assert not same(weights(train(4)), weights(train(4, seed=1)))


def test_every_inference_of_a_slot_is_credited_with_what_the_slot_brought() -> None:
    class Spy(ActorCritic):
        def _learn(self, batch, means):  # type: ignore[no-untyped-def]
            self.seen = batch

    spy = Spy(actor(1, 2), critic(1))
    got = rollout([0, 0, 0.25, 0, 1.0], [False, False, True, False, True])
    spy.update(got)
    assert spy.seen["reward"].tolist() == [0.25, 0.25, 0.25, 1.0, 1.0]
    assert spy.seen["next_observation"][:, 0].tolist() == [3, 3, 3, 100, 100]
    assert spy.seen["ended"].tolist() == [False, False, False, True, True]


def test_the_advantage_is_the_slots_reward_and_the_next_slots_value_less_ones_own() -> None:
    judge = nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))
    with torch.no_grad():
        judge[0].weight.fill_(2.0)
        judge[0].bias.zero_()  # V(s) = 2 s
    got = rollout([0, 3.0, 4.0], [False, True, True])  # states 0, 1 | 2
    first = 3.0 + 0.9 * 4.0  # V(2) = 4
    for bootstrap, expected in ((True, [first - 0, first - 2, 4.0 - 4]), (False, [3.0, 1.0, 0.0])):
        learner = ActorCritic(actor(1, 2), judge, gamma=0.9, lr=1e-9, bootstrap=bootstrap, replay=8)
        means = learner.update(got)  # after the first slot: two samples; after the second: three
        halves = [np.mean(expected[:2]), np.mean(expected)]
        assert means["advantage"] == pytest.approx(np.mean(halves), abs=1e-5)


def test_without_replay_only_the_newest_slot_counts() -> None:
    got = rollout([1.0, 5.0], [True, True])
    rewards = [ActorCritic(actor(1, 2), None, replay=size).update(got)["reward"] for size in (None, 8)]
    assert rewards == [(1 + 5) / 2, (1 + (1 + 5) / 2) / 2]


def test_without_a_critic_the_baseline_is_a_moving_average() -> None:
    learner = ActorCritic(actor(1, 2), None, keep=0.9)
    learner.update(rollout([1.0, 5.0], [True, True]))
    assert learner.usual == pytest.approx(0.9 * 1.0 + 0.1 * 5.0)


def test_importance_is_capped() -> None:
    now, then = torch.tensor([0.0, -1.0, -1.0]), torch.tensor([-3.0, -1.0, -0.5])
    assert importance(now, then, "importance", 2.0).tolist() == pytest.approx([2.0, 1.0, math.exp(-0.5)])
    assert importance(now, then, "none", 2.0).tolist() == [1.0, 1.0, 1.0]


def test_the_correction_is_unbiased_where_plain_replay_is_not() -> None:
    """Samples of a fair coin, today's policy prefers arm 0 four to one; the exact gradient is known."""
    logits = torch.log(torch.tensor([0.8, 0.2]))
    pays = torch.tensor([1.0, 3.0])
    exact = logits.clone().requires_grad_()
    (exact.softmax(-1) * pays).sum().backward()  # of what the policy of today earns

    def estimate(correction: str) -> torch.Tensor:
        now = logits.clone().requires_grad_()
        action = torch.tensor([0, 1])  # each as often as the coin shows it
        log_prob = now.log_softmax(-1)[action]
        weight = importance(log_prob, torch.log(torch.tensor([0.5, 0.5])), correction, 2.0)
        (weight * pays[action] * log_prob).mean().backward()
        assert now.grad is not None
        return now.grad

    assert exact.grad is not None
    assert torch.allclose(estimate("importance"), exact.grad, atol=1e-6)
    assert not torch.allclose(estimate("none"), exact.grad, atol=0.1)


def test_replay_keeps_the_newest() -> None:
    memory = Replay(4)
    for start in (0, 3, 6):
        memory.add(x=np.arange(start, start + 3))
    assert sorted(memory.draw(10, torch.Generator())["x"].tolist()) == [5, 6, 7, 8]
    memory.add(x=np.arange(100, 110))
    assert sorted(memory.draw(10, torch.Generator())["x"].tolist()) == [106, 107, 108, 109]
    assert len(memory.draw(2, torch.Generator())["x"]) == 2 and len(memory) == 4


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="ends within a time slot"):
        envs = [Queue()]
        got = Collector(envs, seeds=[0]).collect(NetworkActs(actor(9, 4)), steps=1)
        ActorCritic(actor(9, 4), None).update(got)
    with pytest.raises(InputError, match="unknown correction"):
        ActorCritic(actor(1, 2), None, correction="some")
    learner = ActorCritic(actor(1, 3), None)
    learner.update(episodes([Bandit()], NetworkActs(actor(1, 3)), [0]))
    with pytest.raises(InputError, match="earlier samples have"):
        learner.update(episodes([Queue()], NetworkActs(actor(9, 4)), [0]))
