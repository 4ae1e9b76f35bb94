"""Write what became of every job under every policy, as one CSV file."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from argosy.atomic import writing
from argosy.report.comparison import Comparison

COLUMNS = ("job_id", "user", "queue", "gpus", "status", "submit_s", "first_start_s", "finish_s")


def jobs_frame(comparison: Comparison) -> pl.DataFrame:
    """Return a row for each policy, seed and job."""
    frames = []
    for policy, runs in comparison.runs.items():
        for seed, run in runs.items():
            submit, start = pl.col("submit_s"), pl.col("first_start_s")
            restarts = pl.sum_horizontal("preemptions", "migrations", "resizes", "faults")
            rows = run.jobs.select(
                pl.lit(policy).alias("policy"),
                pl.lit(seed).alias("seed"),
                *COLUMNS,
                (start - submit).alias("first_wait_s"),
                (pl.col("finish_s") - submit).alias("jct_s"),
                (pl.col("held_gpu_s") / 3600).alias("gpu_hours"),
                restarts.alias("restarts"),
                "preemptions",
            )
            frames.append(rows)
    return pl.concat(frames, how="vertical_relaxed")


def write_jobs(comparison: Comparison, path: str | Path) -> None:
    """Write the rows atomically."""
    with writing(Path(path)) as temporary:
        jobs_frame(comparison).write_csv(temporary)
