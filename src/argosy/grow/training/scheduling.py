"""Connect a trainer with its scheduler: one clock for both, optional answers, copies, the check at resumption."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argosy.grow.errors import GrowError
from argosy.grow.training.clock import Clock, RealClock
from argosy.grow.training.schedulers import Scheduler


def one_clock(scheduler: Scheduler, clock: Clock | None) -> Clock:
    """Return the clock that the trainer and its scheduler share."""
    theirs: Clock | None = getattr(scheduler, "clock", None)
    if clock is not None and theirs is not None and clock is not theirs:
        raise GrowError(
            "the trainer and its scheduler have different clocks", hint="give the clock to only one of them"
        )
    one = clock or theirs or RealClock()
    if hasattr(scheduler, "clock"):
        scheduler.clock = one
    return one


def optional(owner: object, method: str) -> Any:
    """Return the result of an optional method of a user's object; None if it has no such method."""
    found = getattr(owner, method, None)
    return found() if callable(found) else None


def check_same_settings(saved: Mapping[str, Any] | None, given: Mapping[str, Any] | None, path: str | Path) -> None:
    """Raise an error if a scheduler is configured in another way than the one that a checkpoint was saved with."""
    if saved is None or given is None:
        return
    differing = [name for name in sorted({*saved, *given}) if saved.get(name) != given.get(name)]
    if differing:
        said = "; ".join(f"{name} was {saved.get(name)}, now {given.get(name)}" for name in differing)
        raise GrowError(
            f"the checkpoint was saved with another scheduler: {said}",
            where=str(path),
            hint="give the same times, or another checkpoint path to start again; Trainer.fork changes the scheduler",
        )


def transferred(scheduler: Scheduler, to: Scheduler | None) -> Scheduler:
    """Return the scheduler for a fork: a copy, or the given one, which needs no state of the former."""
    if to is not None:
        return to
    try:
        return copy.deepcopy(scheduler)
    except TypeError as problem:
        raise GrowError(
            f"this {type(scheduler).__name__} cannot be copied: {problem}", hint="give the fork a scheduler of its own"
        ) from None
