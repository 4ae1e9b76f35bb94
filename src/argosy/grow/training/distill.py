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
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.training import feed, workers
from argosy.grow.training.clock import Clock
from argosy.grow.training.distill_batches import Answers, Batches, Pace, check_networks, few, mean_loss
from argosy.grow.training.inherit import inherited, recalibrate
from argosy.grow.training.measure import Loss
from argosy.grow.training.students import Own, Student

TRIAL_SHARE = 0.05  # the share of the time in which each start is tried


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
    return taught(bigger, small, loader, how, epochs=epochs, seconds=seconds, clock=clock, seed=seed, loss=loss).model


@dataclass(frozen=True)
class Taught:
    """The small network after distillation, with what it goes on with; `optimizer` is None if it was not trained."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    steps: int
    what: str  # what was done, in words


def taught(
    bigger: nn.Module,
    small: nn.Module,
    loader: Data | feed.Loaders | Iterable[feed.Batch],
    how: Distillation,
    *,
    epochs: float | None = None,
    seconds: float | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    own: Own | None = None,
) -> Taught:
    """Distil as `shrink` does; with `own` the small network is trained in the job's own way.

    The grown network teaches only if its answers are better than those of the start that is chosen: otherwise the small
    network is restored, or goes on with the weights it has in the grown one, and learns from the data alone.
    """
    source = feed.source(loader)
    judge, probe = few(source, "validation"), few(source, "train")
    twin, hard = copy.deepcopy(small), loss or nn.functional.cross_entropy
    check_networks(bigger, twin, probe + judge, check_targets=loss is None)
    teachers = [copy.deepcopy(bigger), _fresh(bigger, probe)]
    teacher = teachers[_best(teachers, judge, hard)].eval()
    starts, names = [twin], ["the small network from before growth"]
    if how.weight_weight:
        starts.append(_fresh(inherited(bigger, twin), probe))
        names.append("the grown network's weights")
        if own is not None and _best(starts, judge, hard) == 1:  # what it has learned is not lost: no time for a trial
            starts, names = starts[1:], names[1:]
    batch = how.batch if own is None else own.recipe.batch
    pace = Pace(feed.steps(source, batch), epochs, seconds, clock)
    answers = Answers(teacher) if how.logit_weight else None
    batches = Batches(source, batch, seed, answers, pace, None if own is None else own.generator)
    students = [Student(copy.deepcopy(start), how, hard, own) for start in starts]
    place = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if len(students) > 1:
            for number, student in enumerate(students):
                student.train(batches, pace, until=TRIAL_SHARE * (number + 1))
            place = _best([_fresh(student.model, probe) for student in students], judge, hard)
        first = students[place]
        if own is not None and answers is not None and _best([_fresh(first.model, probe), teacher], judge, hard) == 0:
            batches.answers = None
        teaches = batches.answers is not None
        first.train(batches, pace, until=1.0)
    pace.settle()
    goes_on = own is not None and own.goes_on and not first.diverged  # at a high rate it may be worse for a while
    best = 0 if goes_on else _best([first.model, *starts], judge, hard)
    if best:
        return Taught(starts[best - 1], None, 0, f"{names[best - 1]} as it was")
    how_taught = "taught by the grown network" if teaches else "on the data alone, as the grown network is no better"
    return Taught(first.model, first.optimizer, first.steps, f"{names[place]}, {how_taught}")


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
