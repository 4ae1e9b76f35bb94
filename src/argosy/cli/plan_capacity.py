"""`argosy plan-capacity` finds the smallest cluster that meets a target."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._shared import (
    MOST_SEEDS,
    MOST_WORKERS,
    ClusterOption,
    Output,
    OutputOption,
    ProgressOption,
    SeedOption,
    WorkersOption,
    check_writable,
    emit,
    progress_bar,
    read_trace,
    say,
    within,
)
from argosy.cli.compare import is_whole
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.sim.capacity_plan import CapacityPlan


def plan_capacity(
    *,
    trace: Annotated[Path, typer.Option("--trace", "-t", help="the jobs to serve: .csv, .csv.gz or .parquet")],
    cluster: ClusterOption,
    vary: Annotated[str, typer.Option(metavar="NAME=A..B:STEP", help="v100=64..256:32, nodes=4..40:2, …")],
    target: Annotated[
        str, typer.Option(help="what must hold: 'wait.p90 < 30m', 'jct.mean < 6h', 'deadlines_met > 95%'")
    ],
    policy: Annotated[str, typer.Option("--policy", "-p", help="name, or name:parameter=value:…")] = "fifo-backfill",
    draws: Annotated[int, typer.Option(help="runs on resampled days, besides the trace itself")] = 2,
    estimator: Annotated[
        str, typer.Option(help="how policies learn durations: history, user, none, oracle")
    ] = "history",
    every: Annotated[
        bool, typer.Option("--every", help="try every size, for the whole curve, not only bisection")
    ] = False,
    seed: SeedOption = 0,
    output: OutputOption = Output.TABLE,
    picture: Annotated[Path | None, typer.Option(help="draw the curve: .png")] = None,
    workers: WorkersOption = None,
    progress: ProgressOption = None,
) -> None:
    """Find the smallest cluster that meets a target, by bisection.

    \b
    argosy plan-capacity -t week.csv -c cluster.yaml --vary v100=64..256:32 --target 'wait.p90 < 30m'
    argosy plan-capacity -t week.csv -c cluster.yaml -p tiresias-las --vary nodes=8..64:8 \\
        --target 'jct.mean < 6h' --every --picture curve.png

    Each size runs on the trace and on other weeks drawn from its days; it meets the target if most of these runs do.
    Exit code 1: no size in the range meets it.
    """
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.capacity_plan import plan_capacity as search
    from argosy.sim.compare import Experiment
    from argosy.sim.kept_cells import KeptCells
    from argosy.sim.settings import Settings
    from argosy.sim.target import parse_target
    from argosy.sim.variation import check_name, parse_range, with_gpus
    from argosy.sim.warm import warm_up
    from argosy.workload.resample import ResampledDays, block_length_s

    within("--draws", 0, MOST_SEEDS, draws)
    within("--workers", 1, MOST_WORKERS, workers)
    within("--seed", 0, 2**62, seed)
    goal, machines = parse_target(target), Cluster.read(cluster)
    create(policy)
    name, equals, text = vary.partition("=")
    if not equals:
        raise InputError(f"--vary {vary!r} is not NAME=A..B:STEP", hint="for example --vary v100=64..256:32")
    check_name(name, machines, [policy])
    if not is_whole(name):
        raise InputError(
            f"--vary {name}: the size of a cluster is in nodes or GPUs", hint="argosy compare --sweep varies more"
        )
    values = [float(value) for value in parse_range(text, whole=True) if not isinstance(value, str)]
    for value in values:
        with_gpus(machines, name, value)
    work = read_trace(trace)
    if draws:
        block_length_s(work)
    check_writable(picture)
    warm_up(say)
    settings = replace(Settings(seed=seed, estimator=estimator), oversized="skip")
    experiment = Experiment(ResampledDays(work, seed), machines, settings)
    seeds = [seed + i for i in range(draws + 1)]
    sizes = len(values) if every else min(len(values), 2 + math.ceil(math.log2(max(len(values), 2))))
    with progress_bar("runs", sizes * len(seeds), progress) as bar:
        cells = KeptCells.beside(picture, experiment, goal.text)
        found = search(
            experiment, policy, name, values, goal, seeds, every=every, workers=workers, done=bar, cells=cells
        )
    if output is Output.TABLE:
        show(found)
    else:
        emit(document(found), output)
    if picture is not None:
        from argosy.report.capacity_chart import capacity_curve
        from argosy.report.plots import save_png

        save_png(capacity_curve(found), picture)
        say(f"picture: {picture}")
    if found.smallest is None:
        raise typer.Exit(1)


def show(found: CapacityPlan) -> None:
    """Print the sizes that were tried, and the answer."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (found.name, "median", "least", "most", ""):
        table.add_column(column, justify="right" if column else "left")
    for point in found.points:
        texts = [shown(found, value) for value in (point.figure, min(point.figures), max(point.figures))]
        table.add_row(f"{point.value:g}", *texts, "meets it" if point.met else "")
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)
    typer.echo(answer(found))


def answer(found: CapacityPlan) -> str:
    runs = len(found.points[0].figures)
    if found.smallest is None:
        return (
            f"No size tried meets {found.target.text} under {found.policy}: at {found.points[-1].value:g} {found.name} "
            f"the figure is {shown(found, found.points[-1].figure)}. Try more, or another policy."
        )
    first = found.smallest == found.points[0].value
    less = " (the smallest of the range: fewer may do)" if first else ""
    return (
        f"{found.smallest:g} {found.name} meet {found.target.text} under {found.policy}{less}, "
        f"over {runs} run{'s' if runs > 1 else ''}."
    )


def shown(found: CapacityPlan, value: float) -> str:
    """Return a figure for people."""
    from argosy.explain.words import clock

    if found.target.is_time:
        return clock(value)
    return "never" if math.isinf(value) else f"{value:.4g}"


def document(found: CapacityPlan) -> dict[str, Any]:
    """Return the plan for programs."""
    from argosy.report.tables import versions, without_nan

    plan = {
        "vary": found.name,
        "target": found.target.text,
        "policy": found.policy,
        "smallest": found.smallest,
        "points": [
            {"value": point.value, "figure": point.figure, "figures": list(point.figures), "met": point.met}
            for point in found.points
        ],
        "versions": versions(),
    }
    return without_nan(plan)  # type: ignore[no-any-return]
