"""`argosy train argonaut --from-log`: tune the present weights on what happened, and judge them in the shadow."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from argosy.cli._shared import check_writable, say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.learn.online.shadow import Score
    from argosy.workload.trace import Trace

GENERATIONS = 8


def tune(
    log: Path,
    output: Path,
    cluster: str | None,
    guard: str,
    weights: str,
    *,
    generations: int | None = None,
    options: Mapping[str, float] | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> None:
    """Write weights that were tuned on a log, if they are better in the shadow; exit with 1 if not."""
    if output.suffix != ".safetensors":
        raise InputError("weights are .safetensors files", where=str(output), hint=f"-o {output.stem}.safetensors")
    from argosy.cluster.cluster import Cluster
    from argosy.learn.online.history import split
    from argosy.learn.online.tuner import ADOPTED, INTERRUPTED, OnlineTuner
    from argosy.learn.training.options import OPTIONS, WARM_UP, check_options
    from argosy.learn.training.stop import Stop, ctrl_c
    from argosy.learn.training.threads import single_thread
    from argosy.learn.training.workers import Workers
    from argosy.policies.learned.argonaut import load
    from argosy.sim.warm import warm_up
    from argosy.zoo import Weights, find, write

    load(weights)  # raises an error if they are for another network
    jobs = read(log)
    machines = Cluster.read(cluster) if cluster is not None else nodes_of(log)
    split(jobs)  # raises an error if there are too few
    checked = check_options(options or {}, OPTIONS["es"] | WARM_UP["argonaut"], "--algo es")
    check_writable(output)
    warm_up(say)
    stop = Stop()
    with ctrl_c(stop, say), single_thread(), Workers(workers) as crew:
        tuner = OnlineTuner(
            find(weights).arrays,
            machines,
            guard=guard,
            generations=GENERATIONS if generations is None else generations,
            remembered_s=float("inf"),
            options=checked,
            seed=seed,
            workers=crew,
            stop=stop,
        )
        step = tuner.step(jobs, float(jobs.frame["submit_s"].max()))  # type: ignore[arg-type]
    if step.outcome == INTERRUPTED:
        say("interrupted: nothing was written, the present weights stay")
        raise typer.Exit(130)
    show(step.scores)
    if step.outcome != ADOPTED:
        say(f"nothing was written: {step.reason}")
        raise typer.Exit(1)
    write(Weights(tuner.present, tuner.about() | {"began_as": weights, "log": log.name}), output)
    say(f"wrote {output}: {step.reason}")


def read(log: Path) -> Trace:
    """Return what happened: from a daemon's database, an event log or a trace, by how the file begins."""
    from argosy.learn.online.history import read_log
    from argosy.live.daemon.ended_trace import is_database, read_ended_jobs

    return read_ended_jobs(log) if is_database(log) else read_log(log)


def nodes_of(log: Path) -> Cluster:
    """Return the cluster that a log tells: a daemon's database knows its nodes."""
    from argosy.live.daemon.ended_trace import is_database, read_nodes

    if not is_database(log):
        raise InputError("this log does not say what the cluster is", where=str(log), hint="--cluster cluster.yaml")
    return read_nodes(log)


def show(scores: Mapping[str, Score]) -> None:
    """Print how the present weights, the candidate and the guard did in the shadow."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("in the shadow")
    table.add_column("mean JCT, h", justify="right")
    table.add_column("p99, h", justify="right")
    for name, score in scores.items():
        table.add_row(name, f"{score.mean_s / 3600:.3f}", f"{score.p99_s / 3600:.3f}")
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)
