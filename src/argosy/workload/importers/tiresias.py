"""Import job files of the Tiresias simulator: job_id,num_gpu,submit_time,iterations,model_name,duration,interval.

`iterations`, if the file has it, becomes `work` (steps) in addition to the duration; `interval` repeats the
submit times and is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.workload.conversion import Kind, convert, finish, need
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.text_table import LINE, Table, read_table

REQUIRED = {"job_id": Kind.TEXT, "num_gpu": Kind.NUMBER, "submit_time": Kind.NUMBER, "duration": Kind.NUMBER}
OPTIONAL = {"iterations": Kind.NUMBER, "model_name": Kind.TEXT}


@importer(
    "tiresias",
    "job files of the Tiresias simulator (60_job.csv)",
    "Gu et al., Tiresias, NSDI 2019; github.com/SymbioticLab/Tiresias",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    return finish([_rows(path) for path in paths], on_error=on_error)


def _rows(path: Path) -> Table:
    table = read_table(path)
    need(
        table,
        REQUIRED,
        "a Tiresias job file begins with job_id,num_gpu,submit_time,iterations,model_name,duration",
    )
    known = {name: kind for name, kind in OPTIONAL.items() if name in table.frame.columns}
    table = convert(table, REQUIRED | known, required=REQUIRED)
    columns = {"job_id": "job_id", "num_gpu": "gpus", "submit_time": "submit_s", "duration": "duration_s"}
    columns |= {"iterations": "work", "model_name": "model"}
    frame = table.frame.rename(columns, strict=False)
    if "model" in frame.columns:
        frame = frame.with_columns(pl.col("model").str.to_lowercase())
    return table.with_frame(frame.select(LINE, *(c for c in columns.values() if c in frame.columns)))
