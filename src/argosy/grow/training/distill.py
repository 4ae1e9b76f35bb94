"""Go back to the small network when the GPUs are taken back, with what the grown network has learned.

*Logits*: the small network trains on the true classes and on the grown network's answers,

    loss = CE(small(x), y) + logit_weight · T² · KL(softmax(bigger(x)/T) ‖ softmax(small(x)/T))

*Weights*: it may start from the weights that its layers have in the grown network (`inherit.py`), and is kept near them
at first,

    loss += weight_weight · (1 − progress) · mean over layers of ‖w − w₀‖² / ‖w₀‖²

Removing a trained layer changes the function, and how good a start is can only be seen by training. So the small
network's old weights and the inherited ones are both trained for a small part of the time, and the better one is
trained to the end. The best of the starts and the trained network is returned, so that a short time does no harm. The
grown network, stopped in the middle of its training, answers with new batch-norm statistics if these make it better.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.training import feed, workers
from argosy.grow.training.clock import Clock
from argosy.grow.training.distill_batches import Answers, Batches, Pace, check_networks, few, mean_loss
from argosy.grow.training.inherit import inherited, recalibrate

TRIAL_SHARE = 0.05  # the share of the time in which each start is tried

Loss: TypeAlias = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Distillation:
    """Holds the settings of distillation; see `shrink`."""

    temperature: float = 2.0
    logit_weight: float = 0.5
    weight_weight: float = 0.3
    lr: float = 0.05
    momentum: float = 0.9
    batch: int = 64

    def __post_init__(self) -> None:
        limits = {"temperature": 0.0, "lr": 0.0, "logit_weight": None, "weight_weight": None, "momentum": None}
        for name, above in limits.items():
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or value == above:
                raise GrowError(
                    f"{name} = {value:g} is not allowed",
                    hint=f"give a number {'above 0' if above == 0 else 'of 0 or more'}",
                )
        if self.batch < 2:
            raise GrowError(f"batch = {self.batch} is too small", hint="give 2 or more")


def shrink(
    bigger: nn.Module,
    small: nn.Module,
    loader: Data | feed.Loaders | Iterable[feed.Batch],
    *,
    epochs: float | None = None,
    seconds: float | None = None,
    temperature: float = 2.0,
    logit_weight: float = 0.5,
    weight_weight: float = 0.3,
    lr: float = 0.05,
    momentum: float = 0.9,
    batch: int = 64,
    clock: Clock | None = None,
    seed: int = 0,
    loss: Loss | None = None,
) -> nn.Module:
    """Return a network built like `small` that has learned from `bigger`; both arguments stay as they are.

    Trains for `epochs` (default: 5) or for `seconds` of the clock (default: real time). A virtual clock counts only the
    small network's epochs. The learning rate follows a cosine from `lr` to 0. `logit_weight=0` ignores the grown
    network's answers; `weight_weight=0` ignores its weights, so that training starts from the small network's own.
    `loss` replaces the cross-entropy. `batch` is for `Data`; other loaders have their own batches.
    """
    how = Distillation(temperature, logit_weight, weight_weight, lr, momentum, batch)
    source = feed.source(loader)
    judge, probe = few(source, "validation"), few(source, "train")
    own, hard = copy.deepcopy(small), loss or nn.functional.cross_entropy
    check_networks(bigger, own, probe + judge, check_targets=loss is None)
    teachers = [copy.deepcopy(bigger), _fresh(bigger, probe)]
    teacher = teachers[_best(teachers, judge, hard)].eval()
    starts = [own]
    if weight_weight:
        starts.append(_fresh(inherited(bigger, own), probe))
    pace = Pace(feed.steps(source, batch), epochs, seconds, clock)
    batches = Batches(source, batch, seed, Answers(teacher) if logit_weight else None, pace)
    students = [_Student(copy.deepcopy(start), how, hard) for start in starts]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if len(students) > 1:
            for place, student in enumerate(students):
                student.train(batches, pace, until=TRIAL_SHARE * (place + 1))
        first = students[_best([_fresh(student.model, probe) for student in students], judge, hard)]
        first.train(batches, pace, until=1.0)
    pace.settle()
    candidates = [first.model, *starts]
    return candidates[_best(candidates, judge, hard)]


def _fresh(model: nn.Module, probe: list[feed.Batch]) -> nn.Module:
    """Return a copy with batch-norm statistics for its present weights, since those from training lag behind."""
    result = copy.deepcopy(model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    recalibrate(result, [x.to(device) for x, _ in probe])
    return result


def _best(models: list[nn.Module], judge: list[feed.Batch], hard: Loss) -> int:
    """Return the index of the model with the lowest loss; the first worker decides for all."""
    losses = [mean_loss(model, judge, hard) for model in models]
    return int(workers.agree(losses.index(min(losses))))


class _Student:
    """A small network in training."""

    def __init__(self, model: nn.Module, how: Distillation, hard: Loss) -> None:
        self.model, self.how, self.hard = model, how, hard
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise GrowError("the small network has nothing to train", hint="set requires_grad=True for some parameters")
        self.optimizer = torch.optim.SGD(self.parameters, how.lr, momentum=how.momentum)
        weights = [p for p in self.parameters if p.dim() > 1] if how.weight_weight else []
        self.anchors = [(p, p.detach().clone()) for p in weights]
        self.diverged = False

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
                group["lr"] = 0.5 * self.how.lr * (1 + math.cos(math.pi * progress))
            self.optimizer.zero_grad()
            (loss * share).backward()  # type: ignore[no-untyped-call]
            if workers.size() > 1:
                value, _ = workers.average(self.parameters, value, False)
                self.diverged = not math.isfinite(value)
            if not self.diverged:
                self.optimizer.step()
            pace.step += 1
        for part, mode in modes:
            part.training = mode

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
