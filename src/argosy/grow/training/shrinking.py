"""Go back to the small network when GPUs are taken away, with what the grown one has learned, if that is possible."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from torch import nn

from argosy.grow.surgery.history import surgeries_of
from argosy.grow.training import workers
from argosy.grow.training.choices import one_line
from argosy.grow.training.distill import Distillation, Taught, taught
from argosy.grow.training.measure import Loss
from argosy.grow.training.passes import threads
from argosy.grow.training.run import Run
from argosy.grow.training.students import Own


def shrunk(
    run: Run, small: nn.Module, share: float, how: Distillation | None, *, loss: Loss | None, seed: int
) -> tuple[str, str]:
    """Continue a run with its small network, after distillation in this share of the time that is left.

    Without settings (`how`) the small network goes on in the job's own way: its optimizer, its data in their order, and
    its learning rate, which is reset as after growth. If distillation fails, the run continues with the network as it
    was before growth. What was done is returned, and why it failed, if it did.
    """
    problem, found, before = "", Taught(small, None, 0, ""), (run.course, run.generator.get_state())
    try:
        found = _distilled(run, copy.deepcopy(small), share, how, loss, seed)
    except Exception as error:  # the GPUs are gone, so the small network must do, with what it knew
        problem = one_line(error)
    problem = workers.any_problem(problem)
    if problem:
        run.course = before[0]
        run.generator.set_state(before[1])
        found = Taught(small, None, 0, "")
    run.replace(found.model, found.optimizer)
    run.course = replace(run.course, steps=run.course.steps + found.steps)
    workers.same_start(run.model)
    return found.what, problem


def _distilled(
    run: Run, small: nn.Module, share: float, how: Distillation | None, loss: Loss | None, seed: int
) -> Taught:
    bigger = run.model
    if all(s.op == "replicate" for s in run.surgeries[len(surgeries_of(small)) :]):  # the network is the same
        small.load_state_dict(bigger.state_dict())
        return Taught(small, None, 0, "")
    run.replace(small)  # from now on the clock counts the small network's epochs
    given, own = how or Distillation(batch=max(run.recipe.batch, 2)), None
    time = _time(run, share)
    if how is None:
        run.reset_rate()
        begin, seconds = run.clock.now(), share * run.time_left
        own = Own(run.recipe, run.course, begin, seconds, run.budget, run.generator)
    with threads(run.recipe.threads):
        return taught(bigger, small, run.data, given, clock=run.clock, loss=loss, seed=seed, own=own, **time)


def _time(run: Run, share: float) -> dict[str, Any]:
    """Return the time for distillation: in seconds, or in epochs if the workers' own clocks would differ."""
    seconds = share * run.time_left
    if workers.size() == 1 or run.clock.epoch_time() is not None:
        return {"seconds": seconds}
    return {"epochs": float(workers.agree(seconds / (run.last_epoch_s or seconds or 1.0)))}
