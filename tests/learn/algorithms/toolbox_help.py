"""Small networks, rollouts made by hand, and comparisons for the tests of the learning toolbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import episodes
from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.algorithms.toy_envs import Queue

torch.set_num_threads(1)


def actor(inputs: int, actions: int, *, seed: int = 0, hidden: int = 32) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, actions))


def critic(inputs: int, *, seed: int = 1, hidden: int = 32) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1), nn.Flatten(0))


def weights(*networks: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for network in networks for p in network.parameters()]


def same(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Return whether two states are equal, bit by bit."""
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right))


def score(network: nn.Module, make: Callable[[], Any] = Queue, count: int = 20) -> float:
    """The mean total of unseen episodes, with the best actions."""
    envs = [make() for _ in range(count)]
    seeds = range(1000, 1000 + count)
    return float(episodes(envs, NetworkActs(network, greedy=True), list(seeds)).totals().mean())


def rollout(
    rewards: Sequence[float],
    passes: Sequence[bool],
    *,
    ends: Sequence[str] = (),
    dt: float = 1.0,
    arrivals: Sequence[int] = (0,),
) -> Rollout:
    """Make a rollout: `ends[i]` is "" within an episode, "end" where it terminates, "cut" where it is truncated."""
    n = len(rewards)
    ends = ends or [*[""] * (n - 1), "end"]
    last = np.array([bool(e) for e in ends])
    episode = np.concatenate(([0], np.cumsum(last[:-1])))
    step = np.where(passes, dt, 0.0)
    time = np.concatenate(([0.0], np.cumsum(step)[:-1]))
    time -= np.concatenate([time[episode == e] * 0 + time[episode == e][0] for e in range(int(episode[-1]) + 1)])
    count = int(episode[-1]) + 1
    return Rollout(
        observation=np.arange(n, dtype=np.float32)[:, None],
        mask=np.ones((n, 2), bool),
        action=np.zeros(n, np.int64),
        log_prob=np.zeros(n, np.float32),
        reward=np.array(rewards, float),
        terminated=np.array([e == "end" for e in ends]),
        truncated=np.array([e == "cut" for e in ends]),
        passes=np.array(passes, bool),
        time=time,
        dt=step,
        advice=np.full(n, -1),
        episode=episode,
        credit=np.full(n, np.nan),
        final_observation=np.full((count, 1), 100.0, np.float32),
        final_mask=np.ones((count, 2), bool),
        arrivals=np.array(arrivals, np.int64),
    )
