"""`argosy simulate` runs one policy once and shows the run in detail."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._settings import with_settings
from argosy.cli._shared import (
    ClusterOption,
    DaysOption,
    JobsOption,
    LikeOption,
    LoadOption,
    Output,
    OutputOption,
    ProgressOption,
    ReportOption,
    TraceOption,
    WindowOption,
    check_writable,
    emit,
    parse_window,
    progress_bar,
    read_workload,
    say,
)
from argosy.errors import InputError
from argosy.sim.settings import Settings

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import Policy
    from argosy.sim.result import Result
    from argosy.workload.trace import Trace


@with_settings
def simulate(
    *,
    cluster: ClusterOption,
    policy: Annotated[str, typer.Option("--policy", "-p", help="name, or name:parameter=value:…; see argosy policies")],
    trace: TraceOption = None,
    like: LikeOption = None,
    jobs: JobsOption = 5000,
    days: DaysOption = None,
    load: LoadOption = None,
    output: OutputOption = Output.TABLE,
    why: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="show the history of one job: when it waited, why, and behind which jobs"),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="write every event as a line of JSON")] = None,
    report: ReportOption = None,
    window: WindowOption = None,
    progress: ProgressOption = None,
    settings: Settings,
) -> None:
    """Run jobs under one policy and show the metrics.

    \b
    argosy simulate -t week.csv -c cluster.yaml -p srtf -o json
    argosy simulate --like philly --load 0.9 -c small -p las:quantum_s=300 --log events.jsonl
    argosy simulate -t week.csv -c cluster.yaml -p fifo --why j0042
    """
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.compare import Recipe
    from argosy.sim.recorded import ACTUAL

    span = parse_window(window)
    made = None if policy == ACTUAL else create(policy)
    machines = Cluster.read(cluster)
    source = read_workload(trace, like, jobs, days, load, machines)
    work = source.trace(settings.seed) if isinstance(source, Recipe) else source
    check_writable(log, report)
    from argosy.sim.warm import warm_up

    warm_up(say, made)
    if why is not None:
        if made is None:
            hint = f"name a policy that decides, or leave out --why; what happened: {ACTUAL} with --log"
            raise InputError("nothing says why jobs waited in the past", hint=hint)
        tell(work, machines, made, settings, why, output)
        if log is None and report is None:
            return
    with progress_bar(f"{policy} on {machines.name}", len(work), progress) as bar:
        from argosy.sim.run import simulate as run
        from argosy.sim.run import write_log

        result = run(work, machines, policy, settings, progress=lambda finished, jobs, now: bar(finished))
    for note in result.notes:
        say(f"warning: {note}")
    if log is not None:
        write_log(result, log)
        say(f"event log: {log}")
    if report is not None:
        from argosy.report.comparison import Comparison
        from argosy.report.html import write_report

        command = shlex.join(["argosy", *sys.argv[1:]])
        write_report(Comparison((result,), command=command, window=span), report)
        say(f"report: {report}")
    if why is None:
        answer(result, span, output)


def tell(trace: Trace, cluster: Cluster, policy: Policy, settings: Settings, job: str, output: Output) -> None:
    """Print the history of one job."""
    from argosy.explain.story import story

    text = story(trace, cluster, policy, settings, job)
    if output is Output.TABLE:
        typer.echo(text)
    else:
        emit({"job": job, "policy": policy.name, "story": text.splitlines()}, output)


def answer(result: Result, window: tuple[float, float] | None, output: Output) -> None:
    """Print the metrics of a run."""
    if output is not Output.TABLE:
        emit(document(result, window), output)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from argosy.report.comparison import Comparison
    from argosy.report.tables import LONG, columns, show
    from argosy.sim.metrics import DEFINITIONS

    comparison = Comparison((result,), window=window)
    summary = comparison.summary[result.policy]
    title = f"{result.policy}: {result.trace} on {result.cluster.name}, {result.jobs.height:,} jobs"
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("what it is", style="dim")
    for column in columns(comparison, LONG):
        meaning = DEFINITIONS[column.metric].text.split(". ")[0].split(": the largest")[0].rstrip(".")
        table.add_row(column.label, show(summary[column.metric], column.divisor), column.unit, Text(meaning))
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)


def document(result: Result, window: tuple[float, float] | None) -> dict[str, Any]:
    """Return the figures of a run, for programs."""
    from argosy.report.comparison import sees_future
    from argosy.report.tables import versions, without_nan
    from argosy.sim.metrics import metrics

    cluster, scores = result.cluster, metrics(result, window=window)
    outcomes = ("jobs", "completed", "failed", "killed", "cancelled", "refused", "unfinished")
    found = {
        "policy": result.policy,
        "sees": list(result.uses),
        "sees_true_durations": sees_future(result),
        "trace": result.trace,
        "cluster": {"name": cluster.name, "nodes": len(cluster.nodes), "gpus": cluster.total_gpus},
        "settings": result.settings,
        "window_s": window,
        "end_s": result.end_s,
        "counts": {name: int(scores[name]) for name in outcomes},
        "metrics": {name: value for name, value in scores.items() if name not in outcomes},
        "cpu_s": result.cpu_s,
        "versions": versions(),
    }
    return without_nan(found)  # type: ignore[no-any-return]
