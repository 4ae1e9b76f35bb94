"""Shared parts of several commands: read inputs, check outputs, print answers, show progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.errors import InputError, TraceError

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.sim.compare import Recipe
    from argosy.workload.trace import Trace


class Output(StrEnum):
    """The format in which an answer is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


WORKLOAD = "Which jobs: a trace, or generated ones"
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", "-t", help="a file: .csv, .csv.gz or .parquet", rich_help_panel=WORKLOAD),
]
LikeOption = Annotated[
    str | None,
    typer.Option(help="generate jobs like philly, helios, pai, acme, gavel, pollux or dl2", rich_help_panel=WORKLOAD),
]
JobsOption = Annotated[int, typer.Option(help="with --like: how many jobs", rich_help_panel=WORKLOAD)]
DaysOption = Annotated[
    float | None,
    typer.Option(help="with --like: span of their arrivals; default: the source's", rich_help_panel=WORKLOAD),
]
LoadOption = Annotated[
    float | None, typer.Option(help="with --like: offered load, instead of --days", rich_help_panel=WORKLOAD)
]
ClusterOption = Annotated[
    str, typer.Option("--cluster", "-c", help="a YAML or CSV file, or a preset's name, see docs/clusters.md")
]
ReportOption = Annotated[
    Path | None, typer.Option(help="write the whole comparison as one HTML page that works offline")
]
RayOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="run them on Ray: HOST:PORT of its head, auto, or local")
]
WorkersOption = Annotated[int | None, typer.Option("--workers", "-j", help="processes; default: one for each core")]
SeedOption = Annotated[int, typer.Option(help="seed of all random numbers")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="how the answer is printed")]
WindowOption = Annotated[
    str | None,
    typer.Option(help="measure only jobs submitted in FROM..TO, such as 1d..6d", metavar="FROM..TO"),
]
ProgressOption = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="show a progress bar; default: if stderr is a terminal")
]


def at_least(option: str, least: int, value: int | None) -> None:
    """Raise InputError for a number that is too small; the message has the value, which Typer's does not."""
    if value is not None and value < least:
        raise InputError(f"{option} {value} is too small", hint=f"give {least} or more")


MOST_SEEDS = 10_000
MOST_WORKERS = 1_000


def within(option: str, least: int, most: int, value: int | None) -> None:
    """Raise InputError for a number that is too small, or larger than any machine could handle."""
    at_least(option, least, value)
    if value is not None and value > most:
        raise InputError(f"{option} {value} is too large", hint=f"give {most} or less")


def say(text: str) -> None:
    """Print a message for people to stderr, apart from the answer."""
    typer.echo(text, err=True)


def emit(document: Any, output: Output) -> None:
    """Print a nested value as JSON or YAML."""
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        return
    import yaml

    typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110), nl=False)


def read_workload(
    trace: Path | None, like: str | None, jobs: int, days: float | None, load: float | None, cluster: Cluster
) -> Trace | Recipe:
    """Return the jobs that the options name: those of a file, or a recipe to generate jobs that fit the cluster."""
    if (trace is None) == (like is None):
        what = "neither --trace nor --like is given" if trace is None else "both --trace and --like are given"
        raise InputError(what, hint="name a trace (--trace week.csv) or a kind of jobs (--like philly)")
    if trace is not None:
        for option, value in (("--days", days), ("--load", load)):
            if value is not None:
                hint = "to change a trace's load: argosy compare --sweep load=0.6..1.4"
                raise InputError(f"{option} {value:g} is for generated jobs (--like), not a trace", hint=hint)
        return read_trace(trace)
    from argosy.sim.compare import Recipe

    return Recipe(str(like), jobs, days, load, float(cluster.total_gpus))


def read_trace(path: Path) -> Trace:
    """Read a trace for a run; an error about bad rows says how to leave them out."""
    from argosy.workload.trace import Trace

    try:
        return Trace.read(path)
    except TraceError as bad:
        if "--on-error" not in (bad.hint or ""):
            raise
        # only `import` can leave out bad rows, so that runs do not differ in their jobs by accident
        hint = f"correct it, or leave out bad rows: argosy import csv {path} -o clean.csv --on-error skip"
        raise TraceError(bad.what, where=bad.where, hint=hint) from None


def check_writable(*paths: Path | None) -> None:
    """Raise an error now, rather than after the simulation, if a file cannot be written; create its folder."""
    from argosy.atomic import writing

    for path in paths:
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            hint = "choose a path that you may write to"
            raise InputError(f"cannot be written: {problem.strerror}", where=str(path), hint=hint) from None
        try:
            with writing(path):
                raise _Tried
        except _Tried:
            pass


class _Tried(Exception):
    """Raised to leave `writing` before it replaces anything."""


def parse_window(text: str | None) -> tuple[float, float] | None:
    """Parse a window such as `1d..6d` into seconds."""
    if text is None:
        return None
    from argosy.config import parse_duration

    start, dots, end = text.partition("..")
    if not dots:
        raise InputError(f"not a window: {text!r}", hint="write FROM..TO, such as 1d..6d or 0..3600")
    window = parse_duration(start), parse_duration(end)
    if not window[0] < window[1]:
        raise InputError(f"the window {text!r} is empty", hint="its end must come after its start")
    return window


@contextmanager
def progress_bar(what: str, total: int | None, wanted: bool | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr, and yield a function that sets how much is done, of how much, and of what.

    Without a terminal nothing is shown.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda done, total=None, what=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # a full bar above the answer is of no use, unless it was asked for
    with Progress(*columns, console=Console(stderr=True), transient=wanted is None) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total=None, what=None: bar.update(task, completed=done, total=total, description=what)
