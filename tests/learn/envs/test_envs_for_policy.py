"""Shipped weights decide in the environment as they do in `simulate`, decision by decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.for_policy import env_for
from argosy.learn.envs.source import Fixed, Source
from argosy.policies.base import Floats, Sizes, create
from argosy.policies.learned.sizer import UnitSizer
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.result import Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

SEED = 1
Decision = tuple[float, list[int], list[int], list[int], list[int]]  # when; jobs, in which order, workers, servers


def decision(view: View, key: Floats, sizes: Sizes) -> Decision:
    assert sizes.servers is not None
    jobs = np.argsort(view.jobs.index)
    order = np.lexsort((view.jobs.index, key))
    gets = sizes.workers[jobs] > 0
    served = view.jobs.index[order][sizes.workers[order] > 0]
    return (
        view.now,
        view.jobs.index[jobs].tolist(),
        served.tolist(),
        sizes.workers[jobs].tolist(),
        (sizes.servers[jobs] * gets).tolist(),
    )


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Decision]:
    """Return all answers that an engine carries out; if one is replaced before the clock moves, the last one."""
    found: list[Decision] = []
    decide = Engine.decide

    def noted(engine: Engine, key: Floats, sizes: Sizes, wake_at: float | None = None) -> None:
        if len(engine.view.jobs):
            answer = decision(engine.view, key, sizes)
            if found and found[-1][0] == answer[0]:
                found.pop()
            found.append(answer)
        decide(engine, key, sizes, wake_at)

    monkeypatch.setattr(Engine, "decide", noted)
    return found


def simulated(policy: UnitSizer, source: Source) -> Result:
    return Engine(source.trace(SEED), source.cluster, policy, source.settings.with_seed(SEED)).run()


def driven(policy: UnitSizer, source: Source, jobs: int | None) -> Result:
    """A run in the environment, whose steps are chosen by the policy's network from what it is shown."""
    env = env_for(policy, source, jobs=jobs, strict=True)
    observation, _ = env.reset(seed=SEED)
    over = False
    while not over:
        observation, _, over, truncated, _ = env.step(policy.network.choose(observation, env.action_masks()))
        assert not truncated
    return env.result()


def assert_same(decisions: list[Decision], policy: str, source: Source, jobs: int | None = None) -> list[Decision]:
    sizer = create(policy)
    assert isinstance(sizer, UnitSizer)
    result = simulated(sizer, source)
    expected = decisions.copy()
    decisions.clear()
    same = driven(sizer, source, jobs)
    for ours, theirs in zip(decisions, expected, strict=True):
        assert ours == theirs
    assert same.events.equals(result.events)
    decisions.clear()
    return expected


@pytest.mark.parametrize("newcomers", ["wait", "start"])
@pytest.mark.parametrize("scenario", ["dl2-testbed", "dl2-100", "dl2-heavy"])
@pytest.mark.parametrize(("policy", "jobs"), [("dl2", None), ("dl2+", 120)])
def test_decisions_are_those_of_simulate(
    decisions: list[Decision], policy: str, jobs: int | None, scenario: str, newcomers: str
) -> None:
    made = assert_same(decisions, f"{policy}:newcomers={newcomers}", read_scenario(scenario, quick=True), jobs)
    assert len(made) > 20
    assert any(workers > 1 for _, _, _, sizes, _ in made for workers in sizes)


@pytest.mark.parametrize("newcomers", ["wait", "start"])
@pytest.mark.parametrize("policy", ["dl2", "dl2+"])
def test_guard_and_jobs_of_one_size(decisions: list[Decision], policy: str, newcomers: str) -> None:
    """Too many jobs for too few GPUs, some with one size, some that come between two time slots."""
    jobs = [
        Job(
            f"j{i}",
            500.0 * i,
            9000.0 + 700.0 * (i % 5),
            1 + i % 2,
            model="resnet-50",
            min_gpus=1 if i % 3 else None,
            max_gpus=4 if i % 3 else None,
        )
        for i in range(24)
    ]
    source = Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, 4), Settings())
    rows, spec = 24 if policy == "dl2+" else None, f"{policy}:newcomers={newcomers}"
    guarded = assert_same(decisions, f"{spec}:guard=3", source, rows)
    free = assert_same(decisions, f"{spec}:guard=30", source, rows)
    assert guarded != free


def test_who_does_not_run_may_only_have_the_smallest_size() -> None:
    policy = create("dl2+")
    env = env_for(policy, read_scenario("dl2-testbed", quick=True))
    env.reset(seed=SEED)
    assert env.action_masks()[:3].tolist() == [False, False, True]
    assert not env.action_masks()[-1], "there is room for one more job"
    env.step(2)
    assert env.action_masks()[-1]


def test_rules_and_policies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="has no network"):
        env_for(create("drf"), "dl2-testbed")
    policy = create("dl2")
    assert isinstance(policy, UnitSizer)
    with pytest.raises(InputError, match="rules is for the mode 'size'"):
        ClusterEnv("dl2-testbed", "pick", rules=replace(policy.rules, guard=3.0))
