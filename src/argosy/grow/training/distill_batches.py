"""Helpers of distillation: batches with the grown network's answers, the time used so far, and checks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.training import feed, workers
from argosy.grow.training.clock import Clock, RealClock
from argosy.slack import COUNT_SLACK

PROBE_EXAMPLES = 2000  # examples for choosing between networks, and for batch-norm statistics
EPOCHS = 5.0


class Pace:
    """Measures the share of the time used, from 0 to 1: by steps if they can be counted, else by epochs or clock."""

    def __init__(self, per_epoch: int | None, epochs: float | None, seconds: float | None, clock: Clock | None) -> None:
        if epochs is not None and seconds is not None:
            raise GrowError(f"epochs={epochs:g} and seconds={seconds:g} are both given", hint="give one of them")
        for name, value in (("epochs", epochs), ("seconds", seconds)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise GrowError(f"{name} = {value:g} is not a valid duration", hint="give 0 or more")
        self.clock: Clock = clock if clock is not None else RealClock()
        self.begin, self.seconds, self.per_epoch = self.clock.now(), seconds, per_epoch
        self.epoch_s = self.clock.epoch_time()
        if seconds is None:
            self.epochs: float | None = EPOCHS if epochs is None else epochs
        else:
            self.epochs = seconds / self.epoch_s if self.epoch_s else None
        self.step = 0  # counted by the training loop
        self.passes = 0  # counted by `Batches`

    def progress(self) -> float:
        """Return the share of the time used so far; 1 at the end."""
        if self.epochs is None:
            share = (self.clock.now() - self.begin) / self.seconds if self.seconds else 1.0
            return float(workers.agree(share))  # all workers must make the same number of steps
        if self.per_epoch:
            steps = math.floor(self.epochs * self.per_epoch + COUNT_SLACK)
            return self.step / steps if steps else 1.0
        return self.passes / self.epochs if self.epochs else 1.0

    def settle(self) -> None:
        """Advance a virtual clock by the work done."""
        if self.epoch_s is None:
            return
        done = self.step / self.per_epoch if self.per_epoch else self.passes
        self.clock.advance(self.seconds if self.seconds is not None else done * self.epoch_s)


class Answers:
    """Computes the grown network's logits, for data in memory only once."""

    def __init__(self, teacher: nn.Module) -> None:
        self.teacher = teacher
        self.device = next((p.device for p in teacher.parameters()), torch.device("cpu"))
        self.known: Tensor | None = None
        self.have: Tensor | None = None

    def of(self, x: Any) -> Tensor:
        """Return the logits for one batch."""
        with torch.no_grad():
            return self.teacher(x.to(self.device))  # type: ignore[no-any-return]

    def of_rows(self, data: Data, rows: Tensor) -> Tensor:
        """Return the logits for these rows of the training data."""
        if self.have is None or self.known is None:
            self.have = torch.zeros(len(data.train_y), dtype=torch.bool)
            first = self.of(data.train_x[rows[:1]])
            self.known = first.new_zeros(len(data.train_y), *first.shape[1:])
        missing = rows[~self.have[rows]]
        if len(missing):
            self.known[missing] = self.of(data.train_x[missing])
            self.have[missing] = True
        return self.known[rows]


class Batches:
    """Yields batches without end: inputs, targets, this worker's weight, and the grown network's answers if wanted."""

    def __init__(
        self,
        source: feed.Source,
        batch: int,
        seed: int,
        answers: Answers | None,
        pace: Pace,
        generator: torch.Generator | None = None,
    ) -> None:
        """Prepare. `generator` draws the order of the data (default: from `seed`); `answers` may become None later."""
        self.source, self.batch, self.answers, self.pace = source, batch, answers, pace
        self.generator = torch.Generator().manual_seed(seed) if generator is None else generator
        self.current = self._endless()

    def __next__(self) -> tuple[Any, Any, float, Tensor | None]:
        return next(self.current)

    def _endless(self) -> Iterator[tuple[Any, Any, float, Tensor | None]]:
        numbered = self.source
        if isinstance(numbered, Data):  # the row number replaces the class
            n = len(numbered.train_y)
            numbered = dataclasses.replace(numbered, train_y=torch.arange(n), classes=max(n, numbered.classes))
        while True:
            empty = True
            for x, y, share in feed.training(numbered, self.batch, self.generator):
                empty, answer = False, None
                if isinstance(self.source, Data):
                    answer = self.answers.of_rows(self.source, y) if self.answers else None
                    y = self.source.train_y[y]
                elif self.answers:
                    answer = self.answers.of(x)
                yield x, y, share, answer
            if empty:
                raise _no_batches()
            self.pace.passes += 1


def few(source: feed.Source, part: feed.Part) -> list[feed.Batch]:
    """Return a few batches of this part; training data if there are no validation data."""
    if part == "validation":
        none = len(source.val_y) == 0 if isinstance(source, Data) else source.validation is None
        part = "train" if none else part
    found, seen = [], 0
    with torch.random.fork_rng(devices=[]):  # reading them must not change which batches come next
        for x, y in feed.evaluation(source, part):
            found.append((x, y))
            seen += len(x)
            if seen >= PROBE_EXAMPLES:
                break
    if not found:
        raise _no_batches()
    return found


def mean_loss(model: nn.Module, batches: list[feed.Batch], hard: Callable[[Any, Any], Tensor]) -> float:
    """Return the mean loss per example in evaluation mode; infinite if it is not finite."""
    modes = [(part, part.training) for part in model.modules()]
    device = next(model.parameters()).device
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            total += float(hard(model(x.to(device)), y.to(device))) * len(x)
            count += len(x)
    for part, mode in modes:
        part.training = mode
    return total / count if math.isfinite(total) else math.inf


def check_networks(
    bigger: nn.Module, small: nn.Module, batches: list[feed.Batch], *, check_targets: bool = True
) -> None:
    """Check that both networks take these inputs and give one number per class, and that the targets are classes."""
    from argosy.grow.surgery.trace import run

    x = batches[0][0][:2]
    outs = [run(model, (x.to(next((p.device for p in model.parameters()), "cpu")),)) for model in (bigger, small)]
    for name, out in zip(("grown", "small"), outs, strict=True):
        if not torch.is_tensor(out) or out.dim() < 2:
            raise GrowError(f"the {name} network gives {_describe(out)}, not one number per class for each input")
    if outs[0].shape != outs[1].shape:
        raise GrowError(
            f"the grown network gives {_describe(outs[0])}, but the small one {_describe(outs[1])}",
            hint="give the network from before the growth: both must have the same classes",
        )
    classes = outs[0].shape[1]
    for _, y in batches if check_targets else ():
        if not torch.is_tensor(y) or y.is_floating_point():
            continue  # class probabilities
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= classes:
            raise GrowError(
                f"the data have classes {low} to {high}, but the networks have {classes}",
                hint="classes count from 0",
            )


def _describe(out: Any) -> str:
    return f"an output of shape {'x'.join(map(str, out.shape))}" if torch.is_tensor(out) else f"a {type(out).__name__}"


def _no_batches() -> GrowError:
    return GrowError(
        "the loader has no batches to learn from",
        hint="an iterator may be exhausted; give a list, a DataLoader or grow.load(…)",
    )
