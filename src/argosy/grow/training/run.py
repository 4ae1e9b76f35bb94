"""The state of one training run: network, optimizer, time, and the order of the data to come.

`fork()` copies all of it, so that two arms of an experiment can branch from one point and differ only in what is done
to them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.trace import run
from argosy.grow.surgery.with_optimizer import apply_and_carry
from argosy.grow.training import feed, workers
from argosy.grow.training.clock import Clock, VirtualClock
from argosy.grow.training.passes import evaluating, first, forward, threads
from argosy.grow.training.recipe import Course, Recipe
from argosy.slack import RELATIVE_SLACK

Loss = Callable[[Any, Any], torch.Tensor]
ROUNDING = 1e-6  # of a step: a step that lacks less time than this is a whole step


@dataclass(frozen=True)
class Epoch:
    """Holds the figures of one epoch: its end, its duration, the mean loss, the last learning rate."""

    time: float
    seconds: float
    loss: float | None  # None: there was no time for even one step
    lr: float
    steps: int
    whole: bool  # False: it ended early


class Run:
    """One training run. The given network is copied, not changed.

    `budget` is the clock's time at which training ends: the cosine schedule reaches 0 there, and an unfinished epoch
    ends there. `loss(outputs, targets)` is minimised; `score(outputs, targets)` returns a number per example for
    `evaluate`, by default 1 for the right class.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data | feed.Loaders | Iterable[feed.Batch],
        recipe: Recipe | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        *,
        budget: float = math.inf,
        example: Any = None,
        loss: Loss | None = None,
        score: Loss | None = None,
    ) -> None:
        if not budget > 0:
            raise GrowError(
                f"a budget of {budget:g} s leaves no time to train", hint="give seconds of the clock, above 0"
            )
        self.model = copy.deepcopy(model)
        workers.same_start(self.model)
        self.data = feed.source(data)
        self.recipe = recipe or Recipe()
        self.clock: Clock = clock if clock is not None else VirtualClock()
        self.budget = budget
        self.example = example if example is not None else feed.example(self.data)
        self.loss: Loss = loss or nn.functional.cross_entropy
        self.score: Loss = score or _right
        self._check_outputs(classes=isinstance(self.data, Data) and loss is None)
        self.surgeries: tuple[Surgery, ...] = tuple(surgeries_of(self.model))
        self.epochs = 0
        self.last_epoch_s: float | None = None
        self.adapting = False  # a decision has been taken
        self.optimizer = self.recipe.build(self.model.parameters())
        self.course = Course(self.recipe.lr, self.clock.now())
        self.generator = torch.Generator().manual_seed(seed)
        self.noise = torch.Generator().manual_seed(seed + 1).get_state()  # for dropout and the like
        self._tell_size()

    def _check_outputs(self, *, classes: bool) -> None:
        """Check before the first epoch that network and data fit."""
        outputs = run(self.model, self.example if isinstance(self.example, tuple) else (self.example,))
        if classes and isinstance(self.data, Data) and outputs.shape[-1] < self.data.classes:
            raise GrowError(
                f"{type(self.model).__name__} has outputs for {outputs.shape[-1]} classes, but {self.data.name} has "
                f"{self.data.classes}",
                hint="give its last layer as many outputs as there are classes",
            )

    @property
    def time_left(self) -> float:
        """Return the time until the budget's end."""
        left = self.budget - self.clock.now()
        return left if left > RELATIVE_SLACK * max(self.clock.now(), 1e-3) else 0.0

    @property
    def parameters(self) -> int:
        """Return the number of parameters of the network."""
        return sum(p.numel() for p in self.model.parameters())

    def flops(self) -> float:
        """Return the floating-point operations of a forward pass of one example."""
        with evaluating(self.model), FlopCounterMode(display=False) as counter:
            forward(self.model, first(self.example), next(self.model.parameters()).device)
        return float(counter.get_total_flops())

    def train_epoch(self, stop: Callable[[float], bool] | None = None) -> Epoch:
        """Train an epoch, or as much of it as the time allows, and advance the clock.

        `stop(time)` is asked after each step and may end the epoch there. If the loss is not finite, the weights are
        restored to those before the epoch.
        """
        if self.time_left <= 0 and workers.size() == 1:  # several workers stop together, after a step
            raise GrowError(f"no time is left: the budget of {self.budget:g} s is used up")
        if self.recipe.reset_each_epoch and self.adapting:
            self._reset(anew=True)
        good = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        was_training = self.model.training
        self.model.train()
        try:
            with threads(self.recipe.threads), torch.random.fork_rng(devices=[]):
                torch.set_rng_state(self.noise)
                done = self._steps(stop)
                self.noise = torch.get_rng_state()
            if not all(bool(torch.isfinite(p).all()) for p in self.model.parameters()):
                raise self._diverged()
        except GrowError:
            self.model.load_state_dict(good)
            self.optimizer.state.clear()
            raise
        finally:
            self.model.train(was_training)
        workers.same_statistics(self.model)
        self.epochs += 1
        self.last_epoch_s = done.seconds if done.whole else self.last_epoch_s
        self.course = Course(self.course.lr, self.course.since, self.course.epochs + 1)
        return done

    def _steps(self, stop: Callable[[float], bool] | None) -> Epoch:
        """Make the steps of an epoch."""
        model, optimizer, recipe = self.model, self.optimizer, self.recipe
        parameters = list(model.parameters())
        device = parameters[0].device
        together = workers.size() > 1
        begin, left = self.clock.now(), self.time_left
        planned, steps = self.clock.epoch_time(), feed.steps(self.data, recipe.batch)
        step_s = planned / steps if planned is not None and steps else None
        most: float = math.inf
        if step_s is not None and steps is not None:
            most = min(steps, math.floor(min(left / step_s, steps) + ROUNDING))
        whole = step_s is None or most == steps
        total, taken, lr, late = 0.0, 0, self.lr, False
        batches: Iterator[tuple[Any, Any, float]] = feed.training(self.data, recipe.batch, self.generator)
        for x, y, weight in batches if most else ():
            now = begin + taken * step_s if step_s is not None else self.clock.now()
            lr = recipe.lr_at(self.course, now, self.budget)
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.zero_grad()
            loss = self.loss(forward(model, x, device), y.to(device))
            if weight != 1.0:
                loss = loss * weight
            value = loss.item()
            if not (together or math.isfinite(value)):
                raise self._diverged()
            loss.backward()  # type: ignore[no-untyped-call]
            now = begin + (taken + 1) * step_s if step_s is not None else self.clock.now()
            late = (planned is None and now >= self.budget) or (stop is not None and stop(now))
            if together:
                value, late = workers.average(parameters, value, late)
                if not math.isfinite(value):
                    raise self._diverged()
            optimizer.step()
            total += value
            taken += 1
            if late:
                whole = steps == taken
                break
            if taken >= most:
                break
        if not taken and most:
            raise GrowError("the training data have no batches", hint="an iterator may be exhausted; give a DataLoader")
        seconds = self.clock.now() - begin if planned is None else min(planned, left)
        if late and not whole and step_s is not None:
            seconds = taken * step_s
        self.clock.advance(seconds)
        return Epoch(self.clock.now(), seconds, total / taken if taken else None, lr, taken, whole)

    @property
    def lr(self) -> float:
        """Return the present learning rate."""
        return self.recipe.lr_at(self.course, self.clock.now(), self.budget)

    def grow(self, surgeries: Sequence[Surgery], *, reset: bool | None = None) -> None:
        """Do these surgeries; if one is not possible, do none of them and raise GrowError.

        The learning rate is reset as the recipe says; `reset` overrides it. Without surgeries the network and, by
        default, its learning rate are not changed.
        """
        self.optimizer.zero_grad()
        if self.recipe.carry_optimizer or not surgeries:
            model, optimizer = apply_and_carry(self.model, self.optimizer, surgeries, self.example)
        else:
            model, _ = apply_and_carry(self.model, None, surgeries, self.example)
            optimizer = self.recipe.build(model.parameters())
        self.model, self.optimizer = model, optimizer
        self.surgeries += tuple(surgeries)
        self.adapting = True
        if surgeries:
            self._tell_size()
        if reset if reset is not None else bool(surgeries) or self.recipe.reset_for_nothing:
            self._reset()

    def replace(self, model: nn.Module) -> None:
        """Continue with another network (a shrunk one), with a new optimizer and the same learning rate schedule."""
        self.model = copy.deepcopy(model)
        self.surgeries = tuple(surgeries_of(self.model))
        self.optimizer = self.recipe.build(self.model.parameters())
        self._tell_size()

    def _reset(self, *, anew: bool = False) -> None:
        """Reset the learning rate, unless less than an epoch is left to reduce it again."""
        if anew:
            self.optimizer = self.recipe.build(self.model.parameters())
        planned = self.clock.epoch_time()
        epoch_s = planned if planned is not None else self.last_epoch_s
        if self.recipe.reset_lr is None or (epoch_s is not None and self.time_left < epoch_s * (1 - ROUNDING)):
            return
        self.course = Course(self.recipe.reset_lr, self.clock.now())

    def _tell_size(self) -> None:
        flops = self.flops() if self.clock.needs_flops else None
        self.clock.size(self.parameters, flops, self.surgeries)

    def _diverged(self) -> GrowError:
        return GrowError(
            f"the loss is not finite in epoch {self.epochs + 1} (learning rate {self.lr:g}); the weights are "
            "those before that epoch",
            hint="train with a smaller learning rate (recipe.lr, recipe.reset_lr) or without noise on copies",
        )

    def evaluate(self, part: feed.Part = "validation") -> float:
        """Return the mean score: by default the share of right answers."""
        total, count = 0.0, 0
        device = next(self.model.parameters()).device
        with threads(self.recipe.threads), evaluating(self.model):
            for x, y in feed.evaluation(self.data, part):
                scores = self.score(forward(self.model, x, device), y.to(device))
                total += float(scores.sum())
                count += scores.numel()
        if not count:
            raise GrowError(f"there are no {part} data", hint="give data for this part")
        return total / count

    def fork(self) -> Run:
        """Return a copy that has the same future: weights, optimizer, clock and random numbers."""
        self.optimizer.zero_grad()
        other = copy.copy(self)
        other.model, other.optimizer = copy.deepcopy((self.model, self.optimizer))  # together: they share tensors
        other.clock = copy.deepcopy(self.clock)
        other.generator = self.generator.clone_state()
        other.noise = self.noise.clone()
        return other

    def save(self, path: str | Path) -> None:
        """Write everything that this run needs to continue; see `checkpoint.py`."""
        from argosy.grow.training.checkpoint import save

        save(self, path)

    def load(self, path: str | Path) -> None:
        """Continue from a saved run; this run must have been made from the same network before growth."""
        from argosy.grow.training.checkpoint import resume

        resume(self, path)


def _right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.argmax(1) == targets
