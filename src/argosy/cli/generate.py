"""`argosy generate` makes synthetic traces calibrated to published statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from argosy.workload.trace import Trace


def generate(
    like: Annotated[str, typer.Option(help="philly, helios, pai, acme, gavel, pollux or dl2")],
    output: Annotated[Path, typer.Option("--output", "-o", help="trace to write: .csv, .csv.gz or .parquet")],
    jobs: Annotated[int, typer.Option(help="how many jobs")] = 5000,
    seed: Annotated[int, typer.Option(help="the same seed gives the same trace")] = 1,
    days: Annotated[float | None, typer.Option(help="span of the arrivals; default: the source's pace")] = None,
    load: Annotated[float | None, typer.Option(help="offered load, instead of --days; needs --gpus")] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs of the cluster; no job asks for more")] = None,
) -> None:
    """Make a synthetic trace like a published workload."""
    from argosy.workload.synth import generate as generated

    trace = generated(like, jobs, seed, days=days, gpus=gpus, load=load)
    trace.write(output)
    typer.echo(summary(trace), err=True)
    typer.echo(f"wrote {output}", err=True)


def summary(trace: Trace) -> str:
    """Return a few lines about a trace's size, lengths and demand."""
    import numpy as np

    frame = trace.frame
    gpus, duration_s = frame["gpus"], frame["duration_s"].to_numpy()
    mean_s, median_s = np.mean(duration_s), np.median(duration_s)
    gpu_hours = float((gpus.to_numpy() * duration_s).sum()) / 3600
    days = float(frame["submit_s"].to_numpy().max()) / 86400
    mix = gpus.value_counts(sort=True).head(6).sort("gpus").iter_rows()
    sizes = ", ".join(f"{size:g}: {count / len(trace):.1%}" for size, count in mix)
    statuses = frame["status"].value_counts(sort=True).iter_rows()
    outcomes = ", ".join(f"{count / len(trace):.1%} {status}" for status, count in statuses)
    busy = f", {gpu_hours / 24 / days:,.0f} GPUs busy on average" if days else ""
    who = f" of {frame['user'].n_unique():,} users" if frame["user"].null_count() < len(trace) else ""
    return "\n".join(
        (
            f"{len(trace):,} jobs{who} in {days:.2f} days ({outcomes})",
            f"duration: mean {mean_s:,.0f} s, median {median_s:,.0f} s",
            f"GPUs per job: mean {gpus.to_numpy().mean():.2f} ({sizes})",
            f"offered: {gpu_hours:,.0f} GPU-hours{busy}",
        )
    )
