"""Show the progress and the results of `argosy train`: a bar with the present score, and tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from argosy.cli._shared import progress_bar, say

if TYPE_CHECKING:
    from argosy.learn.training.progress import ProgressListener
    from argosy.learn.training.recipe import Recipe
    from argosy.learn.training.train import Trained
    from argosy.learn.training.validation import ValidationResult
    from argosy.learn.training.verify import Verified


@contextmanager
def showing_progress(recipe: Recipe, log: Path | None, progress: bool | None) -> Iterator[ProgressListener]:
    """Show a bar, or without a terminal a line for each validation; and log to a folder if one is named."""
    from argosy.learn.training.progress import ProgressGroup, ProgressLog

    with ExitStack() as stack:
        total = recipe.warm_up + recipe.dagger + recipe.updates
        tick = stack.enter_context(progress_bar(recipe.system, total, progress))
        silent = not (sys.stderr.isatty() if progress is None else progress)
        listeners: list[ProgressListener] = [_bar(recipe, tick, say if silent else None)]
        if log is not None:
            listeners.append(stack.enter_context(ProgressLog(log)))
        yield ProgressGroup(*listeners)


def _bar(recipe: Recipe, tick: Callable[..., None], tell: Callable[[str], None] | None) -> ProgressListener:
    from argosy.learn.training.progress import ProgressListener

    class Bar(ProgressListener):
        """Shows the updates of all stages on one bar."""

        def __init__(self) -> None:
            self._score = ""

        def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
            before = 0 if stage == "warm-up" else recipe.warm_up + recipe.dagger
            tick(before + done, what=f"{recipe.system} {stage}{self._score}")

        def validated(self, validation: ValidationResult, best: bool) -> None:
            self._score = f" {validation.over_teacher:.3f} × teacher"
            if tell is not None:
                mark = ", best so far" if best else ""
                tell(f"{validation.stage} {validation.update}: {_in_words(validation)}{mark}")

    return Bar()


def _in_words(validation: ValidationResult) -> str:
    return f"mean JCT {validation.over_teacher:.3f} × teacher's, {validation.score:.3f} × floor"


def present(trained: Trained, output: Path, report: Path | None) -> None:
    """Print the results, and how to continue if the training is not finished."""
    command = ["argosy", *sys.argv[1:]]
    if trained.best is None:
        stage, done, total = trained.reached
        say(
            f"no weights{'' if report is None else ' and no report'} yet: the training ended within the {stage},"
            f" after {done} of {total} updates"
        )
    else:
        show(trained)
        say(f"wrote {output}: {_in_words(trained.best)}")
        if report is not None:
            from argosy.learn.training.page import write_page

            write_page(trained, report, shlex.join(command))
            say(f"report: {report}")
    if trained.ended != "finished":
        again = [word for word in command if word != "--resume"]
        more = ", with more --minutes" if trained.best is None and trained.ended == "out of time" else ""
        say(f"{trained.ended}; to continue{more}: {shlex.join([*again, '--resume'])}")
    if trained.ended == "interrupted":
        raise typer.Exit(130)
    if trained.best is None:
        raise typer.Exit(1)


def show(trained: Trained) -> None:
    """Print the stages, and how good the best weights are by scenario."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from argosy.learn.training.page import HEAD, lines_of

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    stages = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("stage", "updates", "minutes", "× teacher", "× floor"):
        stages.add_column(title, justify="left" if title == "stage" else "right")
    for name, seconds in trained.seconds.items():
        validations = [validation for validation in trained.curve if validation.stage == name]
        if validations:
            best = min(validations, key=lambda validation: validation.score)
            stages.add_row(
                name,
                str(validations[-1].update),
                f"{seconds / 60:.1f}",
                f"{best.over_teacher:.3f}",
                f"{best.score:.3f}",
            )
    console.print(stages)
    assert trained.best is not None
    scenarios = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in HEAD:
        scenarios.add_column(title, justify="left" if title == "scenario" else "right")
    for line in lines_of(trained.best):
        scenarios.add_row(*line)
    console.print(scenarios)


def present_verified(name: str, found: Verified) -> None:
    """Print whether the weights are what their recipe makes."""
    same = "the same weights, bit for bit" if found.same else "different weights (another machine or version?)"
    typer.echo(f"{name}: {found.again:.4f} × floor, shipped {found.shipped:.4f}; {same}")
    if not found.reached:
        say("the score was not reached")
        raise typer.Exit(1)
