"""Train as a scheduler says: grow when GPUs come, shrink when they are taken back, stop when the time is over.

While time is left: when GPUs have come, the agent decides what to do with them; when they have to be given back, they
are given back *first* (an unfinished epoch ends at once), and what was learned is then distilled into the network from
before the growth; otherwise an epoch is trained. Decisions and rewards use validation data only; the test data are used
once, at the end.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from argosy.grow.agents.base import Agent, Situation
from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.record import Operation, Surgery
from argosy.grow.training import checkpoint as checkpoints
from argosy.grow.training import feed, workers
from argosy.grow.training.choices import agent_of, ask, options_of, situation_of
from argosy.grow.training.clock import Clock, RealClock
from argosy.grow.training.journal import Decision, History, Line, progress_bar
from argosy.grow.training.passes import threads
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Loss, Run
from argosy.grow.training.schedulers import Scheduler

SAME = 1e-6  # relative: two figures of the time that is left that mean the same


@dataclass(frozen=True)
class Event:
    """An event for `on_event`: "epoch", "grow", "release", "shrink" or "end"."""

    kind: Literal["epoch", "grow", "release", "shrink", "end"]
    time: float
    detail: Line | Decision | History | None = None


class Trainer:
    """Trains a network for as long as the scheduler gives it, and grows and shrinks it on the way.

    `agent` is "pretrained", an agent's file, an object with `decide`, or None, which never grows. `operations` and
    `widen_by` say what an agent may choose from; with `added`, it may also grow layers that surgery added. `checkpoint`
    is a file that is written after every epoch; if it exists, `fit` continues from there. `on_release()` gives the
    slots back; it is called before anything else is done. `distil` is the share of the time left that may be spent on
    distillation when GPUs are taken back. The given network is not changed; the result is `trainer.model`.
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
        widen_by: float = 1.5,
        added: bool = False,
        distil: float = 1.0,
        loss: Loss | None = None,
        score: Loss | None = None,
        progress: bool | None = None,
    ) -> None:
        if not 0 < distil <= 1:
            raise GrowError(f"distil = {distil:g} is not a share of the time left", hint="give more than 0, at most 1")
        self.scheduler = scheduler
        self.agent = agent_of(agent)
        self.on_event, self.on_release = on_event, on_release
        self.operations, self.widen_by, self.added, self.distil = tuple(operations), widen_by, added, distil
        self.seed, self.progress, self._loss = seed, progress, loss
        self.checkpoint = Path(checkpoint) if checkpoint is not None else None
        if self.checkpoint is not None and not self.checkpoint.parent.is_dir():
            raise GrowError(
                "the checkpoint's folder does not exist", where=str(checkpoint), hint="create the folder first"
            )
        clock = _one_clock(scheduler, clock)
        self.run = Run(model, data, recipe, clock, seed, example=example, loss=loss, score=score)
        self.history = History(scheduler.time_budget())
        self._original = copy.deepcopy(self.run.model)
        self._small: nn.Module | None = None  # the network to go back to while a grown one is trained
        self._done: list[tuple[float, Surgery]] = []

    @property
    def model(self) -> nn.Module:
        """Return the present network."""
        return self.run.model

    def fit(self) -> History:
        """Train until the time is over; after an interruption, a second call continues from the checkpoint."""
        if self.checkpoint is not None and self.checkpoint.is_file():
            self._resume(self.checkpoint)
        with progress_bar(self.progress if workers.rank() == 0 else False) as show:
            while self.history.test is None:
                left, allocation = self._ask()
                if left <= 0:
                    break
                if allocation == "up":
                    self._up(left)
                elif allocation == "down":
                    self._down(left)
                    continue
                self._epoch()
                show(self.history)
        if self.history.test is None and self._has("test"):
            self.history.test = self.run.evaluate("test")
            self._save()
        self._tell("end", self.history)
        return self.history

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
        epoch = self.run.train_epoch(getattr(self.scheduler, "wants_back", None))
        self._tell("epoch", self._note(epoch.seconds, epoch.loss, epoch.steps, epoch.lr))

    def _note(self, seconds: float, loss: float | None = None, steps: int = 0, lr: float = 0.0) -> Line:
        """Add a line with the network's validation score to the history, and save a checkpoint."""
        score = self.run.evaluate("validation") if self._has("validation") else None
        line = Line(self.run.clock.now(), seconds, loss, lr, score, self.run.parameters, steps)
        self.history.lines.append(line)
        self._save()
        return line

    def _up(self, left: float) -> None:
        """Ask the agent on the first worker, and do on every worker what it says."""
        answer: dict[str, Any] = {}
        if workers.rank() == 0 and self.agent is not None:
            chosen, why = ask(self.agent, self._situation(left))
            answer = {"surgeries": [s.to_dict() for s in chosen], "why": why}
        answer = workers.agree(answer)
        surgeries = tuple(Surgery.from_dict(s) for s in answer.get("surgeries", ()))
        before, refused = self.run.model, ""
        try:
            self.run.grow(surgeries)
        except GrowError as problem:
            refused = str(problem)
        else:
            if surgeries and self._small is None:
                self._small = copy.deepcopy(before)
            self._done += [(left, s) for s in surgeries]
        why = answer.get("why", "no agent")
        decision = Decision(self.run.clock.now(), left, "up", surgeries, why, refused)
        self.history.decisions.append(decision)
        self._tell("grow", decision)

    def _down(self, left: float) -> None:
        """Give the slots back at once, and only then distil into the small network."""
        if self.on_release is not None:
            self.on_release()
        now = self.run.clock.now()
        why = "GPUs were taken away" if self._small is not None else "GPUs were taken away; nothing had been grown"
        decision = Decision(now, left, "down", (), why)
        self.history.decisions.append(decision)
        self._tell("release", decision)
        if self._small is None:
            return
        self.run.replace(self._shrunk(self._small))
        workers.same_start(self.run.model)
        self._small, self._done = None, []
        self._note(self.run.clock.now() - now)
        self._tell("shrink", decision)

    def _shrunk(self, small: nn.Module) -> nn.Module:
        """Return the small network after distillation from the grown one."""
        from argosy.grow.training import distill

        run, bigger = self.run, self.run.model
        if all(s.op == "replicate" for s in run.surgeries[len(surgeries_of(small)) :]):  # the network is the same
            small.load_state_dict(bigger.state_dict())
            return small
        run.replace(small)  # from now on the clock counts the small network's epochs
        with threads(run.recipe.threads):
            return distill.shrink(
                bigger,
                small,
                run.data,
                clock=run.clock,
                batch=run.recipe.batch,
                loss=self._loss,
                seed=self.seed,
                **self._distillation_time(),
            )

    def _distillation_time(self) -> dict[str, float]:
        """Return the time for distillation: in seconds, or in epochs if the workers' own clocks would differ."""
        seconds = self.distil * self.run.time_left
        if workers.size() == 1 or self.run.clock.epoch_time() is not None:
            return {"seconds": seconds}
        return {"epochs": float(workers.agree(seconds / (self.run.last_epoch_s or seconds or 1.0)))}

    def _situation(self, left: float) -> Situation:
        scheduler, lines = self.scheduler, self.history.lines
        more = _optional(scheduler, "decisions_left")
        return situation_of(
            self._original,
            self.run.example,
            self.options(),
            left,
            float(scheduler.time_budget()),
            self._done,
            decisions_left=1 + int(more) if more is not None else 1,
            epoch_s=lines[-1].seconds if lines else self.run.clock.epoch_time(),
            gpus_gained=_optional(scheduler, "gpus_gained"),
            utilisation=_optional(scheduler, "utilisation"),
        )

    def options(self) -> tuple[Surgery, ...]:
        """Return the surgeries from which an agent may choose now."""
        return options_of(self.run.model, self.run.example, self.operations, self.widen_by, added=self.added)

    def _has(self, part: Literal["validation", "test"]) -> bool:
        data = self.run.data
        if isinstance(data, Data):
            return len(data.val_y if part == "validation" else data.test_y) > 0
        return getattr(data, part) is not None

    def _tell(self, kind: Literal["epoch", "grow", "release", "shrink", "end"], detail: Any) -> None:
        if self.on_event is not None:
            self.on_event(Event(kind, self.run.clock.now(), detail))

    def _save(self) -> None:
        if self.checkpoint is None or workers.rank() > 0:
            return
        more = {
            "history": self.history.to_dict(),
            "done": [[left, s.to_dict()] for left, s in self._done],
            "scheduler": _optional(self.scheduler, "state"),
            "agent": _optional(self.agent, "state"),
        }
        checkpoints.save(self.run, self.checkpoint, more=more, small=self._small)

    def _resume(self, path: Path) -> None:
        run = self.run
        if run.epochs:  # fit() was called again on the same object: continue from what is in memory
            return
        more, self._small = checkpoints.resume(run, path)
        self.history = History.from_dict(more["history"])
        self._done = [(left, Surgery.from_dict(s)) for left, s in more["done"]]
        for owner, state in ((self.scheduler, more["scheduler"]), (self.agent, more["agent"])):
            restore = getattr(owner, "restore", None)
            if state is not None and callable(restore):
                restore(state)


def _one_clock(scheduler: Scheduler, clock: Clock | None) -> Clock:
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


def _optional(owner: object, method: str) -> Any:
    """Return the result of an optional method of a user's object; None if it has no such method."""
    found = getattr(owner, method, None)
    return found() if callable(found) else None
