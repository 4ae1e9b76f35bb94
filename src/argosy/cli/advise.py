"""`argosy advise` says on one page which policy to run: what it saves, how sure that is, who loses."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._shared import (
    MOST_SEEDS,
    MOST_WORKERS,
    ClusterOption,
    Output,
    OutputOption,
    ProgressOption,
    ReportOption,
    SeedOption,
    WorkersOption,
    check_writable,
    emit,
    progress_bar,
    read_trace,
    say,
    within,
)
from argosy.cli.compare import parse_policies
from argosy.errors import InputError, UnknownName

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Trace

# what a cluster can run without more knowledge than it has: none reads true durations, and all are fast enough
CANDIDATES = (
    "fifo-backfill",
    "smallest-first",
    "tiresias-las",
    "srsf",
    "qssf",
    "argonaut",
)
USUAL = "fifo-backfill"  # about what a cluster does that nobody has tuned
DEFAULT_DRAWS = 4

PoliciesOption = Annotated[
    str | None, typer.Option("--policies", "-p", help="names separated by commas; default: policies that suit most")
]
DrawsOption = Annotated[
    int, typer.Option(help="runs on resampled days, besides the one on real days: more make the interval better")
]


def advise(
    *,
    trace: Annotated[Path, typer.Option("--trace", "-t", help="what was run: .csv, .csv.gz or .parquet")],
    cluster: ClusterOption,
    policies: PoliciesOption = None,
    baseline: Annotated[
        str | None, typer.Option(help="what runs now; default: actual if the trace has starts, else fifo-backfill")
    ] = None,
    draws: DrawsOption = DEFAULT_DRAWS,
    seed: SeedOption = 0,
    output: OutputOption = Output.TABLE,
    report: ReportOption = None,
    workers: WorkersOption = None,
    progress: ProgressOption = None,
) -> None:
    """Say which policy would have served these jobs best.

    \b
    argosy advise -t week.csv -c cluster.yaml
    argosy advise -t week.csv -c cluster.yaml -p fifo,tiresias-las,argonaut --report advice.html
    argosy advise -t week.csv -c cluster.yaml --baseline fifo-backfill -o json

    Policies that need to know how long jobs take are told what the trace's own past suggests (estimator history), not
    the truth. Each policy runs on the trace and on other weeks drawn from its days; the interval is over these.
    srtf, which sees true durations, shows what is possible at most.
    """
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.recorded import ACTUAL, has_recorded_times
    from argosy.sim.settings import Settings
    from argosy.workload.resample import block_length_s

    within("--draws", 0, MOST_SEEDS, draws)
    within("--workers", 1, MOST_WORKERS, workers)
    within("--seed", 0, 2**62, seed)
    work, machines = read_trace(trace), Cluster.read(cluster)
    if draws:
        block_length_s(work)
    names = list(CANDIDATES) if policies is None else parse_policies(policies)
    past = has_recorded_times(work)
    base = baseline or (ACTUAL if past else names[0] if policies else USUAL)
    if base == ACTUAL and not past:
        hint = "name the policy that runs now: --baseline fifo"
        raise InputError(f"the trace {work.name!r} does not say when jobs really started (start_s)", hint=hint)
    if baseline is not None and baseline != ACTUAL and policies is not None and baseline not in names:
        raise UnknownName("baseline", baseline, [*names, ACTUAL])
    names = list(dict.fromkeys([base, *([ACTUAL] if past else []), *names]))
    for name in names:
        if name != ACTUAL:
            create(name)
    check_writable(report)
    settings = Settings(seed=seed, estimator="history", oversized="skip")
    run_advice(work, machines, names, base, settings, draws, output, report, workers, progress)


def run_advice(
    work: Trace,
    machines: Cluster,
    names: Sequence[str],
    base: str,
    settings: Settings,
    draws: int,
    output: Output,
    report: Path | None,
    workers: int | None,
    progress: bool | None,
) -> None:
    """Run the policies on a trace and on resampled days, and show which is best."""
    from argosy.report.advice import advice, advice_lines
    from argosy.report.comparison import Comparison
    from argosy.sim.compare import Experiment, run_all, tasks
    from argosy.sim.warm import warm_up
    from argosy.workload.resample import ResampledDays

    seed = settings.seed
    warm_up(say)
    began = time.perf_counter()
    told = Experiment(ResampledDays(work, seed), machines, settings)
    bound = Experiment(told.source, machines, replace(told.settings, estimator="oracle"))
    todo = tasks(names, [seed + i for i in range(draws + 1)])
    with progress_bar("runs", len(todo), progress) as bar:
        ended = []

        def done(outcome: object) -> None:
            ended.append(outcome)
            bar(len(ended))

        outcomes = run_all(told, todo, workers, done)
    outcomes += [bound.run(task) for task in tasks(["srtf"], [seed]) if "srtf" not in names]
    for failed in (outcome for outcome in outcomes if outcome.error is not None):
        say(f"error: {failed.task}: {failed.error}")
        if failed.details and os.environ.get("ARGOSY_DEBUG"):
            say(failed.details)
    results = tuple(outcome.result for outcome in outcomes if outcome.result is not None)
    if base not in {result.policy for result in results}:
        raise outcomes[0].error or InputError(f"{base} could not be run", hint="name another baseline")
    first = [result for result in results if result.seed == seed]
    for note in dict.fromkeys(note for result in first for note in result.notes):
        say(f"warning: {note}")
    comparison = Comparison(results, command=shlex.join(["argosy", *sys.argv[1:]]), baseline=base)
    found = advice(comparison)
    if output is Output.TABLE:
        from rich.console import Console

        from argosy.report.tables import fitting_table

        for line in advice_lines(found):
            typer.echo(line)
        typer.echo()
        console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
        console.print(fitting_table(comparison, console.width))
    else:
        from argosy.report.tables import document

        emit(document(comparison), output)
    if report is not None:
        from argosy.report.html import write_report

        write_report(comparison, report)
        say(f"report: {report}")
    say(f"{len(results)} runs in {time.perf_counter() - began:.0f} s")
