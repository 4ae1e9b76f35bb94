"""The state of one training run: network, optimizer, time, and the order of the data to come.

`fork()` copies all of it, so that two arms of an experiment can branch from one point and differ only in what is done
to them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from argosy.grow.data import Data
from argosy.grow.errors import Diverged, GrowError
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.trace import run
from argosy.grow.surgery.with_optimizer import apply_and_carry
from argosy.grow.training import feed, workers
from argosy.grow.training.clipping import Clipping
from argosy.grow.training.clock import Clock, VirtualClock
from argosy.grow.training.losses import Losses
from argosy.grow.training.measure import Loss, Measured, measured
from argosy.grow.training.passes import evaluating, first, forward, threads
from argosy.grow.training.recipe import Course, Recipe, damp_momentum
from argosy.grow.training.steps import ROUNDING, Epoch, Watch, make_steps
from argosy.slack import RELATIVE_SLACK

Content = tuple[nn.Module, torch.optim.Optimizer, tuple[Surgery, ...], Course, bool]
WARM_UP_FROM = 0.1  # of the learning rate: where it begins to climb after growth, at most


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
        self.losses, self.clipping = Losses(), Clipping()
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

    def train_epoch(self, stop: Callable[[float], bool] | None = None, watch: Watch | None = None) -> Epoch:
        """Train an epoch, or as much of it as the time allows, and advance the clock.

        `stop(time)` is asked after each step and may end the epoch there. `watch(loss, parameters)` is told of each
        step before the optimizer makes it, and may raise an error. If the loss is not finite, the weights are restored
        to those before the epoch.
        """
        if self.time_left <= 0 and workers.size() == 1:  # several workers stop together, after a step
            raise GrowError(f"no time is left: the budget of {self.budget:g} s is used up")
        if self.recipe.reset_each_epoch and self.adapting:
            self.optimizer = self.recipe.build(self.model.parameters())
            self.reset_rate()
        good = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        was_training = self.model.training
        self.model.train()
        try:
            with threads(self.recipe.threads), torch.random.fork_rng(devices=[]):
                torch.set_rng_state(self.noise)
                done = make_steps(self, stop, watch)
                self.noise = torch.get_rng_state()
            if not all(bool(torch.isfinite(p).all()) for p in self.model.parameters()):
                raise self.diverged()
        except GrowError:
            self.model.load_state_dict(good)
            self.optimizer.state.clear()
            raise
        finally:
            self.model.train(was_training)
        workers.same_statistics(self.model)
        self.epochs += 1
        self.last_epoch_s = done.seconds if done.whole else self.last_epoch_s
        self.course = replace(self.course, epochs=self.course.epochs + 1)
        return done

    def set_rate(self, now: float) -> float:
        """Give the optimizer the learning rate of this moment, and return it."""
        rate = self.recipe.lr_at(self.course, now, self.budget)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def note_step(self, loss: float) -> None:
        """Note that a step was made."""
        self.losses.add(loss)
        self.course = replace(self.course, steps=self.course.steps + 1)

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
        before = self._content
        self._content = (model, optimizer, (*self.surgeries, *surgeries), self.course, True)
        if surgeries:
            try:
                self._tell_size()
            except Exception:
                self._content = before
                raise
        wanted = reset if reset is not None else bool(surgeries) or self.recipe.reset_for_nothing
        if surgeries or wanted:
            self._start_anew(reset=wanted)

    @property
    def _content(self) -> Content:
        return self.model, self.optimizer, self.surgeries, self.course, self.adapting

    @_content.setter
    def _content(self, content: Content) -> None:
        self.model, self.optimizer, self.surgeries, self.course, self.adapting = content

    def replace(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Continue with another network (a shrunk one) and the same learning rate schedule.

        With its own `optimizer` the network is taken as it is; otherwise it is copied, and gets a new one.
        """
        self.model = copy.deepcopy(model) if optimizer is None else model
        self.surgeries = tuple(surgeries_of(self.model))
        self.optimizer = self.recipe.build(self.model.parameters()) if optimizer is None else optimizer
        self._tell_size()

    def _start_anew(self, *, reset: bool) -> None:
        """Damp the momentum, and let the learning rate climb to where it is, or to where it is reset."""
        recipe, before = self.recipe, self.lr
        damp_momentum(self.optimizer, recipe.keep_momentum)
        if reset:
            self.reset_rate()
        steps = feed.steps(self.data, recipe.batch)
        climb = min(recipe.warm_up, steps) if steps is not None else recipe.warm_up
        start = min(before, WARM_UP_FROM * self.course.lr)
        self.course = replace(self.course, climb=climb, start=start, steps=0)

    def reset_rate(self) -> None:
        """Reset the learning rate, unless too few epochs are left to reduce it again."""
        rate = self.recipe.rate_after_growth
        planned = self.clock.epoch_time()
        epoch_s = planned if planned is not None else self.last_epoch_s
        needed = self.recipe.reset_needs - ROUNDING
        if rate is None or (epoch_s is not None and self.time_left < epoch_s * needed):
            return
        self.course = Course(rate, self.clock.now())

    def _tell_size(self) -> None:
        flops = self.flops() if self.clock.needs_flops else None
        self.clock.size(self.parameters, flops, self.surgeries)

    def diverged(self) -> Diverged:
        """Return the error for a loss or weights that are not finite."""
        return Diverged(
            f"the loss is not finite in epoch {self.epochs + 1} (learning rate {self.lr:g})",
            hint="the weights are those before that epoch; train with a smaller learning rate (recipe.lr, "
            "recipe.reset) or without noise on copies",
        )

    def evaluate(self, part: feed.Part = "validation") -> float:
        """Return the mean score: by default the share of right answers."""
        return self.measure(part).score

    def measure(self, part: feed.Part = "validation") -> Measured:
        """Return the mean score with its standard error, and the mean loss."""
        with threads(self.recipe.threads), evaluating(self.model):
            return measured(self.model, feed.evaluation(self.data, part), self.score, self.loss, part)

    def fork(self) -> Run:
        """Return an independent copy that would train exactly alike, for an arm of an experiment.

        It has weights, optimizer, clock and random numbers of its own; the data are shared. To branch arms from a saved
        run, `load` it and fork it once for each arm.
        """
        self.optimizer.zero_grad()
        other = copy.copy(self)
        other.model, other.optimizer = copy.deepcopy((self.model, self.optimizer))  # together: they share tensors
        other.clock = copy.deepcopy(self.clock)
        other.generator = self.generator.clone_state()
        other.noise = self.noise.clone()
        other.losses, other.clipping = self.losses.copy(), Clipping(**self.clipping.state())
        return other

    def go_back(self, before: Run) -> None:
        """Continue from an earlier fork of this run, except that the time which has passed since then is spent."""
        epochs, last = self.epochs, self.last_epoch_s
        self.become(before)
        self.epochs, self.last_epoch_s = epochs, last
        self._tell_size()

    def become(self, other: Run) -> None:
        """Take over the content of another run of the same data and settings; the clock stays."""
        self._content = other._content
        self.epochs, self.last_epoch_s = other.epochs, other.last_epoch_s
        self.generator, self.noise = other.generator, other.noise
        self.losses, self.clipping = other.losses, other.clipping

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
