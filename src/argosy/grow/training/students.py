"""A small network that learns from a grown one: its loss, its optimizer, and its learning rate over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from argosy.grow.errors import GrowError
from argosy.grow.training import workers
from argosy.grow.training.distill_batches import Batches, Pace
from argosy.grow.training.measure import Loss
from argosy.grow.training.recipe import Course, Recipe
from argosy.slack import RELATIVE_SLACK

if TYPE_CHECKING:
    from argosy.grow.training.distill import Distillation


@dataclass(frozen=True)
class Own:
    """The job's own training, which a student goes on with: recipe, learning rate, clock's times, order of the data."""

    recipe: Recipe
    course: Course
    begin: float  # of distillation
    seconds: float  # that it takes
    end: float  # of the job's budget
    generator: torch.Generator

    @property
    def goes_on(self) -> bool:
        """Return whether training goes on after distillation."""
        return self.begin + self.seconds < self.end * (1 - RELATIVE_SLACK)

    def rate(self, progress: float, steps: int) -> float:
        """Return the learning rate at this share of the distillation, after so many steps."""
        course = replace(self.course, steps=self.course.steps + steps)
        return self.recipe.lr_at(course, self.begin + progress * self.seconds, self.end)


class Student:
    """A small network in training. Without `own` it is trained with SGD, and its learning rate falls to 0."""

    def __init__(self, model: nn.Module, how: Distillation, hard: Loss, own: Own | None = None) -> None:
        self.model, self.how, self.hard, self.own = model, how, hard, own
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise GrowError("the small network has nothing to train", hint="set requires_grad=True for some parameters")
        self.optimizer: torch.optim.Optimizer
        if own is None:
            self.optimizer = torch.optim.SGD(self.parameters, how.lr, momentum=how.momentum)
        else:
            self.optimizer = own.recipe.build(model.parameters())
        weights = [p for p in self.parameters if p.dim() > 1] if how.weight_weight else []
        self.anchors = [(p, p.detach().clone()) for p in weights]
        self.diverged, self.steps = False, 0

    def train(self, batches: Batches, pace: Pace, until: float) -> None:
        """Train until this share of the time is used, or until the weights are not finite."""
        modes = [(part, part.training) for part in self.model.modules()]
        self.model.train()
        while not self.diverged and (progress := pace.progress()) < until:
            x, y, share, answer = next(batches)
            loss = self._loss(x, y, answer, progress)
            value = float(loss.detach())
            self.diverged = not math.isfinite(value)
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate(progress)
            self.optimizer.zero_grad()
            (loss * share).backward()  # type: ignore[no-untyped-call]
            if workers.size() > 1:
                value, _ = workers.average(self.parameters, value, False)
                self.diverged = not math.isfinite(value)
            if not self.diverged:
                self.optimizer.step()
            pace.step += 1
            self.steps += 1
        for part, mode in modes:
            part.training = mode

    def _rate(self, progress: float) -> float:
        if self.own is not None:
            return self.own.rate(progress, self.steps)
        return 0.5 * self.how.lr * (1 + math.cos(math.pi * progress))

    def _loss(self, x: Any, y: Any, answer: Tensor | None, progress: float) -> Tensor:
        device = self.parameters[0].device
        out = self.model(x.to(device))
        loss = self.hard(out, y.to(device))
        if answer is not None:
            warm = self.how.temperature
            mine, theirs = (nn.functional.log_softmax(z / warm, 1) for z in (out, answer.to(device)))
            kl = nn.functional.kl_div(mine, theirs, reduction="batchmean", log_target=True)
            loss = loss + self.how.logit_weight * warm**2 * kl
        if self.anchors:
            apart = [(p - start).square().sum() / start.square().sum().clamp_min(1e-12) for p, start in self.anchors]
            loss = loss + self.how.weight_weight * (1 - progress) * torch.stack(apart).mean()
        return loss
