"""The toolbox on the simulator's own environments: what rewards sum to, whose arrivals they are, and that it learns."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from toolbox_help import actor, critic

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.actor_critic import ActorCritic
from argosy.learn.algorithms.clone import Clone
from argosy.learn.algorithms.collect import Collector, Teaching, episodes
from argosy.learn.algorithms.multi import MAPPO
from argosy.learn.algorithms.ppo import PPO
from argosy.learn.algorithms.returns import Returns
from argosy.learn.algorithms.sac import SAC
from argosy.learn.algorithms.team import TeamCollector
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.pair import PairEnv
from argosy.scenario import read_scenario
from argosy.scenario.scenario import Scenario

INPUTS, ACTIONS = 4 * 13, 13


@cache
def scenario() -> Scenario:
    return read_scenario("dl2-testbed", quick=True)


def cluster(reward: str = "progress") -> ClusterEnv:
    return ClusterEnv(scenario(), jobs=4, under="drf", reward=reward)


def test_progress_sums_to_the_number_of_jobs() -> None:
    got = episodes([cluster()], None, [3], teaching=Teaching(1.0))
    assert got.terminated.tolist()[-1] and got.arrivals.tolist() == [3]
    assert got.totals()[0] == pytest.approx(len(scenario().trace(3)))
    assert (got.reward[~got.passes] == 0.0).all() and (got.dt[~got.passes] == 0.0).all()
    assert (got.reward[got.passes][:-1] >= 0.0).all() and (got.dt[got.passes] > 0.0).all()


def test_hours_sum_to_the_completion_times() -> None:
    env = cluster("jct")
    got = episodes([env], NetworkActs(actor(INPUTS, ACTIONS)), [3])
    jobs = env.result().jobs
    hours = float((jobs["finish_s"] - scenario().trace(3).frame["submit_s"]).sum()) / 3600
    assert got.totals()[0] == pytest.approx(-hours)


def test_rollouts_of_the_same_arrivals_differ_only_by_what_was_decided() -> None:
    act = NetworkActs(actor(INPUTS, ACTIONS), greedy=True)
    got = episodes([cluster(), cluster()], act, [5, 5], slots=20)
    assert np.allclose(Returns(gamma=1.0, baseline="paired")(got).advantage, 0.0)
    act = NetworkActs(actor(INPUTS, ACTIONS))
    got = episodes([cluster(), cluster()], act, [5, 5], slots=20)
    advantage = Returns(gamma=1.0, baseline="paired")(got).advantage
    assert np.abs(advantage).max() > 0.001
    first = got.slot_start[got.time[got.slot_start] == 0.0]
    assert len(first) == 2 and np.array_equal(*got.observation[first])
    assert advantage[first].sum() == pytest.approx(0.0, abs=1e-5)


def test_a_pupil_comes_close_to_its_teacher_step_by_step() -> None:
    policy = actor(INPUTS, ACTIONS)
    lessons = episodes([cluster(), cluster()], None, [1_000_000, 1_000_001], slots=120, teaching=Teaching(1.0))
    first = Clone(policy, steps=1).update(lessons)
    last = Clone(policy, steps=100).update(lessons)
    assert last["accuracy"] > first["accuracy"] + 0.2
    assert last["loss_imitation"] < 0.7 * first["loss_imitation"]


def test_every_learner_takes_whole_slots_of_the_cluster() -> None:
    policy = actor(INPUTS, ACTIONS)
    collector = Collector([cluster(), cluster()], seeds=[1_000_000, 1_000_001])
    act = NetworkActs(policy)
    got = collector.collect(act, slots=3)
    assert np.count_nonzero(got.passes) == 6
    critics = (actor(INPUTS, ACTIONS, seed=1), actor(INPUTS, ACTIONS, seed=2))
    for learner in (
        PPO(policy, critic(INPUTS)),
        ActorCritic(policy, critic(INPUTS)),
        SAC(policy, critics, warm_up=10, batch=32),
    ):
        report = learner.update(collector.collect(act, slots=2))
        assert report["gradient_norm"] > 0.0 and all(np.isfinite(list(report.values())))


def test_a_team_learns_to_order_and_to_place() -> None:
    env = PairEnv("overload", jobs=6)
    sizes = {agent: int(np.prod(env.observation_space(agent).shape or ())) for agent in env.possible_agents}
    actors = {agent: actor(size, int(env.action_space(agent).n)) for agent, size in sizes.items()}  # type: ignore[attr-defined]
    learner = MAPPO(actors, critic(sum(sizes.values())), epochs=1)
    acts = {agent: NetworkActs(net) for agent, net in actors.items()}
    got = TeamCollector([env], seeds=[0]).collect(acts, steps=60)
    busy = got["order"].mask.sum(axis=1) > 1
    assert 0 < np.count_nonzero(busy) < 60  # they take turns
    report = learner.update(got)
    assert {"order/entropy", "place/entropy"} <= report.keys()
