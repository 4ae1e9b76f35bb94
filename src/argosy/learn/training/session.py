"""One training on its way: stage after stage, update after update, with validations in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from argosy.errors import InputError
from argosy.learn.algorithms.state import State
from argosy.learn.training.ground import Ground
from argosy.learn.training.imitation import Imitation
from argosy.learn.training.judge import Judge, Verdict
from argosy.learn.training.pupil import Arrays, Pupil
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.stage import Stage
from argosy.learn.training.stops import OutOfTime, Stop
from argosy.learn.training.watch import Watch
from argosy.learn.training.workers import Workers

MARGIN = 1.2  # of the last one's time is taken for what the next will need
MakeStage = Callable[..., Stage]
ALGORITHMS = {  # imported when they are needed: some take seconds
    "es": "evolution:Evolving", "dl2": "slots:SlotBySlot", "ppo": "rollouts:ByPpo", "sac": "rollouts:BySac",
}  # fmt: skip


def algorithm(name: str) -> MakeStage:
    """The stage that reinforces in this way."""
    module, _, kind = ALGORITHMS[name].partition(":")
    made: MakeStage = getattr(import_module(f"argosy.learn.training.{module}"), kind)
    return made


class Session:
    """What is done, what is known, and how to go on. `recipe`, `pupil` and `ground` belong together."""

    def __init__(
        self, recipe: Recipe, pupil: Pupil, ground: Ground, workers: Workers, watch: Watch, stop: Stop | None = None
    ) -> None:
        self.recipe, self.pupil, self._watch, self._stop = recipe, pupil, watch, stop or Stop()
        self._workers, self._ground = workers, ground
        self._judge = Judge(recipe, pupil, ground, workers)
        self._judge.check()
        self._actor = pupil.actor(torch.Generator().manual_seed(recipe.seed))
        makers: list[MakeStage] = [Imitation] if recipe.warm_up + recipe.dagger else []
        self._makers = [*makers, algorithm(recipe.algo)]
        self._number = 0
        self._stage = self._make()
        self.curve: list[Verdict] = []
        self.best: Verdict | None = None
        self.best_arrays: Arrays = {}
        self.seconds: dict[str, float] = {}
        self._own_s = 0.0  # what the last update took here, beside what workers did
        self._validation_s = 0.0  # what the last one took

    def _make(self) -> Stage:
        return self._makers[self._number](self.recipe, self.pupil, self._ground, self._actor, self._workers)

    @property
    def last_stage(self) -> bool:
        return self._number == len(self._makers) - 1

    def step(self) -> bool:
        """One update, or what is due before it; False when there is nothing left to do.

        Raises `OutOfTime` rather than begin, or go on with, what will not be done in time; then nothing has changed.
        """
        began = time.monotonic()
        stage = self._stage
        ended = stage.done >= stage.total or (self.last_stage and self._is_exhausted())
        try:
            if self._is_due(ended) and not self._is_judged():
                self._validate()
            elif not ended:
                figures = self._update()
                self._watch.updated(stage.name, stage.done, stage.total, figures)
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
        """Is there something to validate: at a stage's end, and in the last one also on the way."""
        if not self.last_stage:
            return ended
        done = self._stage.done
        return (ended and done > 0) or (done % self.recipe.every == 0 and (done > 0 or not self.curve))

    def _is_judged(self) -> bool:
        last = self.curve[-1] if self.curve else None
        return last is not None and (last.stage, last.update) == (self._stage.name, self._stage.done)

    def _is_exhausted(self) -> bool:
        """Has nothing got better for too long?"""
        if not self.recipe.patience or self.best is None:
            return False
        return len(self.curve) - 1 - self.curve.index(self.best) >= self.recipe.patience

    def _update(self) -> dict[str, float]:
        """Leaves as much time as a validation takes: weights that are not judged are of no use."""
        end_s = self._stop.end_s - MARGIN * (self._own_s + self._validation_s)
        began, waited_s = time.monotonic(), self._workers.waited_s
        if began >= end_s:
            raise OutOfTime
        self._workers.end_s = end_s
        figures = self._stage.update()
        self._own_s = time.monotonic() - began - (self._workers.waited_s - waited_s)
        return figures

    def validate_last(self) -> None:
        """Judge the weights with which the time ended. Makes what follows differ from a run that was not stopped."""
        if self.last_stage and self._stage.done and not self._is_judged():
            self._validate()

    def _validate(self) -> None:
        began, arrays = time.monotonic(), self._stage.arrays()
        self._workers.end_s = self._stop.end_s
        verdict = self._judge(self._stage.name, self._stage.done, arrays)
        self._validation_s = time.monotonic() - began
        self.curve.append(verdict)
        better = self.best is None or verdict.score < self.best.score
        if better:
            self.best, self.best_arrays = verdict, arrays
        self._watch.judged(verdict, better)

    @property
    def best_updates(self) -> int:
        """Updates of the last stage that the best weights took."""
        return self.best.update if self.best is not None and self.best.stage == self._last_name() else 0

    def _last_name(self) -> str:
        return self._stage.name if self.last_stage else ""

    @property
    def progress(self) -> tuple[str, int, int]:
        """Stage, updates done, updates in all."""
        return self._stage.name, self._stage.done, self._stage.total

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """What is no tensor."""
        curve = [verdict.as_dict() for verdict in self.curve]
        best = None if self.best is None else self.curve.index(self.best)
        return {"stage": self._number, "curve": curve, "best": best, "seconds": self.seconds}

    def state(self) -> State:
        """What is."""
        state = {f"stage/{name}": tensor for name, tensor in self._stage.state().items()}
        return state | {f"best/{name}": torch.from_numpy(array) for name, array in self.best_arrays.items()}

    def restore(self, notes: dict[str, Any], state: State) -> None:
        """Go on from there."""
        try:
            self._number = int(notes["stage"])
            self.curve = [Verdict(**stored) for stored in notes["curve"]]
            self.best = None if notes["best"] is None else self.curve[notes["best"]]
            self.seconds = dict(notes["seconds"])
            self._stage = self._make()
            self._stage.restore({k.removeprefix("stage/"): t for k, t in state.items() if k.startswith("stage/")})
        except (KeyError, TypeError, IndexError, ValueError) as bad:
            raise InputError(f"the checkpoint is damaged: {bad}", hint="remove it and train anew") from None
        self.best_arrays = {k.removeprefix("best/"): t.numpy() for k, t in state.items() if k.startswith("best/")}
