"""Returns and advantages, compared with sums by hand and with TorchRL's estimates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toolbox_help import actor, rollout
from torchrl.objectives.value.functional import generalized_advantage_estimate

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import episodes
from argosy.learn.algorithms.paired import paired_baseline
from argosy.learn.algorithms.returns import Returns, discounted
from argosy.learn.algorithms.rewards import Rewards
from argosy.learn.algorithms.rollout import join
from argosy.learn.algorithms.toy_envs import Queue


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.floats(0, 1), st.floats(0, 1))
def test_gae_by_slots_is_gae_by_steps(seed: int, steps: int, gamma: float, lam: float) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.choice(["", "", "", "end", "cut"], steps).tolist()
    ends[-1] = "cut"
    passes = rng.random(steps) < 0.5
    passes |= np.array(ends) == "end"
    count = sum(bool(e) for e in ends)
    got = rollout(rng.normal(size=steps), passes, ends=ends, arrivals=list(range(count)))
    value, final = rng.normal(size=steps), rng.normal(size=count)
    estimate = Returns(gamma=gamma, lam=lam)(got, value, final)
    following = np.append(value[1:], 0.0)
    following[got.last] = final
    columns = [np.where(passes, gamma, 1.0), np.where(passes, lam, 1.0), value, following, got.reward]
    flags = [got.terminated | got.truncated, got.terminated]
    expected, target = generalized_advantage_estimate(*(torch.from_numpy(c)[:, None] for c in (*columns, *flags)))
    assert np.allclose(estimate.advantage, expected[:, 0], atol=1e-5)
    assert np.allclose(estimate.target, target[:, 0], atol=1e-5)


def test_gamma_counts_only_where_time_passes() -> None:
    got = rollout([0, 0, 1, 0, 0, 2], [False, False, True, False, False, True])
    estimate = Returns(gamma=0.5, lam=1.0)(got, np.zeros(6), np.zeros(1))
    assert estimate.target.tolist() == [2, 2, 2, 2, 2, 2]  # 1 + 0.5 · 2, then 2


def test_a_cut_episode_is_continued_by_the_critic_and_an_ended_one_is_not() -> None:
    passes = [True, True]
    for end, expected in (("end", [3, 2]), ("cut", [3 + 0.25 * 8, 2 + 0.5 * 8])):
        got = rollout([2, 2], passes, ends=["", end])
        assert Returns(gamma=0.5, lam=1.0)(got, np.zeros(2), np.array([8.0])).target.tolist() == expected


def test_a_cut_within_a_slot_is_not_discounted() -> None:
    got = rollout([0, 0], [False, False], ends=["", "cut"])
    assert Returns(gamma=0.5)(got, np.zeros(2), np.array([8.0])).target.tolist() == [8, 8]


def test_gamma_may_be_per_time() -> None:
    got = rollout([0, 1], [True, True], dt=30.0)
    estimate = Returns(gamma=0.25, lam=1.0, unit_s=60.0)(got, np.zeros(2), np.zeros(1))
    assert estimate.target.tolist() == [0.5, 1.0]  # half a unit: the root of gamma


def test_differential_rewards_are_against_the_usual_rate() -> None:
    rewards = Rewards(differential=True)
    first = rewards(rollout([-4, -8], [True, True], dt=2.0))
    assert rewards.rate == -3.0
    assert first.tolist() == [2, -2]
    second = rewards(rollout([-3, 0, -5], [True, False, True], dt=1.0))
    assert rewards.rate == pytest.approx(-20 / 6)
    assert second.tolist() == pytest.approx([-3 + 20 / 6, 0, -5 + 20 / 6])


def test_the_usual_rate_forgets() -> None:
    rewards = Rewards(differential=True, window=3)
    rewards(rollout([100, 100], [True, True]))
    rewards(rollout([1, 2, 3], [True, True, True]))
    assert rewards.rate == 2.0


@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=8), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_normalised_rewards_are_divided_by_the_deviation_of_all_so_far(parts: list[list[float]]) -> None:
    rewards = Rewards(normalise=True)
    for part in parts:
        result = rewards(rollout(part, [True] * len(part)))
    deviation = np.std(np.concatenate(parts))
    assert rewards.scale == pytest.approx(deviation if deviation > 1e-8 else 1.0, rel=1e-6, abs=1e-7)
    assert result.tolist() == pytest.approx([r / rewards.scale for r in parts[-1]])


def test_rewards_go_on_from_their_state() -> None:
    one, other = (Rewards(differential=True, normalise=True) for _ in range(2))
    one(rollout([1, 4], [True, True]))
    other.restore(one.state())
    more = rollout([2, 8], [True, True])
    assert one(more).tolist() == other(more).tolist()


def test_the_paired_baseline_is_the_mean_return_at_the_same_time() -> None:
    # two episodes of the same arrivals: decisions at 0, 1, 2 and at 0, 2
    one = rollout([-1, -1, -4], [True] * 3)
    other = rollout([-8, -2], [True] * 2, dt=2.0)
    both = join([one, other])
    returns = discounted(both, both.reward, np.ones(5))
    assert returns.tolist() == [-6, -5, -4, -10, -2]
    # the second one's return at time 1 lies between -10 and -2; the first is over at 3: beyond, it is 0
    assert paired_baseline(both, returns).tolist() == [-8, (-5 - 6) / 2, -3, -8, -3]


def test_paired_advantages_cancel_where_all_do_the_same() -> None:
    act = NetworkActs(actor(9, 4), greedy=True)
    got = episodes([Queue() for _ in range(4)], act, [7, 7, 8, 8])
    assert np.allclose(Returns(gamma=1.0, baseline="paired")(got).advantage, 0.0)


def test_a_paired_baseline_needs_pairs() -> None:
    act = NetworkActs(actor(9, 4))
    apart = episodes([Queue(), Queue()], act, [1, 2])
    with pytest.raises(InputError, match="only one with seed 1"):
        Returns(baseline="paired")(apart)


@pytest.mark.parametrize(
    ("settings_", "why"),
    [({"gamma": 1.5}, "gamma must be"), ({"lam": -0.1}, "lam must be"), ({"baseline": "mean"}, "unknown baseline")],
)
def test_settings_that_are_wrong(settings_: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Returns(**settings_)  # type: ignore[arg-type]


def test_gae_needs_values() -> None:
    with pytest.raises(InputError, match="need a critic"):
        Returns()(rollout([1], [True]))
