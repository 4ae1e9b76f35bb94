"""Read the logs of Slurm-like clusters, where a job ran from `start` to `end`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from argosy.workload.conversion import Kind, convert, need
from argosy.workload.text_table import LINE, Table, read_table

NOT_STARTED = "the job never started"
NOT_ENDED = "the job had not ended when the log was written"
OUTCOME = {  # the last columns of these logs, in their order
    "state": Kind.STATUS,
    "submit_time": Kind.TIME,
    "start_time": Kind.TIME,
    "end_time": Kind.TIME,
    "duration": Kind.NUMBER,
}
REQUIRED = ("job_id", "gpu_num", "state", "submit_time")
NULLS = ("nan", "NaN", "None", "Unknown")


def read_cluster_log(
    path: Path,
    notes: list[str],
    *,
    columns: Mapping[str, Kind],
    optional: Mapping[str, Kind],
    what: str,
    renamed: Mapping[str, str],
) -> Table:
    """Read one log in the format of Helios, which Acme also uses: a line for each job, with three times.

    `optional` columns are converted if the file has them, and keep their own names. `what` names the kind of file in
    the error about missing columns. `renamed` maps columns that only this kind has to columns of a trace.
    """
    table = read_table(path, nulls=NULLS)
    need(table, columns, f"{what} begins with {','.join(columns)}")
    there = {name: kind for name, kind in optional.items() if name in table.frame.columns}
    table = convert(table, {**columns, **there}, required=REQUIRED)
    table = ran(table, "start_time", "end_time", notes, recorded="duration")
    return table.with_frame(
        table.frame.select(
            LINE,
            "job_id",
            "duration_s",
            "user",
            pl.col("submit_time").alias("submit_s"),
            pl.col("gpu_num").alias("gpus"),
            pl.col("cpu_num").alias("cpus"),
            pl.col("state").alias("status"),
            *when_it_ran("submit_time", "start_time", "end_time"),
            *(pl.col(old).alias(new) for old, new in renamed.items()),
            *there,
        )
    )


def ran(table: Table, start: str, end: str, notes: list[str], *, recorded: str | None = None) -> Table:
    """Keep the rows of jobs that ran, with `duration_s` = end − start, or as recorded where a time is missing.

    The recorded duration is only the second choice, because some logs include the time in the queue.
    """
    table = table.without(pl.col(start).is_null(), NOT_STARTED, notes)
    length = pl.col(end) - pl.col(start)
    if recorded is not None:
        length = pl.coalesce(length, pl.col(recorded))
    table = table.with_frame(table.frame.with_columns(length.alias("duration_s")))
    return table.without(pl.col("duration_s").is_null(), NOT_ENDED, notes)


def when_it_ran(submit: str, start: str, end: str, duration: str = "duration_s") -> list[pl.Expr]:
    """Return `start_s` and `end_s`; clocks of several machines may put a start a little before the submission."""
    begin = pl.max_horizontal(submit, start)
    return [
        begin.alias("start_s"),
        pl.max_horizontal(begin, pl.coalesce(pl.col(end), pl.col(start) + pl.col(duration))).alias("end_s"),
    ]
