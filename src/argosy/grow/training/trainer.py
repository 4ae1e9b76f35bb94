"""Train as a scheduler says: grow when GPUs come, shrink when they are taken back, stop when the time is over.

While time is left: when GPUs have come, the agent decides what to do with them; when they have to be given back, they
are given back *first* (an unfinished epoch ends at once), and what was learned is then distilled into the network from
before the growth; otherwise an epoch is trained. Growth that does harm is rolled back (`growing.py`, `guard.py`).
Decisions and rewards use validation data only; the test data are used once, at the end.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from argosy.errors import UnknownName
from argosy.grow.agents.base import Agent, Situation
from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import OPERATIONS, Operation, Surgery
from argosy.grow.training import checkpoint as checkpoints
from argosy.grow.training import feed, workers
from argosy.grow.training.choices import agent_of, check_widening, options_of
from argosy.grow.training.clock import Clock
from argosy.grow.training.distill import Distillation
from argosy.grow.training.growing import Growing
from argosy.grow.training.guard import Guard
from argosy.grow.training.journal import Decision, History, Line, progress_bar
from argosy.grow.training.measure import Loss
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Run
from argosy.grow.training.schedulers import Scheduler
from argosy.grow.training.scheduling import check_same_settings, one_clock, optional, transferred
from argosy.grow.training.shrinking import shrunk
from argosy.grow.training.situations import facts_of, situation_of

SAME = 1e-6  # relative: two figures of the time that is left that mean the same
DEFAULT_GUARD = Guard()
Kind = Literal["epoch", "grow", "roll back", "release", "shrink", "end"]


@dataclass(frozen=True)
class Event:
    """An event for `on_event`: "epoch", "grow", "roll back", "release", "shrink" or "end"."""

    kind: Kind
    time: float
    detail: Line | Decision | History | None = None


class Trainer:
    """Trains a network for as long as the scheduler gives it, and grows and shrinks it on the way.

    `agent` is "pretrained", an agent's file, an object with `decide`, or None, which never grows. `operations` and
    the `widen_` arguments say what an agent may choose from (`widen_by` may be several factors, `widen_init` is "copy"
    or "fresh"); with `added`, it may also grow layers that surgery added. `guard` says how growth is watched and rolled
    back; None trusts it. `checkpoint` is a file that is written after every epoch; if it exists, `fit` continues from
    there. `on_release()` gives the slots back; it is called before anything else is done. `distil` is the share of the
    time left that may be spent on distillation when GPUs are taken back, and `distillation` says how. The given network
    is not changed; the result is `trainer.model`.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data | feed.Loaders | Iterable[feed.Batch],
        scheduler: Scheduler,
        agent: Agent | str | Path | None = None,
        *,
        recipe: Recipe | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        example: Any = None,
        checkpoint: str | Path | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_release: Callable[[], None] | None = None,
        operations: Sequence[Operation] = ("deepen", "widen"),
        widen_by: float | Sequence[float] = 1.5,
        widen_init: str = "",
        widen_noise: float = 0.0,
        added: bool = False,
        guard: Guard | None = DEFAULT_GUARD,
        distil: float = 1.0,
        distillation: Distillation | None = None,
        loss: Loss | None = None,
        score: Loss | None = None,
        progress: bool | None = None,
    ) -> None:
        if not 0 < distil <= 1:
            raise GrowError(f"distil = {distil:g} is not a share of the time left", hint="give more than 0, at most 1")
        for operation in operations:
            if operation not in OPERATIONS:
                raise UnknownName("operation", operation, OPERATIONS)
        check_widening(widen_by, widen_init, widen_noise)
        if guard is not None and not isinstance(guard, Guard):
            raise GrowError(
                f"guard = {guard!r} is not a Guard", hint="give grow.Guard(probation=2), or None for no guard"
            )
        self.scheduler = scheduler
        self.on_event, self.on_release = on_event, on_release
        self.operations, self.widen_by, self.added = tuple(operations), widen_by, added
        self.widen_init, self.widen_noise = widen_init, widen_noise
        self.distil, self.distillation = distil, distillation
        self.seed, self.progress, self._loss = seed, progress, loss
        self.checkpoint = _checked(checkpoint)
        clock = one_clock(scheduler, clock)
        agent = agent_of(agent)
        self.run = Run(model, data, recipe, clock, seed, example=example, loss=loss, score=score)
        self.history = History(scheduler.time_budget())
        self.growing = Growing(self.run, agent, self.history, guard)

    @property
    def model(self) -> nn.Module:
        """Return the present network."""
        return self.run.model

    @property
    def agent(self) -> Agent | None:
        """Return the agent that decides how the network grows."""
        return self.growing.agent

    def fit(self, until: float | None = None) -> History:
        """Train until the time is over; after an interruption, a second call continues from the checkpoint.

        With `until` training pauses after the epoch in which the clock reaches this time; see `fork`.
        """
        if self.checkpoint is not None and self.checkpoint.is_file():
            self._resume(self.checkpoint)
        self.growing.check()
        with progress_bar(self.progress if workers.rank() == 0 else False) as show:
            while self.history.test is None:
                if until is not None and workers.agree(self.run.clock.now() >= until):
                    return self.history
                left, allocation = self._ask()
                if left <= 0:
                    break
                if allocation == "up":
                    decision = self.growing.up(left, self._situation)
                    self._tell("grow", decision)
                elif allocation == "down":
                    self._down(left)
                    continue
                self._epoch()
                show(self.history)
        self._end()
        return self.history

    def fork(
        self,
        agent: Agent | str | Path | Literal["same"] | None = "same",
        *,
        scheduler: Scheduler | None = None,
        checkpoint: str | Path | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Trainer:
        """Return a trainer with the same past and, unless something is replaced, the same future.

        Arms of an experiment branch from one point, for instance after `fit(until=...)`: they share nothing but the
        data. `scheduler` replaces this trainer's; it is needed if that one cannot be copied.
        """
        other = copy.copy(self)
        other.run = self.run.fork()
        other.scheduler = transferred(self.scheduler, scheduler)
        if hasattr(other.scheduler, "clock"):
            other.scheduler.clock = other.run.clock
        other.checkpoint, other.on_event = _checked(checkpoint), on_event
        other.history = History.from_dict(self.history.to_dict())
        other.growing = self.growing.fork(other.run, other.history)
        if agent != "same":
            other.growing.agent = agent_of(agent)
        return other

    def _ask(self) -> tuple[float, str]:
        """Ask the scheduler of the first worker, which decides for all."""
        answer: list[Any] = []
        if workers.rank() == 0:
            left = float(self.scheduler.time_left())
            budget = float(self.scheduler.time_budget())
            answer = [left, self.scheduler.allocation() if left > 0 else "none", budget]
        left, allocation, budget = workers.agree(answer)
        if allocation not in ("up", "down", "none"):
            raise GrowError(
                f"the scheduler answered {allocation!r}", hint='allocation() must return "up", "down" or "none"'
            )
        end = self.run.clock.now() + left
        self.run.budget = budget if abs(end - budget) <= SAME * budget else end
        self.history.budget = budget
        return (left if self.run.time_left > 0 or workers.size() > 1 else 0.0), allocation

    def _epoch(self) -> None:
        """Train an epoch, and judge it if the network has grown; if growth has done harm, roll it back."""
        line, harm = None, None
        try:
            epoch = self.run.train_epoch(getattr(self.scheduler, "wants_back", None), self.growing.watch)
            line = self._line(epoch.seconds, epoch.loss, epoch.steps, epoch.lr)
            self.growing.judge(line.validation)
        except Exception as problem:
            if self.growing.trial is None:
                raise
            harm = problem
        if line is not None:
            self.history.lines.append(line)
        decision = self._back(harm) if harm is not None else None
        self._save()
        if line is not None:
            self._tell("epoch", line)
        if decision is not None:
            self._tell("roll back", decision)

    def _line(self, seconds: float, loss: float | None = None, steps: int = 0, lr: float = 0.0) -> Line:
        """Return a line for the history, with the network's validation score."""
        score, validation_loss = None, None
        if self._has("validation"):
            found = self.run.measure("validation")
            score, validation_loss, self.growing.error = workers.agree([found.score, _finite(found.loss), found.error])
        now, size = self.run.clock.now(), self.run.parameters
        return Line(now, seconds, loss, lr, score, size, steps, validation_loss)

    def _back(self, harm: Exception) -> Decision:
        """Roll growth back. The time that it took stays spent."""
        decision = self.growing.back(harm, self.run.time_left)
        last = self.history.lines[-1].time if self.history.lines else 0.0
        self.history.lines.append(self._line(max(self.run.clock.now() - last, 0.0)))
        return decision

    def _end(self) -> None:
        """Choose the better network if growth is still undecided, and use the test data."""
        if self.history.test is not None:
            self._tell("end", self.history)
            return
        decision = None
        try:
            self.growing.end(self.history.validation)
        except GrowError as problem:
            decision = self._back(problem)
        self.growing.ended(self.history.validation)
        if self._has("test"):
            self.history.test = self.run.evaluate("test")
        if decision is not None or self.history.test is not None:
            self._save()
        if decision is not None:
            self._tell("roll back", decision)
        self._tell("end", self.history)

    def _down(self, left: float) -> None:
        """Give the slots back at once, and only then distil into the small network."""
        if self.on_release is not None:
            self.on_release()
        now, small = self.run.clock.now(), self.growing.small
        why = "GPUs were taken away" if small is not None else "GPUs were taken away; nothing had been grown"
        decision = Decision(now, left, "down", (), why)
        self.history.decisions.append(decision)
        self._tell("release", decision)
        if small is None:
            return
        what, problem = shrunk(self.run, small, self.distil, self.distillation, loss=self._loss, seed=self.seed)
        if problem:
            what = f"distillation failed, so the network is as it was before growth: {problem}"
        if what:
            decision = self.history.decisions[-1] = replace(decision, why=f"{why}; {what}")
        line = self._line(self.run.clock.now() - now)
        self.history.lines.append(line)
        self.growing.shrunk(line.validation, self.run.time_left)
        self._save()
        self._tell("shrink", decision)

    def _situation(self, left: float) -> Situation:
        scheduler, lines = self.scheduler, self.history.lines
        more = optional(scheduler, "decisions_left")
        return situation_of(
            self.growing.original,
            self.run.example,
            self.options(),
            left,
            float(scheduler.time_budget()),
            self.growing.done,
            decisions_left=1 + int(more) if more is not None else 1,
            epoch_s=lines[-1].seconds if lines else self.run.clock.epoch_time(),
            gpus_gained=optional(scheduler, "gpus_gained"),
            utilisation=optional(scheduler, "utilisation"),
            **facts_of(self.run, lines),
        )

    def options(self) -> tuple[Surgery, ...]:
        """Return the surgeries from which an agent may choose now."""
        return options_of(
            self.run.model,
            self.run.example,
            self.operations,
            self.widen_by,
            added=self.added,
            widen_init=self.widen_init,
            widen_noise=self.widen_noise,
        )

    def _has(self, part: Literal["validation", "test"]) -> bool:
        data = self.run.data
        if isinstance(data, Data):
            return len(data.val_y if part == "validation" else data.test_y) > 0
        return getattr(data, part) is not None

    def _tell(self, kind: Kind, detail: Any) -> None:
        if self.on_event is not None:
            self.on_event(Event(kind, self.run.clock.now(), detail))

    def _save(self) -> None:
        growing = self.growing
        if self.checkpoint is not None and workers.rank() == 0:
            more = {
                "history": self.history.to_dict(),
                "growing": growing.state(),
                "scheduler": optional(self.scheduler, "state"),
                "scheduled": optional(self.scheduler, "settings"),
                "agent": optional(self.agent, "state"),
            }
            kept = growing.trial.kept.in_memory if growing.trial is not None else None
            checkpoints.save(self.run, self.checkpoint, more=more, small=growing.small, kept=kept)
        growing.saved()

    def _resume(self, path: Path) -> None:
        run = self.run
        if run.epochs:  # fit() was called again on the same object: continue from what is in memory
            return
        more, small, kept = checkpoints.resume(run, path)
        check_same_settings(more["scheduled"], optional(self.scheduler, "settings"), path)
        self.history = self.growing.history = History.from_dict(more["history"])
        self.growing.restore(more["growing"], small, kept)
        for owner, state in ((self.scheduler, more["scheduler"]), (self.agent, more["agent"])):
            restore = getattr(owner, "restore", None)
            if state is not None and callable(restore):
                restore(state)


def _checked(checkpoint: str | Path | None) -> Path | None:
    """Return the path of a checkpoint, if its folder exists."""
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and not path.parent.is_dir():
        raise GrowError("the checkpoint's folder does not exist", where=str(path), hint="create the folder first")
    return path


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
