"""The modes "pick" and "joint": a pick starts a job at once, and no job starts without one."""

from __future__ import annotations

import numpy as np
import pytest
from envs_help import two_jobs

from argosy import Cluster, Job, Settings, Trace
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Fixed


def source(*jobs: Job, nodes: int = 1, gpus: int = 4) -> Fixed:
    return Fixed(Trace.of_jobs(list(jobs)), Cluster.uniform(nodes, gpus=gpus), Settings.ideal())


def test_an_idle_picker_is_asked_again() -> None:
    env = ClusterEnv(two_jobs(), "pick")
    env.reset(seed=0)
    _, _, terminated, _, info = env.step(env.action_table.end)
    assert not terminated and info["now"] == 1200


def test_rows_show_what_is_left_after_a_pick() -> None:
    env = ClusterEnv(source(Job("a", 0, 3600, gpus=3), Job("b", 0, 7200, gpus=2), Job("c", 0, 36000, gpus=1)), "pick")
    observation, _ = env.reset(seed=0)
    np.testing.assert_allclose(observation[:4, 2], np.array([1, 2, 10, 0]) / 100)  # hours expected, in hundreds
    np.testing.assert_allclose(observation[:3, -1], 3 / 40)
    assert env.action_masks()[:4].tolist() == [True, True, True, False]
    observation, *_ = env.step(0)
    np.testing.assert_allclose(observation[:2, -2], 1 / 4)
    np.testing.assert_allclose(observation[:3, 2], np.array([2, 10, 0]) / 100)
    assert env.action_masks()[:3].tolist() == [False, True, False]
    *_, info = env.step(1)
    assert info["now"] == 3600, "four GPUs are taken: nothing to choose before a ends"
    np.testing.assert_allclose(env.action_table.observation[0, 1:3], [1 / 100, 2 / 100])  # b has waited for an hour


def test_a_job_that_finds_no_room_is_not_offered_again() -> None:
    """Two GPUs are free, on two nodes: enough by the totals, and not for a job that wants them on one."""
    jobs = [Job(f"wide{i}", 0, 1000, gpus=3) for i in range(2)] + [Job("tight", 0, 100, gpus=2), Job("one", 0, 50, 1)]
    settings = Settings.ideal(consolidation="strict")
    env = ClusterEnv(Fixed(Trace.of_jobs(jobs), Cluster.uniform(2, gpus=4), settings), "pick", jobs=4)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    assert env.action_masks().tolist() == [True, True, False, False, True]
    *_, info = env.step(0)
    assert info == {}, "it is still the same decision"
    assert env.action_masks().tolist() == [False, True, False, False, True]
    assert env.episodes.host.view.jobs.held.tolist() == [3, 3, 0, 0]
    *_, info = env.step(1)
    assert info["now"] == 50, "something has happened: it may be tried again"
    assert env.action_masks().tolist() == [True, False, False, False, True]


def test_joint_sizes() -> None:
    env = ClusterEnv(two_jobs(), "joint", jobs=2, cap=4)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 6 + [True]  # 1, 2 and 3 GPUs
    env.step(2)
    assert env.action_masks().tolist() == [True] + [False] * 5 + [True]  # B alone, and one GPU is left
    assert env.episodes.host.view.jobs.held[0] == 3


def test_nobody_is_asked_while_the_cluster_is_full() -> None:
    jobs = [Job("big", 0, 1000, gpus=4), *(Job(f"j{i}", 10 * i, 50, gpus=2) for i in range(1, 6))]
    env = ClusterEnv(source(*jobs), "pick", reward="jct")
    env.reset(seed=0)
    *_, info = env.step(0)
    assert info["now"] == 1000, "five arrivals, and nothing to choose"
    assert env.action_masks()[:6].tolist() == [True] * 5 + [False]


@pytest.mark.parametrize("mode", ["pick", "joint"])
def test_shares_and_jobs_without_gpus_can_be_picked(mode: str) -> None:
    env = ClusterEnv(source(Job("cpu", 0, 60, gpus=0, cpus=2), Job("half", 0, 60, gpus=0.5)), mode, jobs=2, cap=1)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 3
    env.step(0)
    _, _, terminated, _, info = env.step(0)
    assert terminated and info["metrics"]["completed"] == 2 and info["metrics"]["makespan_s"] == 60
