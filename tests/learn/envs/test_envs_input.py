"""The Gymnasium environment: registration, seeds, episodes that are cut off, and what it makes of bad input."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_help import rollout, two_jobs

from argosy import Cluster, Job, Settings, Trace
from argosy._gymnasium import ENVIRONMENT
from argosy.errors import InputError, UnknownName
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Fixed


def test_gymnasium_finds_it() -> None:
    env = gymnasium.make(ENVIRONMENT, scenario="dl2-testbed", mode="pick")
    observation, info = env.reset(seed=3)
    assert observation.shape == (40, 13)
    assert info == {"trace_seed": 3, "now": 0.0}
    assert isinstance(gymnasium.make("argosy:argosy/Cluster-v0", scenario="dl2-testbed").unwrapped, ClusterEnv)


@pytest.mark.parametrize(
    "imports",
    [
        "import gymnasium, argosy",
        "import argosy, gymnasium",
        "import argosy, importlib.util; importlib.util.find_spec('gymnasium'); import gymnasium",
        "import argosy.cli.main, gymnasium.spaces; import argosy",
    ],
)
def test_the_order_of_imports_does_not_matter(imports: str) -> None:
    code = f"{imports}; print(gymnasium.spec('{ENVIRONMENT}').entry_point)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "argosy.learn.envs.cluster:ClusterEnv\n"


def test_argosy_itself_loads_neither_gymnasium_nor_numpy() -> None:
    code = "import argosy, argosy.cli.main, sys; sys.exit(bool({'gymnasium', 'numpy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_gymnasium_argosy_works() -> None:
    hidden = "import sys; sys.modules['gymnasium'] = None; del sys.modules['gymnasium']"
    code = f"""{hidden}
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'gymnasium':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nowhere())
import argosy
print(argosy.Cluster.uniform(2, 4).total_gpus)
try:
    import gymnasium
except ModuleNotFoundError:
    print("no gymnasium")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["8", "no gymnasium"]


def test_seeds_and_options() -> None:
    env = ClusterEnv("dl2-testbed")
    once, again = rollout(env, 5, limit=300)[0], rollout(env, 5, limit=300)[0]
    assert once == again
    _, info = env.reset(seed=5, options={"trace_seed": 9})
    assert info["trace_seed"] == 9
    drawn = [env.reset()[1]["trace_seed"] for _ in range(3)]
    assert all(1_000_000 <= seed < 2_000_000 for seed in drawn), "what is trained on is not what is judged on"
    env.reset(seed=5)
    assert [env.reset()[1]["trace_seed"] for _ in range(3)] == drawn


def test_looking_at_the_result_changes_nothing() -> None:
    env = ClusterEnv("dl2-testbed")
    undisturbed = rollout(env, 5, limit=400)[0]
    env.reset(seed=5)
    rng = np.random.default_rng(0)
    for expected in undisturbed:
        action = rng.choice(np.flatnonzero(env.action_masks()))
        assert env.step(action)[1] == expected
        if expected:
            assert env.result().jobs.height == 30


def test_an_agent_that_gives_nothing_is_cut_off() -> None:
    env = ClusterEnv(two_jobs(), max_decisions=7)
    env.reset(seed=0)
    for _ in range(6):
        assert not any(env.step(env.action_table.end)[2:4])
    observation, _, terminated, truncated, info = env.step(env.action_table.end)
    assert truncated and not terminated
    assert observation[:2].any(axis=1).all() and env.action_masks()[:6].tolist() == [True, False, False] * 2
    assert info["metrics"]["unfinished"] == 2
    for call in (lambda: env.step(env.action_table.end), env.advice):
        with pytest.raises(InputError, match="over"):
            call()


def test_an_episode_that_has_ended_shows_nothing() -> None:
    env = ClusterEnv(two_jobs(), jobs=2, under="drf")
    env.reset(seed=0)
    terminated = False
    while not terminated:
        observation, _, terminated, *_ = env.step(env.advice())
    assert not observation.any() and env.action_masks().tolist() == [False] * 6 + [True]


def test_time_is_told_from_the_first_decision_on() -> None:
    late = Fixed(Trace.of_jobs([Job("a", 700, 600, gpus=1, max_gpus=2)]), Cluster.uniform(1, gpus=4), Settings.ideal())
    env = ClusterEnv(late, jobs=1)
    assert env.reset(seed=0)[1] == {"trace_seed": 0, "now": 700.0}
    assert env.step(0)[4] == {}
    assert env.step(env.action_table.end)[4]["now"] == 1200.0


def test_metrics_can_be_left_out() -> None:
    env = ClusterEnv(two_jobs(), max_decisions=1, metrics=False)
    env.reset(seed=0)
    info = env.step(env.action_table.end)[4]
    assert info["now"] == 1200.0 and "metrics" not in info


def test_each_step_is_credited_with_what_its_own_batch_of_jobs_has_gained() -> None:
    env = ClusterEnv(two_jobs(), jobs=1)
    env.reset(seed=0)
    credits, total, over = [], 0.0, False
    while not over:
        grant = int(np.flatnonzero(env.action_masks())[0])
        _, reward, terminated, truncated, info = env.step(grant)
        total += float(reward)
        if "credit" in info:
            credits.append(info["credit"])
        over = terminated or truncated
    first = credits[0]
    assert sorted(set(first)) != [first[0]]  # two batches of one job each, with different gains
    shares = [part for slot in credits for part in dict.fromkeys(slot)]
    assert sum(shares) == pytest.approx(total) == pytest.approx(2.0)


def test_a_masked_action_ends_the_slot_or_is_an_error() -> None:
    env = ClusterEnv(two_jobs(), jobs=2)
    env.reset(seed=0)
    *_, info = env.step(1)
    assert info["refused"] and info["now"] == 1200
    strict = ClusterEnv(two_jobs(), jobs=2, strict=True)
    strict.reset(seed=0)
    with pytest.raises(InputError, match="not possible now"):
        strict.step(1)


@pytest.mark.parametrize("action", [-1, 7])
def test_an_action_that_does_not_exist(action: int) -> None:
    env = ClusterEnv(two_jobs(), jobs=2)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"actions are 0\.\.6"):
        env.step(action)


@pytest.mark.parametrize("mode", ["size", "pick", "joint"])
def test_every_mask_has_the_size_of_the_space_and_a_way_out(mode: str) -> None:
    env = ClusterEnv("dl2-testbed", mode, jobs=4)
    env.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(200):
        mask = env.action_masks()
        assert mask.shape == (env.action_space.n,) and mask.dtype == np.bool_  # type: ignore[attr-defined]
        assert mask[-1], "ending the decision is always possible"
        rows = mask[:-1].reshape(4, -1)
        assert not rows[~env.action_table.observation.any(axis=1)].any(), "an empty row has no actions"
        if any(env.step(rng.choice(np.flatnonzero(mask)))[2:4]):
            env.reset()


def test_unknown_scenario() -> None:
    with pytest.raises(UnknownName, match="dl2-501"):
        ClusterEnv("dl2-501")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scenario": "philly-rigid"}, "no elastic jobs"),
        ({"mode": "guess"}, "unknown mode 'guess'"),
        ({"reward": "fame"}, "unknown reward 'fame'"),
        ({"jobs": 0}, "jobs must be > 0"),
        ({"cap": -1}, "cap must be > 0"),
        ({"slot_s": float("inf")}, "slot_s must be > 0"),
        ({"max_decisions": 0}, "max_decisions must be > 0"),
        ({"seeds": (3, 3)}, "seeds must be two numbers"),
        ({"types": ()}, "types must be"),
        ({"types": ("a", "a")}, "types must be"),
        ({"autopilot": True}, "autopilot needs a policy"),
        ({"mode": "pick", "context": True}, "context is for the mode 'size'"),
        ({"under": "no-such-policy"}, "unknown policy"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClusterEnv(**{"scenario": "dl2-testbed", **arguments})


def test_bad_options() -> None:
    env = ClusterEnv("dl2-testbed")
    with pytest.raises(InputError, match="unknown option 'sede'"):
        env.reset(options={"sede": 1})
    with pytest.raises(InputError, match="trace_seed must be ≥ 0"):
        env.reset(options={"trace_seed": -1})


@pytest.mark.parametrize(("policy", "message"), [("srtf", "preempts"), ("drf", "resizes"), ("gandiva", "at once")])
def test_policies_that_leave_no_choice(policy: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClusterEnv(two_jobs(), "pick", under=policy).reset(seed=0)


def test_before_the_first_reset() -> None:
    env = ClusterEnv(two_jobs())
    with pytest.raises(InputError, match="has not begun"):
        env.step(0)
    with pytest.raises(InputError, match="no run yet"):
        env.result()
