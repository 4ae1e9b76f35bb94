"""The settings of training: batches, optimizer, and the learning rate over time."""

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


@dataclass(frozen=True)
class Course:
    """Holds the learning rate when it was last set, the time of that, and the epochs since then."""

    lr: float
    since: float = 0.0
    epochs: int = 0


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
    reset_lr: float | None = 0.01  # the learning rate after growth; None: it is not reset
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
        for name in ("lr", "decay", "reset_lr"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise GrowError(f"{name} = {value:g} is not allowed", hint="give a number above 0")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a new optimizer."""
        wanted = [p for p in parameters if p.requires_grad]
        if not wanted:
            raise GrowError("the network has nothing to train", hint="set requires_grad=True for some parameters")
        if self.optimizer == "sgd":
            return torch.optim.SGD(wanted, self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        return kind(wanted, self.lr, weight_decay=self.weight_decay)

    def lr_at(self, course: Course, now: float, end: float) -> float:
        """Return the learning rate at a time, when the budget ends at `end`."""
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
