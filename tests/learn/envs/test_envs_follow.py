"""A policy in the environment does what it does in `simulate`, to the second."""

from __future__ import annotations

import pytest

from argosy import simulate
from argosy.errors import InputError
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.follow import follow
from argosy.scenario import Scenario, read_scenario
from argosy.sim.result import Result

SEED = 2


def simulated(scenario: Scenario, policy: str) -> Result:
    settings = scenario.settings.with_seed(SEED)
    return simulate(scenario.trace(SEED), scenario.cluster, scenario.spec(policy), settings)


def assert_same(env: ClusterEnv, scenario: Scenario, policy: str) -> None:
    followed, expected = follow(env, SEED), simulated(scenario, policy)
    assert followed.result.jobs["finish_s"].to_list() == expected.jobs["finish_s"].to_list()
    assert followed.result.jobs["submit_s"].to_list() == expected.jobs["submit_s"].to_list()
    assert followed.reward == pytest.approx(len(expected.jobs))


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        ("drf", 3),
        ("drf:stop_at_refusal=yes", 30),
        ("optimus", 30),
        ("gavel-max-min", 30),  # it says nothing of servers, and decides between slots too
        ("optimus:speeds=profile:work=estimate:per_dominant=no:stop_at_refusal=yes:newcomers=wait", 3),
    ],
)
def test_sizing(policy: str, rows: int) -> None:
    scenario = read_scenario("dl2-testbed", quick=True)
    assert_same(ClusterEnv(scenario, jobs=rows, under=policy), scenario, policy)


@pytest.mark.parametrize("rows", [5, 40])
def test_turns_that_a_policy_tells(rows: int) -> None:
    scenario = read_scenario("dl2-heavy", quick=True)
    assert_same(ClusterEnv(scenario, jobs=rows, under="frontier"), scenario, "frontier")


@pytest.mark.slow
def test_sizing_on_500_nodes() -> None:
    scenario = read_scenario("dl2-500")
    assert_same(ClusterEnv(scenario, under="drf"), scenario, "drf")


@pytest.mark.parametrize("policy", ["fifo", "sjf", "fifo-backfill"])
@pytest.mark.parametrize("name", ["overload", "mixed", "faulty"])
def test_picking(name: str, policy: str) -> None:
    scenario = read_scenario(name, quick=True)
    assert_same(ClusterEnv(scenario, "pick", jobs=250, under=policy), scenario, policy)


@pytest.mark.parametrize(
    ("policy", "mode"),
    [("srtf", "size"), ("las", "pick"), ("gandiva", "pick"), ("optimus", "size"), ("tiresias-las", "size")],
)
def test_autopilot(policy: str, mode: str) -> None:
    scenario = read_scenario("mixed", quick=True)
    assert_same(ClusterEnv(scenario, mode, under=policy, autopilot=True), scenario, policy)


def test_what_a_mode_cannot_say_is_refused() -> None:
    scenario = read_scenario("dl2-testbed", quick=True)
    with pytest.raises(InputError, match="cannot express"):
        follow(ClusterEnv(scenario, cap=4, under="drf"), SEED)
    with pytest.raises(InputError, match="cannot express"):
        follow(ClusterEnv(scenario, under="srtf"), SEED)
    with pytest.raises(InputError, match="not among the"):
        follow(ClusterEnv(read_scenario("overload", quick=True), "pick", jobs=2, under="sjf"), SEED)
    with pytest.raises(InputError, match="no policy to follow"):
        follow(ClusterEnv(scenario), SEED)
