"""Make the steps of one epoch: forward, backward, the learning rate of the moment, and the end when time is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from argosy.grow.errors import Diverged, GrowError
from argosy.grow.training import feed, workers
from argosy.grow.training.passes import forward

if TYPE_CHECKING:
    from argosy.grow.training.run import Run

ROUNDING = 1e-6  # part of a step: a step for which less time than this is missing counts as whole

Watch = Callable[[float, Sequence[nn.Parameter]], None]  # is told loss and parameters before each step of the optimizer


@dataclass(frozen=True)
class Epoch:
    """Holds the figures of one epoch: its end, its duration, the mean loss, the last learning rate."""

    time: float
    seconds: float
    loss: float | None  # None: there was no time for even one step
    lr: float
    steps: int
    whole: bool  # False: it ended early


def make_steps(run: Run, stop: Callable[[float], bool] | None, watch: Watch | None) -> Epoch:
    """Make the steps of an epoch, or those that fit into the time that is left, and advance the clock.

    If a step fails, the clock still advances by the time that was spent.
    """
    parameters = list(run.model.parameters())
    together = workers.size() > 1
    begin, left = run.clock.now(), run.time_left
    planned, steps = run.clock.epoch_time(), feed.steps(run.data, run.recipe.batch)
    step_s = planned / steps if planned is not None and steps else None
    most: float = math.inf
    if step_s is not None and steps is not None:
        most = min(steps, math.floor(min(left / step_s, steps) + ROUNDING))
    whole = step_s is None or most == steps
    total, taken, lr, late = 0.0, 0, run.lr, False
    batches: Iterator[tuple[Any, Any, float]] = feed.training(run.data, run.recipe.batch, run.generator)
    try:
        for x, y, weight in batches if most else ():
            lr = run.set_rate(begin + taken * step_s if step_s is not None else run.clock.now())
            value, problem = _gradients(run, x, y, weight, together=together)
            now = begin + (taken + 1) * step_s if step_s is not None else run.clock.now()
            late = (planned is None and now >= run.budget) or (stop is not None and stop(now))
            if together:
                value, late = workers.average(parameters, value, late)
            if not math.isfinite(value):
                raise run.diverged() from problem
            if watch is not None:
                watch(value, parameters)
            if run.recipe.clip is not None:
                run.clipping.step(parameters, run.recipe.clip, grown=bool(run.surgeries))
            run.optimizer.step()
            run.note_step(value)
            total += value
            taken += 1
            if late:
                whole = steps == taken
                break
            if taken >= most:
                break
        if not taken and most:
            raise GrowError("the training data have no batches", hint="an iterator may be exhausted; give a DataLoader")
    except Exception:
        if step_s is not None:
            run.clock.advance(min((taken + 1) * step_s, left))
        raise
    seconds = run.clock.now() - begin if planned is None else min(planned, left)
    if late and not whole and step_s is not None:
        seconds = taken * step_s
    run.clock.advance(seconds)
    return Epoch(run.clock.now(), seconds, total / taken if taken else None, lr, taken, whole)


def _gradients(run: Run, x: Any, y: Any, weight: float, *, together: bool) -> tuple[float, Exception | None]:
    """Compute the gradients of a batch, and return its loss.

    With several workers an error is returned with a loss that is not finite, so that no worker waits for another.
    """
    run.optimizer.zero_grad()
    try:
        device = next(run.model.parameters()).device
        loss = run.loss(forward(run.model, x, device), y.to(device))
        if weight != 1.0:
            loss = loss * weight
        value = loss.item()
        if together or math.isfinite(value):
            loss.backward()  # type: ignore[no-untyped-call]
        return value, None
    except Exception as problem:
        if not together:
            raise
        return math.nan, problem


def check_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Raise `Diverged` if a gradient is not finite."""
    for parameter in parameters:
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            raise Diverged("a gradient is not finite")
