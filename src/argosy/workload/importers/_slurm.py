"""What the logs of Slurm-like clusters share: a job that started ran from `start` to `end`."""

from __future__ import annotations

import polars as pl

from argosy.workload.importers._table import Table

NOT_STARTED = "the job never started"
NOT_ENDED = "the job had not ended when the log was written"


def ran(table: Table, start: str, end: str, notes: list[str], *, recorded: str | None = None) -> Table:
    """Rows of jobs that ran, with `duration_s` = end − start, or as recorded where a time is missing.

    The recorded duration comes second because some logs include the time in the queue.
    """
    table = table.without(pl.col(start).is_null(), NOT_STARTED, notes)
    length = pl.col(end) - pl.col(start)
    if recorded is not None:
        length = pl.coalesce(length, pl.col(recorded))
    table = table.with_frame(table.frame.with_columns(length.alias("duration_s")))
    return table.without(pl.col("duration_s").is_null(), NOT_ENDED, notes)
