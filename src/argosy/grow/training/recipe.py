"""Say how a network is trained: batches, optimizer, and the learning rate over the time that is left."""

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
    """The learning rate's course since it was last set: its value then, the time then, the epochs since."""

    lr: float
    since: float = 0.0
    epochs: int = 0


@dataclass(frozen=True)
class Recipe:
    """How to train. The learning rate follows time, so it ends where the budget ends, however long epochs are."""

    batch: int = 64  # over all replicas
    lr: float = 0.01  # at the beginning
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9  # of SGD
    weight_decay: float = 0.0
    schedule: Literal["cosine", "decay", "constant"] = "cosine"  # cosine: to 0 at the budget's end
    decay: float = 0.9  # per epoch, for schedule="decay"
    reset_lr: float | None = 0.01  # the learning rate after growth; None: it stays on its course
    reset_for_nothing: bool = False  # also when the decision is to leave the network as it is
    reset_each_epoch: bool = False  # as the published study: optimizer and rate anew each epoch after a decision
    carry_optimizer: bool = True  # growth keeps momentum and moments; otherwise they start anew
    threads: int = 1  # CPU threads; 0: as torch is set

    def __post_init__(self) -> None:
        for name, known in (("schedule", SCHEDULES), ("optimizer", OPTIMIZERS)):
            if getattr(self, name) not in known:
                raise GrowError(f"{name} = {getattr(self, name)!r} is not known", hint=f"one of {', '.join(known)}")
        if self.batch < 1:
            raise GrowError(f"batch = {self.batch} is too small", hint="give 1 or more")
        for name in ("lr", "decay", "reset_lr"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise GrowError(f"{name} = {value:g} cannot be used", hint="give a number above 0")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a new optimizer."""
        wanted = [p for p in parameters if p.requires_grad]
        if not wanted:
            raise GrowError("the network has nothing to train", hint="a parameter with requires_grad=True is needed")
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
        """Build it again from plain data."""
        unknown = sorted(set(data) - {f.name for f in fields(cls)})
        if unknown:
            raise GrowError(f"unknown fields of a recipe: {', '.join(unknown)}")
        return cls(**data)
