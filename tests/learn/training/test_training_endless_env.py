"""Endless environments can be left at any step and restored there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from recipes_help import tiny_student

from argosy.learn.training.endless_env import EndlessEnv


def walk(env: EndlessEnv, steps: int, draws: np.random.Generator) -> list[float]:
    """Take random steps, and return sums of what was observed."""
    seen = []
    for _ in range(steps):
        action = int(draws.choice(np.flatnonzero(env.action_masks())))
        observation, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
        seen.append(float(observation.sum()) + float(reward))
    return seen


def test_the_middle_of_an_episode_is_found_again(tmp_path: Path) -> None:
    _, cases, student = tiny_student(tmp_path, loads=True)
    one, other = (EndlessEnv(student, cases, 5, 2, "progress") for _ in range(2))
    one.reset()
    draws = np.random.default_rng(0)
    walk(one, 300, draws)
    other.restore(one.state())
    observation, info = other.reset(seed=0)
    assert np.array_equal(observation, one.env._observe())
    assert info["trace_seed"] == one.env.trace_seed
    again = np.random.default_rng(1)
    assert walk(other, 300, again) == walk(one, 300, np.random.default_rng(1))


def test_lanes_meet_different_jobs(tmp_path: Path) -> None:
    _, cases, student = tiny_student(tmp_path)
    lanes = [EndlessEnv(student, cases, 5, lane, "progress") for lane in range(3)]
    assert len({lane.reset()[1]["trace_seed"] for lane in lanes}) == 3
