"""The PettingZoo environments: an ordering and a placement agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

sys.path.insert(0, str(Path(__file__).parents[2] / "sim"))

from audit import audit

from argosy import Cluster, Job, Settings, Trace
from argosy.errors import InputError
from argosy.learn.envs.pair import AGENTS, PairAecEnv, PairEnv
from argosy.learn.envs.source import Fixed
from argosy.scenario import read_scenario

SMALL = read_scenario("overload", quick=True)


def source(*jobs: Job, nodes: int = 3) -> Fixed:
    return Fixed(Trace.of_jobs(list(jobs)), Cluster.uniform(nodes, gpus=4), Settings.ideal())


def play(env: PairEnv, seed: int) -> tuple[float, dict[str, Any]]:
    """Random valid actions, ending a decision only when nothing else is possible."""
    rng = np.random.default_rng(0)
    _, infos = env.reset(seed=seed)
    total = 0.0
    while env.agents:
        valid = {a: np.flatnonzero(infos[a]["action_mask"]) for a in AGENTS}
        actions = {a: int(v[int(rng.random() * max(1, len(v) - 1))]) for a, v in valid.items()}
        _, rewards, _, _, infos = env.step(actions)
        assert len(set(rewards.values())) == 1
        total += rewards["order"]
    return total, infos["order"]


def test_parallel_api() -> None:
    parallel_api_test(PairEnv(SMALL, jobs=5), num_cycles=60)
    parallel_seed_test(lambda: PairEnv(SMALL, jobs=5), num_cycles=20)


@pytest.mark.filterwarnings("ignore::UserWarning")  # on names, and that agents see different things
def test_by_turns_api() -> None:
    api_test(PairAecEnv(SMALL, jobs=5), num_cycles=60)
    seed_test(lambda: PairAecEnv(SMALL, jobs=5), num_cycles=20)


@pytest.mark.parametrize("name", ["overload", "mixed", "faulty"])
def test_a_run_that_bears_an_audit(name: str) -> None:
    scenario = read_scenario(name, quick=True)
    env = PairEnv(scenario, jobs=10)
    reward, info = play(env, 1)
    result = env.pair.result()
    assert audit(result, scenario.trace(1), scenario.settings.with_seed(1)) == []
    jct = (result.jobs["finish_s"] - result.jobs["submit_s"]).sum()
    assert -3600 * reward == pytest.approx(jct)
    assert info["metrics"]["unfinished"] == 0


def test_turns_and_nodes() -> None:
    env = PairEnv(source(Job("a", 0, 100, gpus=6), Job("b", 0, 50, gpus=4)), jobs=2)
    _, infos = env.reset(seed=0)
    assert infos["order"]["action_mask"].tolist() == [1, 1, 1]
    assert infos["place"]["action_mask"].tolist() == [0, 0, 0, 1]
    seen, _, _, _, infos = env.step({"order": 0, "place": 3})
    assert infos["order"]["action_mask"].tolist() == [0, 0, 1]
    assert infos["place"]["action_mask"].tolist() == [1, 1, 1, 0]
    np.testing.assert_allclose(seen["place"][0, :6], [1, 1, 1, 1, 6 / 4, 0])
    seen, _, _, _, infos = env.step({"order": 2, "place": 2})
    assert infos["place"]["action_mask"].tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(seen["place"][2, 3:6], [0, 2 / 4, 1])
    _, _, _, _, infos = env.step({"order": 2, "place": 0})  # complete: four on node 2 and two on node 0
    parts = env.pair.episodes.host.engine.parts_of(0)
    assert sorted((p.node, p.devices.bit_count()) for p in parts) == [(0, 2), (2, 4)]
    env.step({"order": 0, "place": 3})
    _, rewards, over, _, _ = env.step({"order": 2, "place": 1})  # the only node with four
    assert over == {"order": True, "place": True}
    assert rewards["place"] == pytest.approx(-(100 + 50) / 3600)


def test_by_turns_only_one_acts() -> None:
    env = PairAecEnv(source(Job("a", 0, 100, gpus=1)), jobs=2)
    env.reset(seed=0)
    assert env.agent_selection == "order"
    env.step(0)
    assert env.agent_selection == "place"
    env.step(1)
    assert env.terminations == {"order": True, "place": True}
    assert env.rewards["order"] == pytest.approx(-100 / 3600)


def test_time_is_told_when_some_has_passed() -> None:
    jobs = source(Job("a", 5, 100, gpus=1), Job("b", 50, 100, gpus=12))
    both, turns = PairEnv(jobs, jobs=2), PairAecEnv(jobs, jobs=2)
    _, infos = both.reset(seed=4)
    turns.reset(seed=4)
    for told in (infos["place"], turns.infos["place"]):
        assert told["now"] == 5.0 and told["trace_seed"] == 4
    for now in (None, 105.0):  # nothing could be chosen when b came
        infos = both.step({"order": 0, "place": 0})[-1]
        turns.step(0)
        for told in (infos["order"], turns.infos["order"]):
            assert told.get("now") == now and "trace_seed" not in told


def test_what_is_cut_off_still_shows_what_comes_next() -> None:
    env = PairEnv(source(Job("a", 0, 100, gpus=1)), jobs=2, max_decisions=1)
    env.reset(seed=0)
    seen, _, _, cut, infos = env.step({"order": 2, "place": 3})
    assert cut["order"] and not env.agents
    assert seen["order"][0].any() and infos["order"]["action_mask"].tolist() == [1, 0, 1]


def test_metrics_can_be_left_out() -> None:
    for wanted in (True, False):
        env = PairEnv(source(Job("a", 0, 100, gpus=1), nodes=1), jobs=2, metrics=wanted)
        env.reset(seed=0)
        env.step({"order": 0, "place": 1})
        *_, infos = env.step({"order": 2, "place": 0})
        assert not env.agents and ("metrics" in infos["order"]) == wanted


def test_masked_and_impossible_actions() -> None:
    env = PairEnv(source(Job("a", 0, 100, gpus=1), nodes=2), jobs=2)
    env.reset(seed=0)
    env.step({"order": 0, "place": 2})
    with pytest.raises(InputError, match="has no action 3"):
        env.step({"order": 2, "place": 3})
    _, _, over, _, _ = env.step({"order": 2, "place": 2})  # stands for node 0
    assert over["order"]
    with pytest.raises(InputError, match="over"):
        env.step({"order": 2, "place": 2})


def test_bad_input() -> None:
    with pytest.raises(InputError, match="parameter servers"):
        PairEnv("dl2-testbed").reset(seed=0)
    with pytest.raises(InputError, match="unknown reward"):
        PairEnv(SMALL, reward="fame")
    with pytest.raises(InputError, match="must be > 0"):
        PairEnv(SMALL, jobs=0)
    env = PairEnv(SMALL)
    env.reset(seed=0)
    with pytest.raises(InputError, match="the agent 'order' must act"):
        env.step({"place": 0})
