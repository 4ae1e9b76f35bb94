"""Import traces with our own columns, CSV or Parquet, or any table whose columns can be mapped to them.

Times may be seconds (or another unit) or dates (`2024-01-31 08:00:00`); the first submission becomes 0. If there is no
duration, it follows from start and end. Columns with usual names, such as `created`, `started` and `finished`, need no
mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from argosy.errors import InputError
from argosy.workload.conversion import UNITS, Dialect, Kind, finish
from argosy.workload.files import COLUMN_KINDS, read_rows
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.text_table import Table
from argosy.workload.trace import TIMES

KINDS = COLUMN_KINDS | dict.fromkeys(TIMES, Kind.TIME) | {"duration_s": Kind.LENGTH, "expected_s": Kind.LENGTH}
ALIASES = {  # lower case
    "job_id": ("id", "job", "jobid"),
    "submit_s": ("created", "created_at", "creation_time", "submit", "submitted", "submitted_at", "submit_time"),
    "start_s": ("start", "started", "started_at", "start_time"),
    "end_s": ("end", "ended", "ended_at", "end_time", "finish", "finished", "finished_at", "finish_time"),
    "duration_s": ("duration", "runtime", "run_time", "elapsed"),
    "gpus": ("gpu", "num_gpu", "num_gpus", "n_gpus", "ngpus", "gpu_num"),
    "status": ("state",),
}
SEPARATORS = {"tab": "\t", "\\t": "\t"}


@importer("csv", "any CSV or Parquet table; --map names its columns", "docs/traces.md")
def read(
    paths: Sequence[Path],
    *,
    on_error: OnError = "fail",
    mapping: Mapping[str, str] | None = None,
    unit: str = "s",
    time_format: str | None = None,
    delimiter: str = ",",
) -> ImportReport:
    """Read the files; with a mapping `{ours: theirs}` other columns are ignored, without one they are errors.

    `unit` is that of times and durations that are plain numbers, `time_format` that of dates, as in `strftime`.
    """
    if unit not in UNITS:
        raise InputError(f"--unit must be one of {', '.join(UNITS)}, is {unit!r}")
    separator = SEPARATORS.get(delimiter, delimiter)
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        raise InputError(
            f"--delimiter must be one character or tab, is {delimiter!r}", hint="for example --delimiter ';'"
        )
    dialect = Dialect(unit, time_format)
    parts = [read_rows(path, mapping, KINDS, aliases=ALIASES, separator=separator, dialect=dialect) for path in paths]
    notes: list[str] = []
    return finish([_that_ran(part, notes) for part in parts], on_error=on_error, notes=notes)


def _that_ran(table: Table, notes: list[str]) -> Table:
    """Leave out jobs of which nothing says how long they ran, in a file that says when jobs started and ended."""
    columns = table.frame.columns
    if not {"start_s", "end_s"} <= set(columns):
        return table
    unknown = pl.col("duration_s").is_null() & (pl.col("work").is_null() if "work" in columns else True)
    return table.without(unknown, "the job never started, or had not ended", notes)
