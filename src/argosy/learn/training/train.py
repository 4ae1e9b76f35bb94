"""Train by a recipe, from the first update or from a checkpoint, and write the weights to a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from argosy.errors import InputError
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.errors import TrainingError
from argosy.learn.training import checkpoint
from argosy.learn.training.cases import VALIDATION_SEED, TrainingCases
from argosy.learn.training.progress import ProgressListener
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.session import Session
from argosy.learn.training.stop import INTERRUPTED, OUT_OF_TIME, OutOfTime, Stop, ctrl_c
from argosy.learn.training.student_choice import student_of
from argosy.learn.training.threads import single_thread
from argosy.learn.training.validation import ValidationResult
from argosy.learn.training.workers import Workers
from argosy.policies.base import create
from argosy.report.tables import versions
from argosy.sim.warm import warm_up
from argosy.zoo import Weights, write

SAVE_EVERY_S = 60.0


@dataclass(frozen=True, eq=False)
class Trained:
    """Holds the outcome of a training run; before the first validation there are no weights.

    `ended`: "finished", "interrupted" or "out of time".
    """

    weights: Weights | None
    best: ValidationResult | None
    curve: tuple[ValidationResult, ...]
    seconds: dict[str, float]  # by stage
    ended: str
    reached: tuple[str, int, int]  # stage, updates done, updates in all


def train(
    recipe: Recipe,
    output: Path | None = None,
    *,
    data: Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    minutes: float | None = None,
    since_s: float | None = None,
    resume: bool = False,
    progress: ProgressListener | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Trained:
    """Make the weights of a recipe. Without `output` nothing is written, and there is nothing to resume.

    The `minutes` count from `since_s`, by `time.monotonic`; default: from now. `progress` is called after every update
    and validation, `say` with messages for the user.
    """
    if minutes is not None and not minutes > 0:
        raise InputError(f"--minutes {minutes:g} leaves no time to train", hint="give more than 0")
    if recipe.measured != (data is not None):
        hint = "name the folder with --data" if recipe.measured else "leave out --data"
        raise InputError(f"the recipe is {'' if recipe.measured else 'not '}for real data from a folder", hint=hint)
    stop = Stop(minutes, since_s)
    cases = TrainingCases.of(recipe, data)
    cases.check()
    create(cases.source(TRAINING_SEEDS[0]).spec(recipe.teacher))  # raises an error if the teacher is unknown
    kept = None if output is None else checkpoint.path_beside(output)
    found = _find_checkpoint(recipe, kept, resume)
    warm_up(say)
    with single_thread(), Workers(workers, ray) as crew:
        session = Session(recipe, student_of(recipe, cases), cases, crew, progress or ProgressListener(), stop)
        if found is not None:
            session.restore(found.notes, found.state)
        return _run(session, output, kept, stop, say)


def _find_checkpoint(recipe: Recipe, path: Path | None, resume: bool) -> checkpoint.Checkpoint | None:
    if resume:
        if path is None:
            raise InputError("there is nothing to resume without an output file")
        return checkpoint.load(path, recipe)
    if path is not None and path.exists():
        hint = "continue with --resume, or remove the file to train anew"
        raise InputError("there is already a checkpoint of an interrupted training", where=str(path), hint=hint)
    return None


def _run(session: Session, output: Path | None, kept: Path | None, stop: Stop, say: Callable[[str], None]) -> Trained:
    saved = time.monotonic()

    def save() -> None:
        nonlocal saved
        if kept is not None:
            checkpoint.save(checkpoint.Checkpoint(session.recipe, session.notes(), session.state()), kept)
            saved = time.monotonic()

    ended = "finished"
    with ctrl_c(stop, say):
        try:
            while session.step():
                if stop.interrupted:
                    ended = INTERRUPTED
                    save()
                    break
                if time.monotonic() - saved > SAVE_EVERY_S:
                    save()
        except OutOfTime:
            ended = OUT_OF_TIME
            save()  # before the last validation, which an uninterrupted run would not have made
            with suppress(OutOfTime):
                session.validate_last()
        except TrainingError as problem:
            _keep_best(session, output, say)
            raise problem
    trained = _trained(session, ended, output)
    if output is not None and kept is not None:
        if trained.weights is not None:
            write(trained.weights, output)
        if ended == "finished":
            kept.unlink(missing_ok=True)
    return trained


def _keep_best(session: Session, output: Path | None, say: Callable[[str], None]) -> None:
    """Write the best weights so far, after a failure."""
    kept = _trained(session, "failed", output).weights
    if output is not None and kept is not None and session.best is not None:
        write(kept, output)
        say(f"wrote the best weights so far, of update {session.best.update} of {session.best.stage}: {output}")


def _trained(session: Session, ended: str, output: Path | None) -> Trained:
    weights = None
    if session.best is not None:
        about = describe(session, output.name if output is not None else f"{session.recipe.system}.safetensors")
        weights = Weights(session.best_arrays, about, str(output or "memory"))
    return Trained(weights, session.best, tuple(session.curve), dict(session.seconds), ended, session.progress)


def describe(session: Session, output: str) -> dict[str, Any]:
    """Return what is written with the weights: what they are for, how they were made, how good they are."""
    best, recipe = session.best, session.recipe.with_updates(session.best_updates)
    assert best is not None
    return {
        **session.student.about(),
        "system": recipe.system,
        "command": recipe.command(output),
        "recipe": recipe.as_dict(),
        "seed": recipe.seed,
        "window": {
            "scenario": recipe.scenario,
            "training_seeds": list(TRAINING_SEEDS),
            "validation_seeds": [VALIDATION_SEED, VALIDATION_SEED + recipe.windows],
        },
        "score": best.as_dict(),
        "curve": [[v.stage, v.update, round(v.score, 5), round(v.over_teacher, 5)] for v in session.curve],
        "updates": recipe.updates,
        "minutes": round(sum(session.seconds.values()) / 60.0, 1),
        "versions": versions() | {"torch": torch.__version__},
    }
