"""Collect steps of several environments side by side: at each step the network is asked once for all of them.

A `Collector` continues where it stopped, for a number of steps or time slots of each environment. `episodes` runs whole
episodes from given seeds; give the same seed several times if rollouts are to share their arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.learn.algorithms.acting import Act
from argosy.learn.algorithms.env_stepper import EnvStepper
from argosy.learn.algorithms.rollout import Rollout, join
from argosy.seeding import stream


@dataclass(frozen=True)
class Teaching:
    """Asks each environment's teacher at every step, and lets the teacher act in this `share` of the steps."""

    share: float = 0.0
    seed: int = 0
    _draws: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise InputError(f"the share of steps in which the teacher acts must be from 0 to 1, is {self.share}")
        object.__setattr__(self, "_draws", stream(self.seed, "teacher acts"))

    def acts(self) -> bool:
        """Draw whether the teacher acts in this step."""
        return self.share >= 1.0 or (self.share > 0.0 and bool(self._draws.random() < self.share))


class Collector:
    """Steps environments that continue from one rollout to the next, and are reset when an episode ends."""

    def __init__(self, envs: Sequence[Any], *, seeds: Sequence[int], timed: bool | None = None) -> None:
        """Give one seed to each environment, for its first episode; its later episodes follow from that seed."""
        if not envs or len(seeds) != len(envs):
            raise InputError(f"there are {len(envs)} environments and {len(seeds)} seeds", hint="give one seed to each")
        self._steppers = [EnvStepper(env, timed) for env in envs]
        self._seeds = list(seeds)
        self._begun = False

    def collect(
        self, act: Act | None, *, steps: int | None = None, slots: int | None = None, teaching: Teaching | None = None
    ) -> Rollout:
        """Return this many steps, or whole time slots, of each environment."""
        if (steps is None) == (slots is None):
            raise InputError("give either steps or slots, to say how much to collect")
        wanted = steps if steps is not None else slots
        if wanted is None or wanted < 1:
            raise InputError(f"at least one step or slot must be collected, not {wanted}")
        if not self._begun:
            for stepper, seed in zip(self._steppers, self._seeds):
                stepper.reset(seed)
            self._begun = True

        def unfinished(stepper: EnvStepper) -> bool:
            more = (len(stepper.record.steps) if steps is not None else stepper.record.slots) < wanted
            if more and stepper.over:
                stepper.reset()
            return more

        return _run(self._steppers, act, unfinished, teaching)


def episodes(
    envs: Sequence[Any],
    act: Act | None,
    seeds: Sequence[int],
    *,
    slots: int | None = None,
    until: float | None = None,
    teaching: Teaching | None = None,
    timed: bool | None = None,
) -> Rollout:
    """Return one whole episode of each environment, or its first `slots`, or the slots that begin before `until`."""
    if not envs or len(seeds) != len(envs):
        raise InputError(f"there are {len(envs)} environments and {len(seeds)} seeds", hint="give one seed to each")
    steppers = [EnvStepper(env, timed) for env in envs]
    for stepper, seed in zip(steppers, seeds):
        stepper.reset(seed)

    def unfinished(stepper: EnvStepper) -> bool:
        if stepper.over or (slots is not None and stepper.record.slots >= slots):
            return False
        return until is None or not stepper.record.steps or stepper.time < until

    return _run(steppers, act, unfinished, teaching)


def _run(
    steppers: list[EnvStepper], act: Act | None, unfinished: Callable[[EnvStepper], bool], teaching: Teaching | None
) -> Rollout:
    if act is None and (teaching is None or teaching.share < 1.0):
        raise InputError("no actor is given", hint="give a network, or let the teacher act: Teaching(share=1)")
    while active := [stepper for stepper in steppers if unfinished(stepper)]:
        actions, logs = [-1] * len(active), [0.0] * len(active)
        if act is not None:
            chosen, chances = act(np.stack([a.observation for a in active]), np.stack([a.mask for a in active]))
            actions, logs = chosen.tolist(), chances.tolist()
        for stepper, action, log_prob in zip(active, actions, logs):
            advice = -1 if teaching is None else stepper.advice()
            if teaching is not None and teaching.acts():
                action, log_prob = advice, 0.0
            stepper.step(action, log_prob, advice)
    return join([rollout for stepper in steppers if (rollout := stepper.take()) is not None])
