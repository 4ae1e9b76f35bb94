"""The environments pass the checks of the libraries that they are made for, and work with them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv

from argosy._gymnasium import ENVIRONMENT
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.pair import PairEnv
from argosy.learn.envs.speed import measure, measure_pair

MODES = pytest.mark.parametrize("mode", ["size", "pick", "joint"])


@MODES
def test_gymnasium_is_content(mode: str) -> None:
    check_env(gymnasium.make(ENVIRONMENT, scenario="dl2-testbed", mode=mode).unwrapped)


@pytest.mark.slow
@MODES
def test_stable_baselines_is_content(mode: str) -> None:
    from stable_baselines3.common.env_checker import check_env as check

    check(ClusterEnv("dl2-testbed", mode, flat=True, context=mode == "size"))


@pytest.mark.slow
def test_maskable_ppo_keeps_to_the_masks() -> None:
    from sb3_contrib import MaskablePPO

    env = gymnasium.make(ENVIRONMENT, scenario="dl2-testbed", flat=True, jobs=8, strict=True)  # others are an error
    model = MaskablePPO("MlpPolicy", env, n_steps=256, batch_size=64, n_epochs=2, seed=0, device="cpu")
    model.learn(512)
    observation, _ = env.reset(seed=0)
    masks = env.get_wrapper_attr("action_masks")()
    action, _ = model.predict(observation, action_masks=masks)
    assert model.num_timesteps == 512 and masks[action]


@pytest.mark.slow
def test_several_processes_do_what_one_does() -> None:
    envs = AsyncVectorEnv([lambda: ClusterEnv("dl2-testbed", jobs=5)] * 2, context="spawn")
    alone = [ClusterEnv("dl2-testbed", jobs=5) for _ in range(2)]
    rng = np.random.default_rng(0)
    try:
        observations, info = envs.reset(seed=7)
        assert info["trace_seed"].tolist() == [7, 8]
        np.testing.assert_array_equal(observations, [env.reset(seed=7 + i)[0] for i, env in enumerate(alone)])
        for _ in range(60):
            masks = envs.call("action_masks")
            actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
            observations, rewards, *_ = envs.step(actions)
            expected = [env.step(action) for env, action in zip(alone, actions)]
            np.testing.assert_array_equal(observations, [step[0] for step in expected])
            assert rewards.tolist() == [step[1] for step in expected]
    finally:
        envs.close()


def test_speed_counts_what_it_did() -> None:
    speed = measure(ClusterEnv("dl2-testbed", "pick"), 200)
    assert speed.steps == 200 and 0 < speed.decisions <= 200 and speed.episodes >= 1 and speed.steps_per_s > 0
    assert measure_pair(PairEnv("overload"), 20).steps == 20
