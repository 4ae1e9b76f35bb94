"""The mode "size": rows and masks follow the grants, and jobs run at the granted sizes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from envs_help import rollout, two_jobs

from argosy import Cluster, Job, Settings, Trace
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Fixed
from argosy.scenario import read_scenario


def test_spaces_are_those_of_the_paper() -> None:
    env = ClusterEnv("dl2-500", jobs=20)
    assert env.observation_space.shape == (20, 8 + 5)
    assert env.action_space == gymnasium.spaces.Discrete(3 * 20 + 1)


def test_rows_and_masks_follow_the_grants() -> None:
    env = ClusterEnv(two_jobs(), jobs=3, cap=2)
    observation, _ = env.reset(seed=0)
    assert env.types == ("a", "b")
    left = [6000 / 120_000, 24000 / 120_000]  # slots of 1200 s, in hundreds
    expected = np.zeros((3, 7), np.float32)
    expected[:2, :2], expected[:2, 3] = np.eye(2), left
    np.testing.assert_allclose(observation, expected)
    workers = np.array([1, 0, 0, 1, 0, 0, 0, 0, 0, 1], bool)  # nobody has servers, and the third row is empty
    assert (env.action_masks() == workers).all()
    observation, reward, *_ = env.step(3)
    assert reward == 0
    np.testing.assert_allclose(observation[1, -3:], [3 / 4, 1 / 2, 0])  # one of four GPUs, times the rows
    env.step(3)
    workers[3] = False  # at its cap
    assert (env.action_masks() == workers).all()


def test_context_is_the_same_over_a_slot() -> None:
    env, plain = (ClusterEnv(two_jobs(), jobs=3, context=context) for context in (True, False))
    observation, _ = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == (3, 2 + 5 + 3)
    np.testing.assert_allclose(observation[:, :7], plain.reset(seed=0)[0])
    each = [0, 4 / 2 / 16, 64 / 2 / 64]  # two jobs share 4 GPUs and 64 CPUs
    np.testing.assert_allclose(observation[:, 7:], [each, each, [0, 0, 0]], rtol=1e-6)
    observation, *_ = env.step(0)
    plain.step(0)
    np.testing.assert_allclose(observation[:, 7:], [each, each, [0, 0, 0]], rtol=1e-6)
    observation, *_ = env.step(env.action_table.end)
    np.testing.assert_allclose(observation[:, :7], plain.step(plain.action_table.end)[0])
    np.testing.assert_allclose(observation[:2, 7], 1 / 100)  # a slot has passed since they came


def test_context_has_bounds() -> None:
    observation, _ = ClusterEnv("dl2-500", context=True).reset(seed=0)
    assert observation[0, -2:].tolist() == [32 / 16, 128 / 64]  # 1,000 GPUs for a few jobs


def test_what_is_not_there_is_masked() -> None:
    env = ClusterEnv(two_jobs(), jobs=2, cap=8)
    env.reset(seed=0)
    for action in (0, 0, 0, 3):
        assert env.action_masks()[3]
        *_, info = env.step(action)
    assert info["now"] == 1200, "four GPUs are given away: the slot is over"


def test_servers_and_workers() -> None:
    env = ClusterEnv("dl2-testbed", jobs=2)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 3 + [False] * 3 + [True]  # one job has come
    observation, *_ = env.step(2)
    np.testing.assert_allclose(observation[0, -2:], 1 / 16)
    observation, *_ = env.step(1)
    np.testing.assert_allclose(observation[0, -2:], [1 / 16, 2 / 16])
    for _ in range(14):
        env.step(1)
    assert env.action_masks()[:3].tolist() == [True, False, False]


def test_a_job_without_servers_does_not_run() -> None:
    env = ClusterEnv("dl2-testbed", jobs=2)
    env.reset(seed=0)
    env.step(0)
    assert env.step(env.action_table.end)[1] == 0
    env.reset(seed=0)
    env.step(2)
    assert float(env.step(env.action_table.end)[1]) > 0


def test_the_reward_of_a_slot_is_the_progress_in_it() -> None:
    env = ClusterEnv(two_jobs(), jobs=2)
    env.reset(seed=0)
    env.step(0)
    env.step(3)
    assert env.step(env.action_table.end)[1] == pytest.approx(1200 / 6000 + 1200 / 24000)


def test_minus_jobs_in_the_system() -> None:
    env = ClusterEnv(two_jobs(), jobs=2, reward="jobs")
    env.reset(seed=0)
    assert env.step(env.action_table.end)[1] == -2


@pytest.mark.parametrize("mode", ["size", "pick", "joint"])
def test_rewards_add_up(mode: str) -> None:
    scenario = read_scenario("dl2-testbed", quick=True)
    rewards, info = rollout(ClusterEnv(scenario, mode), 1)
    assert sum(rewards) == pytest.approx(info["metrics"]["completed"]) == pytest.approx(15)
    rewards, info = rollout(ClusterEnv(scenario, mode, reward="jct"), 1)
    assert -3600 * sum(rewards) == pytest.approx(15 * info["metrics"]["jct_mean_s"])


def test_more_jobs_than_rows_are_taken_in_batches() -> None:
    jobs = [Job(f"j{i}", 0, 6000, gpus=1, min_gpus=1, max_gpus=2, model="m") for i in range(5)]
    env = ClusterEnv(Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, gpus=16), Settings.ideal()), jobs=2)
    env.reset(seed=0)
    shown, info = [], {}
    while "now" not in info:
        shown.append(int(env.action_masks()[:-1].reshape(2, 3).any(axis=1).sum()))
        env.step(0)
        *_, info = env.step(env.action_table.end)
    assert shown == [2, 2, 1]
    assert env.episodes.host.view.running == 3
