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
from argosy.learn.training.watch import Watch
from argosy.learn.training.workers import Workers

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

    def __init__(self, recipe: Recipe, pupil: Pupil, ground: Ground, workers: Workers, watch: Watch) -> None:
        self.recipe, self.pupil, self._watch = recipe, pupil, watch
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

    def _make(self) -> Stage:
        return self._makers[self._number](self.recipe, self.pupil, self._ground, self._actor, self._workers)

    @property
    def last_stage(self) -> bool:
        return self._number == len(self._makers) - 1

    def step(self) -> bool:
        """One update, or what is due before it; False when there is nothing left to do."""
        began = time.monotonic()
        stage = self._stage
        ended = stage.done >= stage.total or (self.last_stage and self._is_exhausted())
        try:
            if self._is_due(ended) and not self._is_judged():
                self._validate()
            elif not ended:
                figures = stage.update()
                self._watch.updated(stage.name, stage.done, stage.total, figures)
            elif self.last_stage:
                return False
            else:
                self._actor.take(stage.arrays())
                self._number += 1
                self._stage = self._make()
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

    def _validate(self) -> None:
        arrays = self._stage.arrays()
        verdict = self._judge(self._stage.name, self._stage.done, arrays)
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
