"""A registered policy driven through an environment, action by action."""

from __future__ import annotations

from dataclasses import dataclass

from argosy.errors import InputError
from argosy.learn.envs.cluster import ClusterEnv
from argosy.sim.result import Result


@dataclass(frozen=True)
class Followed:
    """What came of it."""

    result: Result
    metrics: dict[str, float]
    reward: float
    steps: int


def follow(env: ClusterEnv, seed: int) -> Followed:
    """Do what the policy under the learner (`under=`) would do; refuses where the mode can not say it."""
    env.reset(seed=seed)
    steps, total = 0, 0.0
    while True:
        _, reward, terminated, truncated, info = env.step(env.advice())
        steps, total = steps + 1, total + float(reward)
        if not env.faithful:
            hint = "raise cap or jobs, match slot_s, or let it drive with autopilot=True"
            raise InputError(f"the mode {env.mode} can not express a decision of this policy", hint=hint)
        if terminated or truncated:
            return Followed(env.result(), info["metrics"], total, steps)
