"""Follow a registered policy through an environment, action by action."""

from __future__ import annotations

from dataclasses import dataclass

from argosy.errors import InputError
from argosy.learn.envs.cluster import ClusterEnv
from argosy.sim.result import Result


@dataclass(frozen=True)
class Followed:
    """Holds the result of an episode."""

    result: Result
    metrics: dict[str, float]
    reward: float
    steps: int


def follow(env: ClusterEnv, seed: int) -> Followed:
    """Do what the policy under the learner (`under=`) would do; raise an error if the mode cannot express it."""
    env.reset(seed=seed)
    steps, total = 0, 0.0
    while True:
        _, reward, terminated, truncated, info = env.step(env.advice())
        steps, total = steps + 1, total + float(reward)
        if not env.faithful:
            hint = "raise cap, jobs or bids, use the policy's slot_s, or let it decide alone with autopilot=True"
            raise InputError(f"the mode {env.mode} cannot express a decision of this policy", hint=hint)
        if terminated or truncated:
            return Followed(env.result(), info["metrics"], total, steps)
