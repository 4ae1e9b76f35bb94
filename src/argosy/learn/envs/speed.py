"""Measure how fast environments are with random valid actions, which take hardly any time; resets count apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv
from numpy.typing import NDArray

from argosy.learn.envs.bid_pair import BidPairEnv
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.pair import PairEnv


class Speed(NamedTuple):
    """Holds the counts of a measurement, and the time that it took."""

    steps: int
    decisions: int
    episodes: int
    seconds: float  # of all steps
    reset_s: float = 0.0  # of all resets: generating jobs and setting up runs

    @property
    def steps_per_s(self) -> float:
        """Return the steps per second, apart from resets."""
        return self.steps / self.seconds

    @property
    def steps_per_s_with_resets(self) -> float:
        """Return the steps per second of whole episodes."""
        return self.steps / (self.seconds + self.reset_s)


class _Clock:
    """Counts processor time of steps and of resets apart, and the episodes and decisions."""

    def __init__(self) -> None:
        self.decisions = self.episodes = 0
        self.reset_s, self._began = 0.0, time.process_time()

    def new_episode(self, decisions: int, reset: Callable[[], Any]) -> Any:
        self.decisions, self.episodes = self.decisions + decisions, self.episodes + 1
        began = time.process_time()
        found = reset()
        self.reset_s += time.process_time() - began
        return found

    def stop(self, steps: int, decisions: int) -> Speed:
        seconds = time.process_time() - self._began - self.reset_s
        return Speed(steps, self.decisions + decisions, self.episodes, seconds, self.reset_s)


def measure(env: ClusterEnv, steps: int = 100_000, seed: int = 0) -> Speed:
    """Measure one process in processor time, after a warm-up step that does not count."""
    rng = np.random.default_rng(seed)
    draws = rng.random(steps).tolist()
    values = rng.standard_normal((64, *(env.action_space.shape or ()))) if env.mode == "bid" else None
    env.reset(seed=seed)
    env.step(env.action_table.idle())
    env.reset(seed=seed)
    clock = _Clock()
    for number, draw in enumerate(draws):
        action = _any_valid(env.action_masks(), draw) if values is None else values[number % len(values)]
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            clock.new_episode(env.decisions, env.reset)
    return clock.stop(steps, env.decisions)


def measure_pair(env: PairEnv, steps: int = 10_000, seed: int = 0) -> Speed:
    """Measure an environment of two agents."""
    draws = np.random.default_rng(seed).random(steps).tolist()
    _, infos = env.reset(seed=seed)
    clock = _Clock()
    idle = {agent: len(mask) - 1 for agent, mask in env.pair.masks.items()}  # of the agent whose turn it is not
    for draw in draws:
        acting = env.pair.acting
        *_, infos = env.step({**idle, acting: _any_valid(infos[acting]["action_mask"], draw)})
        if not env.agents:
            _, infos = clock.new_episode(env.pair.episodes.decisions, env.reset)
    return clock.stop(steps, env.pair.episodes.decisions)


def measure_bid_pair(env: BidPairEnv, steps: int = 1_000, seed: int = 0) -> Speed:
    """Measure two agents that value jobs and their bids."""
    rng = np.random.default_rng(seed)
    shapes = {agent: env.action_space(agent).shape or () for agent in env.possible_agents}
    values = [{agent: rng.standard_normal(shape, np.float32) for agent, shape in shapes.items()} for _ in range(64)]
    env.reset(seed=seed)
    clock = _Clock()
    for number in range(steps):
        env.step(values[number % len(values)])
        if not env.agents:
            clock.new_episode(env.episodes.decisions, env.reset)
    return clock.stop(steps, env.episodes.decisions)


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
    valid = mask.nonzero()[0]
    return int(valid[int(draw * len(valid))])
