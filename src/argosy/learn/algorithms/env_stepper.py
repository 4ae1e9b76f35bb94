"""Step one environment, and keep its observation, its mask, its time and the steps taken so far.

Any Gymnasium environment with discrete actions will do. The possible actions are those of `action_masks()`, or of
`info["action_mask"]`; without either, all are possible. An environment whose `reset` reports the time (`info["now"]`),
or the seed of its trace (`info["trace_seed"]`), is *timed*: time passes only after the steps whose info has the time.
In all others each step takes one unit of time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.learn.algorithms.record import Record, Step
from argosy.learn.algorithms.rollout import Rollout


class EnvStepper:
    """Steps one environment and records its steps."""

    def __init__(self, env: Any, timed: bool | None = None) -> None:
        self.env = env
        self._masks, self._advice = attribute(env, "action_masks"), attribute(env, "advice")
        self._declared = timed
        self.record = Record()
        self.over = True  # no episode has begun

    def reset(self, seed: int | None = None) -> None:
        """Begin a new episode, with this seed or with the one that the environment draws."""
        observation, info = self.env.reset() if seed is None else self.env.reset(seed=seed)
        timed = "now" in info or "trace_seed" in info
        self.timed = timed if self._declared is None else self._declared
        self.time = float(info.get("now", 0.0))
        self.arrivals = int(info.get("trace_seed", -1 if seed is None else seed))
        self.over = False
        self._see(observation, info)

    def _see(self, observation: Any, info: dict[str, Any]) -> None:
        self.observation = np.array(observation, np.float32)
        if self._masks is not None:
            self.mask = np.array(self._masks(), np.bool_)
        elif "action_mask" in info:
            self.mask = np.array(info["action_mask"], np.bool_)
        else:
            self.mask = np.ones(int(self.env.action_space.n), np.bool_)

    def advice(self) -> int:
        """Return what the environment's teacher would do now."""
        if self._advice is None:
            raise InputError("this environment has no teacher", hint="give it a method advice() that returns an action")
        action = int(self._advice())
        if not (0 <= action < len(self.mask) and self.mask[action]):
            raise InputError(f"the teacher advises the action {action}, which the mask does not allow here")
        return action

    def step(self, action: int, log_prob: float, advice: int = -1) -> None:
        """Take one step; afterwards `over` says whether the episode has ended."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        terminated, truncated = bool(terminated), bool(truncated) and not terminated
        self.over = terminated or truncated
        told = "now" in info
        if told and not self.timed:
            raise InputError(
                "this environment reports the time at some steps, but not when it is reset", hint="give timed=True"
            )
        passes = told or not self.timed or self.over
        dt = 0.0 if not passes else float(info.get("now", self.time)) - self.time if self.timed else 1.0
        self.record.add(
            Step(
                self.observation,
                self.mask,
                action,
                log_prob,
                float(reward),
                terminated,
                truncated,
                passes,
                self.time,
                dt,
                advice,
            )
        )
        if "credit" in info:
            self.record.credit(info["credit"])
        self.time += dt
        self._see(observation, info)
        if self.over:
            self.record.end(self.observation, self.mask, self.arrivals)

    def take(self) -> Rollout | None:
        """Return the steps since the last call; the episode may go on."""
        self.record.end(self.observation, self.mask, self.arrivals)
        return self.record.take()


def attribute(env: Any, name: str) -> Any:
    """Return an attribute of the environment, or of one that it wraps; None if none has it."""
    if hasattr(env, "get_wrapper_attr"):
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)
