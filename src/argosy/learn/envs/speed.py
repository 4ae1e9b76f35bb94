"""Measure how fast environments are with random valid actions, which cost next to nothing; resets are included."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv
from numpy.typing import NDArray

from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.pair import AGENTS, PairEnv


class Speed(NamedTuple):
    """Counts of what was done, and the time it took."""

    steps: int
    decisions: int
    episodes: int
    seconds: float

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds


def measure(env: ClusterEnv, steps: int = 100_000, seed: int = 0) -> Speed:
    """Measure one process in processor time; a first step, which loads what is needed, does not count."""
    draws = np.random.default_rng(seed).random(steps)
    env.reset(seed=seed)
    env.step(env.action_table.end)
    env.reset(seed=seed)
    decisions = episodes = 0
    began = time.process_time()
    for draw in draws:
        _, _, terminated, truncated, _ = env.step(_any_valid(env.action_masks(), draw))
        if terminated or truncated:
            decisions, episodes = decisions + env.decisions, episodes + 1
            env.reset()
    seconds = time.process_time() - began
    return Speed(steps, decisions + env.decisions, episodes, seconds)


def measure_pair(env: PairEnv, steps: int = 10_000, seed: int = 0) -> Speed:
    """Measure an environment of two agents."""
    rng = np.random.default_rng(seed)
    _, infos = env.reset(seed=seed)
    decisions = episodes = 0
    began = time.process_time()
    for _ in range(steps):
        *_, infos = env.step({agent: _any_valid(infos[agent]["action_mask"], rng.random()) for agent in AGENTS})
        if not env.agents:
            decisions, episodes = decisions + env.pair.episodes.decisions, episodes + 1
            _, infos = env.reset()
    seconds = time.process_time() - began
    return Speed(steps, decisions + env.pair.episodes.decisions, episodes, seconds)


def measure_many(scenario: str, processes: int, rounds: int, seed: int = 0) -> Speed:
    """Measure several processes in lock-step, in wall-clock time; masks are asked for before every step."""
    envs = AsyncVectorEnv([lambda: ClusterEnv(scenario)] * processes, context="spawn")
    try:
        rng = np.random.default_rng(seed)
        envs.reset(seed=seed)
        envs.call("action_masks")
        episodes = 0
        began = time.perf_counter()
        for _ in range(rounds):
            actions = [_any_valid(mask, rng.random()) for mask in envs.call("action_masks")]
            _, _, terminated, truncated, _ = envs.step(np.array(actions))
            episodes += int(np.count_nonzero(terminated | truncated))
        seconds = time.perf_counter() - began
        return Speed(processes * rounds, 0, episodes, seconds)
    finally:
        envs.close()


def _any_valid(mask: NDArray[np.bool_], draw: float) -> int:
    valid = np.flatnonzero(mask)
    return int(valid[int(draw * len(valid))])
