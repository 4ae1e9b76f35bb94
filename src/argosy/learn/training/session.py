"""A training session: stage after stage, update after update, with validations in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from argosy.errors import InputError
from argosy.learn.algorithms.state import State
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.imitation_stage import ImitationStage
from argosy.learn.training.progress import ProgressListener
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.stage import Stage
from argosy.learn.training.stop import OutOfTime, Stop
from argosy.learn.training.student import Arrays, Trainable
from argosy.learn.training.validation import Validation, ValidationResult
from argosy.learn.training.workers import Workers

MARGIN = 1.2  # the next update or validation may take this many times as long as the last
MakeStage = Callable[..., Stage]
ALGORITHMS = {  # imported when needed, since some imports take seconds
    "es": "evolution_stage:EvolutionStage",
    "dl2": "dl2_stage:Dl2Stage",
    "ppo": "episode_stages:PpoStage",
    "sac": "episode_stages:SacStage",
}


def algorithm(name: str) -> MakeStage:
    """Return the stage that learns by this algorithm."""
    module, _, kind = ALGORITHMS[name].partition(":")
    made: MakeStage = getattr(import_module(f"argosy.learn.training.{module}"), kind)
    return made


class Session:
    """Makes updates and validations one by one. `student` and `cases` must have been made from `recipe`."""

    def __init__(
        self,
        recipe: Recipe,
        student: Trainable,
        cases: TrainingCases,
        workers: Workers,
        progress: ProgressListener,
        stop: Stop | None = None,
    ) -> None:
        self.recipe, self.student, self._progress, self._stop = recipe, student, progress, stop or Stop()
        self._workers, self._cases = workers, cases
        self._validation = Validation(recipe, student, cases, workers)
        self._validation.check()
        self._actor = student.actor(torch.Generator().manual_seed(recipe.seed))
        makers: list[MakeStage] = [ImitationStage] if recipe.warm_up + recipe.dagger else []
        self._makers = [*makers, algorithm(recipe.algo)]
        self._number = 0
        self._stage = self._make()
        self.curve: list[ValidationResult] = []
        self.best: ValidationResult | None = None
        self.best_arrays: Arrays = {}
        self.seconds: dict[str, float] = {}
        self._own_s = 0.0  # time that the last update took in this process, without waiting for workers
        self._validation_s = 0.0  # time that the last validation took

    def _make(self) -> Stage:
        return self._makers[self._number](self.recipe, self.student, self._cases, self._actor, self._workers)

    @property
    def last_stage(self) -> bool:
        return self._number == len(self._makers) - 1

    def step(self) -> bool:
        """Make one update, or the validation or change of stage that is due before it; return False at the end.

        Raises `OutOfTime` if it would not be done in time; then nothing has changed.
        """
        began = time.monotonic()
        stage = self._stage
        ended = stage.done >= stage.total or (self.last_stage and self._is_exhausted())
        try:
            if self._is_due(ended) and not self._is_validated():
                self._validate()
            elif not ended:
                figures = self._update()
                self._progress.updated(stage.name, stage.done, stage.total, figures)
            elif self.last_stage:
                return False
            else:
                self._actor.take(stage.arrays())
                self._number += 1
                self._stage, self._own_s = self._make(), 0.0
            return True
        finally:
            self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + time.monotonic() - began

    def _is_due(self, ended: bool) -> bool:
        """Return whether a validation is due: at the end of each stage, and at intervals within the last one."""
        if not self.last_stage:
            return ended
        done = self._stage.done
        return (ended and done > 0) or (done % self.recipe.every == 0 and (done > 0 or not self.curve))

    def _is_validated(self) -> bool:
        last = self.curve[-1] if self.curve else None
        return last is not None and (last.stage, last.update) == (self._stage.name, self._stage.done)

    def _is_exhausted(self) -> bool:
        """Return whether the score has not improved for too long."""
        if not self.recipe.patience or self.best is None:
            return False
        return len(self.curve) - 1 - self.curve.index(self.best) >= self.recipe.patience

    def _update(self) -> dict[str, float]:
        """Make an update if it leaves enough time for a validation, since weights without a score are of no use."""
        end_s = self._stop.end_s - MARGIN * (self._own_s + self._validation_s)
        began, waited_s = time.monotonic(), self._workers.waited_s
        if began >= end_s:
            raise OutOfTime
        self._workers.end_s = end_s
        figures = self._stage.update()
        self._own_s = time.monotonic() - began - (self._workers.waited_s - waited_s)
        return figures

    def validate_last(self) -> None:
        """Validate the weights at which the time ran out; without a time limit, training would not validate here."""
        if self.last_stage and self._stage.done and not self._is_validated():
            self._validate()

    def _validate(self) -> None:
        began, arrays = time.monotonic(), self._stage.arrays()
        self._workers.end_s = self._stop.end_s
        validation = self._validation(self._stage.name, self._stage.done, arrays)
        self._validation_s = time.monotonic() - began
        self.curve.append(validation)
        better = self.best is None or validation.score < self.best.score
        if better:
            self.best, self.best_arrays = validation, arrays
        self._progress.validated(validation, better)

    @property
    def best_updates(self) -> int:
        """Return the number of updates of the last stage that the best weights took."""
        return self.best.update if self.best is not None and self.best.stage == self._last_name() else 0

    def _last_name(self) -> str:
        return self._stage.name if self.last_stage else ""

    @property
    def progress(self) -> tuple[str, int, int]:
        """Return the stage, its updates done, and its updates in all."""
        return self._stage.name, self._stage.done, self._stage.total

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """Return the part of the state that is JSON; `state` has the tensors."""
        curve = [validation.as_dict() for validation in self.curve]
        best = None if self.best is None else self.curve.index(self.best)
        return {"stage": self._number, "curve": curve, "best": best, "seconds": self.seconds}

    def state(self) -> State:
        """Return the tensors of the state."""
        state = {f"stage/{name}": tensor for name, tensor in self._stage.state().items()}
        return state | {f"best/{name}": torch.from_numpy(array) for name, array in self.best_arrays.items()}

    def restore(self, notes: dict[str, Any], state: State) -> None:
        """Continue from a checkpoint."""
        try:
            self._number = int(notes["stage"])
            self.curve = [ValidationResult(**stored) for stored in notes["curve"]]
            self.best = None if notes["best"] is None else self.curve[notes["best"]]
            self.seconds = dict(notes["seconds"])
            self._stage = self._make()
            self._stage.restore({k.removeprefix("stage/"): t for k, t in state.items() if k.startswith("stage/")})
        except (KeyError, TypeError, IndexError, ValueError) as bad:
            raise InputError(f"the checkpoint is damaged: {bad}", hint="remove it and train anew") from None
        self.best_arrays = {k.removeprefix("best/"): t.numpy() for k, t in state.items() if k.startswith("best/")}
