"""Go back to the small network when GPUs are taken away, with what the grown one has learned, if that is possible."""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

from torch import nn

from argosy.grow.surgery.history import surgeries_of
from argosy.grow.training import distill, workers
from argosy.grow.training.choices import one_line
from argosy.grow.training.distill import Distillation
from argosy.grow.training.measure import Loss
from argosy.grow.training.passes import threads
from argosy.grow.training.run import Run


def shrunk(run: Run, small: nn.Module, share: float, how: Distillation | None, *, loss: Loss | None, seed: int) -> str:
    """Continue a run with its small network, after distillation in this share of the time that is left.

    If distillation fails, the run continues with the network as it was before growth; the reason is returned.
    """
    problem, found = "", small
    try:
        found = _distilled(run, copy.deepcopy(small), share, how, loss, seed)
    except Exception as error:  # the GPUs are gone, so the small network must do, with what it knew
        problem = one_line(error)
    problem = workers.any_problem(problem)
    run.replace(small if problem else found)
    workers.same_start(run.model)
    return problem


def _distilled(
    run: Run, small: nn.Module, share: float, how: Distillation | None, loss: Loss | None, seed: int
) -> nn.Module:
    bigger = run.model
    if all(s.op == "replicate" for s in run.surgeries[len(surgeries_of(small)) :]):  # the network is the same
        small.load_state_dict(bigger.state_dict())
        return small
    run.replace(small)  # from now on the clock counts the small network's epochs
    settings: dict[str, Any] = {"batch": run.recipe.batch} if how is None else asdict(how)
    with threads(run.recipe.threads):
        return distill.shrink(
            bigger, small, run.data, clock=run.clock, loss=loss, seed=seed, **settings, **_time(run, share)
        )


def _time(run: Run, share: float) -> dict[str, Any]:
    """Return the time for distillation: in seconds, or in epochs if the workers' own clocks would differ."""
    seconds = share * run.time_left
    if workers.size() == 1 or run.clock.epoch_time() is not None:
        return {"seconds": seconds}
    return {"epochs": float(workers.agree(seconds / (run.last_epoch_s or seconds or 1.0)))}
