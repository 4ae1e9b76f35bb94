"""Helpers that the tests of the environments share."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy import Cluster, Job, Settings, Trace
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Fixed


def two_jobs() -> Fixed:
    """On four GPUs; at one GPU, their size, A takes 6,000 s and B 24,000 s."""
    jobs = [
        Job("A", 0, 6000, gpus=1, min_gpus=1, max_gpus=3, model="a"),
        Job("B", 0, 24000, gpus=1, min_gpus=1, max_gpus=3, model="b"),
    ]
    return Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, gpus=4), Settings.ideal())


def rollout(env: ClusterEnv, seed: int | None, draw: int = 0, limit: int = 10**9) -> tuple[list[float], dict[str, Any]]:
    """Rewards of random valid actions, and the last info."""
    rng = np.random.default_rng(draw)
    env.reset(seed=seed)
    rewards: list[float] = []
    info: dict[str, Any] = {}
    while len(rewards) < limit:
        action = rng.choice(np.flatnonzero(env.action_masks()))
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        rewards.append(float(reward))
        if terminated or truncated:
            break
    return rewards, info
