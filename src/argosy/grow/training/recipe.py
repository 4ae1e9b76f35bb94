"""The settings of training: batches, optimizer, and the learning rate over time, also after growth.

After growth the learning rate is set back to a share of the recipe's own (`reset`), and its schedule starts again from
there, unless too little time is left to bring it down again (`reset_needs`). It is reached by a short warm-up, and the
momentum of before is damped, because both belong to the rate and the network of before. From then on gradients are
clipped at some times their usual norm (`clip`): a deeper network without norms is less stable than the one before, and
without clipping single large steps destroy it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import nn

from argosy.grow.errors import GrowError

SCHEDULES = ("cosine", "decay", "constant")
OPTIMIZERS = ("sgd", "adam", "adamw")
MOMENTA = ("momentum_buffer", "exp_avg")  # in the state of SGD and RMSprop, and of Adam and its relatives


@dataclass(frozen=True)
class Course:
    """Holds the learning rate when it was last set, the time of that, and the epochs since then.

    After growth the first `climb` steps lead from the rate `start` to this course; `steps` counts the steps since then.
    """

    lr: float
    since: float = 0.0
    epochs: int = 0
    climb: int = 0
    start: float = 0.0
    steps: int = 0


@dataclass(frozen=True)
class Recipe:
    """Holds how to train. The learning rate depends on time, so its schedule ends with the budget."""

    batch: int = 64  # of all replicas together
    lr: float = 0.01  # at the beginning
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9  # of SGD
    weight_decay: float = 0.0
    schedule: Literal["cosine", "decay", "constant"] = "cosine"  # cosine: falls to 0 at the budget's end
    decay: float = 0.9  # per epoch, for schedule="decay"
    reset: float | None = 1.0  # the learning rate after growth, as a share of `lr`; None: it is not reset
    reset_lr: float | None = None  # the learning rate after growth in absolute terms, instead of `reset`
    reset_needs: float = 2.0  # epochs that must be left for a reset
    warm_up: int = 30  # steps in which the learning rate climbs after growth; at most an epoch
    keep_momentum: float = 0.1  # the share of momentum that is left after growth
    clip: float | None = 3.0  # after growth gradients are clipped at this many times their usual norm; None: never
    reset_for_nothing: bool = False  # reset the learning rate also if the decision is to do nothing
    reset_each_epoch: bool = False  # as in the published study: new optimizer and rate each epoch after a decision
    carry_optimizer: bool = True  # growth keeps momentum and moments; otherwise they start at zero
    threads: int = 1  # CPU threads; 0: as torch is set

    def __post_init__(self) -> None:
        for name, known in (("schedule", SCHEDULES), ("optimizer", OPTIMIZERS)):
            if getattr(self, name) not in known:
                raise GrowError(
                    f"{name} = {getattr(self, name)!r} is not known", hint=f"give one of {', '.join(known)}"
                )
        if self.batch < 1:
            raise GrowError(f"batch = {self.batch} is too small", hint="give 1 or more")
        for name in ("lr", "decay", "reset", "reset_lr", "clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise GrowError(f"{name} = {value:g} is not allowed", hint="give a number above 0")
        for name, most in (("reset_needs", math.inf), ("warm_up", math.inf), ("keep_momentum", 1.0)):
            value = getattr(self, name)
            if not 0 <= value <= most or value == math.inf:
                limit = "at least 0" if most == math.inf else f"from 0 to {most:g}"
                raise GrowError(f"{name} = {value:g} is not allowed", hint=f"give a number {limit}")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a new optimizer."""
        wanted = [p for p in parameters if p.requires_grad]
        if not wanted:
            raise GrowError("the network has nothing to train", hint="set requires_grad=True for some parameters")
        if self.optimizer == "sgd":
            return torch.optim.SGD(wanted, self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        return kind(wanted, self.lr, weight_decay=self.weight_decay)

    @property
    def rate_after_growth(self) -> float | None:
        """Return the learning rate to which growth resets; None if it does not."""
        if self.reset_lr is not None:
            return self.reset_lr
        return None if self.reset is None else self.reset * self.lr

    def lr_at(self, course: Course, now: float, end: float) -> float:
        """Return the learning rate at a time, when the budget ends at `end`."""
        rate = self._scheduled(course, now, end)
        if course.steps >= course.climb:
            return rate
        start = min(course.start, rate)
        return start + (rate - start) * course.steps / course.climb

    def _scheduled(self, course: Course, now: float, end: float) -> float:
        """Return the learning rate without warm-up."""
        if self.schedule == "decay":
            return float(course.lr * self.decay**course.epochs)
        if self.schedule == "constant" or not math.isfinite(end):
            return course.lr
        span = end - course.since
        share = min(max((now - course.since) / span, 0.0), 1.0) if span > 0 else 1.0
        return course.lr * 0.5 * (1.0 + math.cos(math.pi * share))

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe that `to_dict` described."""
        unknown = sorted(set(data) - {f.name for f in fields(cls)})
        if unknown:
            raise GrowError(f"unknown fields of a recipe: {', '.join(unknown)}")
        return cls(**data)


STUDIED = Recipe(reset_lr=0.01, reset_needs=1.0, warm_up=0, keep_momentum=1.0, clip=None)  # of what ships


def damp_momentum(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Leave this share of an optimizer's momentum; what it knows of the size of gradients is not changed."""
    for state in optimizer.state.values():
        for name in MOMENTA:
            if torch.is_tensor(state.get(name)):
                state[name].mul_(share)
