"""Any registered policy can advise a learner that sizes jobs."""

from __future__ import annotations

import pytest

from argosy import Cluster, Job, Settings, Trace
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Fixed
from argosy.policies.base import POLICIES
from argosy.scenario import read_scenario

HEAVY = read_scenario("dl2-heavy", quick=True)


@pytest.mark.parametrize("policy", sorted(name for name in POLICIES if "bid" not in POLICIES[name].answers))
def test_advice_is_always_possible(policy: str) -> None:
    env = ClusterEnv(HEAVY, jobs=10, under=policy, types=("resnet50",), max_decisions=100, metrics=False, strict=True)
    env.reset(seed=1)
    progress, over = 0.0, False
    for _ in range(300):
        if over:
            env.reset(seed=2)
        _, reward, terminated, truncated, _ = env.step(env.advice())
        progress, over = progress + float(reward), terminated or truncated
    assert progress > 0.0


def held(env: ClusterEnv, decisions: int = 1) -> list[int]:
    """Return the GPUs of the jobs, in order of arrival, after a number of decisions that follow the advice."""
    env.reset(seed=0)
    while env.decisions < decisions:
        env.step(env.advice())
    jobs = env.episodes.host.view.jobs
    return [int(jobs.held[jobs.index == i].sum()) for i in range(len(env.episodes.trace(0)))]


def wants(policy: str, *jobs: Job, decisions: int = 1, cap: int = 16) -> list[int]:
    """Return the same for a cluster of four GPUs."""
    source = Fixed(Trace.of_jobs(list(jobs)), Cluster.uniform(1, gpus=4), Settings.ideal())
    return held(ClusterEnv(source, under=policy, cap=cap), decisions)


def job(name: str, gpus: int, hours: float = 10.0, submitted: float = 0.0) -> Job:
    return Job(name, submitted, 3600 * hours, gpus=gpus, min_gpus=1, max_gpus=4)


@pytest.mark.parametrize(
    ("policy", "gpus"),
    [("fifo", [3, 0, 0]), ("fifo-backfill", [3, 0, 1]), ("srtf", [0, 2, 1]), ("gavel-fifo", [3, 0, 0])],
)
def test_what_was_asked_for_in_the_policy_s_order(policy: str, gpus: list[int]) -> None:
    assert wants(policy, job("a", 3, 30), job("b", 2, 20), job("c", 1, 40)) == gpus


@pytest.mark.parametrize(("policy", "gpus"), [("sjf", [3, 0]), ("srtf", [0, 3])])
def test_who_runs_goes_on_unless_the_policy_preempts(policy: str, gpus: list[int]) -> None:
    assert wants(policy, job("long", 3, 30), job("short", 3, 10, submitted=600), decisions=2) == gpus


def test_nobody_is_advised_more_than_the_cap() -> None:
    assert wants("fifo", job("a", 4), job("b", 1), job("c", 1), cap=2) == [2, 1, 1]


def test_a_planner_starts_jobs_as_asked_and_then_lets_them_grow() -> None:
    jobs = job("a", 1), job("b", 1)
    assert wants("gandiva", *jobs) == [1, 1]
    assert sum(wants("gandiva", *jobs, decisions=2)) > 2


def test_jobs_that_a_planner_lets_take_turns_share() -> None:
    assert sorted(wants("gandiva", job("a", 4), job("b", 4))) == [2, 2]


def test_turns_of_another_slot_are_not_followed() -> None:
    env = ClusterEnv(HEAVY, under="frontier:slot_s=7200:newcomers=wait", strict=True, metrics=False)
    env.reset(seed=1)
    for _ in range(300):
        env.step(env.advice())
    assert env.decisions > 6 and env.faithful
