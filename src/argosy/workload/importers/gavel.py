"""Import Gavel's `.trace` files: one job per line, tab-separated, without header; Shockwave's have one more column.

The layout grew over the years; the number of columns identifies it. The short CSV form
job_id,model,batch_size,total_steps,arrival_s,scale_factor,priority,slo is read, too.

`ResNet-50 (batch size 64)` becomes model `resnet-50` and batch size 64, which Gavel counts per GPU. `work`
is in steps of that batch, as in Gavel's throughput tables; the engine derives the run time from them. An SLO is
a multiple of a run time that the file does not give, so it sets no deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.errors import TraceError
from argosy.workload.conversion import Kind, convert, finish, need
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.text_table import LINE, Table, load, parse_table

_STEPS = "num_steps_arg needs_data_dir total_steps"
_LAYOUTS = (  # from the oldest to Shockwave's; the fourth is Gavel's last
    "job_type command num_steps_arg total_steps arrival_time scale_factor",
    f"job_type command {_STEPS} arrival_time scale_factor",
    f"job_type command {_STEPS} scale_factor priority_weight slo arrival_time",
    f"job_type command working_directory {_STEPS} scale_factor priority_weight slo arrival_time",
    f"job_type command working_directory {_STEPS} scale_factor mode priority_weight slo arrival_time",
)
LAYOUTS = {len(names): names for names in map(str.split, _LAYOUTS)}

REQUIRED = ("total_steps", "scale_factor", "arrival_time")
SHORT = {
    "job_id": Kind.TEXT,
    "model": Kind.TEXT,
    "batch_size": Kind.NUMBER,
    "total_steps": Kind.NUMBER,
    "arrival_time": Kind.NUMBER,
    "scale_factor": Kind.NUMBER,
    "priority_weight": Kind.NUMBER,
}
SHORT_NAMES = {"arrival_s": "arrival_time", "priority": "priority_weight"}


@importer(
    "gavel",
    "*.trace files of Gavel and Shockwave",
    "Narayanan et al., Gavel, OSDI 2020; github.com/stanford-futuredata/gavel, scheduler/traces",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes = ["work is in steps of batch_size per GPU; durations follow from the performance model named in `model`"]
    return finish([_rows(path) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path) -> Table:
    text = load(path)
    first = text.lstrip(b"\r\n").split(b"\n", 1)[0]
    table = _full(text, path, first.count(b"\t") + 1) if b"\t" in first else _short(text, path)
    table = convert(table, {c: k for c, k in SHORT.items() if c in table.frame.columns}, required=REQUIRED)
    weight = [pl.col("priority_weight").alias("weight")] if "priority_weight" in table.frame.columns else []
    return table.with_frame(
        table.frame.select(
            LINE,
            "job_id",
            "batch_size",
            pl.col("model").str.to_lowercase(),
            pl.col("arrival_time").alias("submit_s"),
            pl.col("scale_factor").alias("gpus"),
            pl.col("total_steps").alias("work"),
            *weight,
        )
    )


def _short(text: bytes, path: Path) -> Table:
    table = parse_table(text, path)
    table = table.with_frame(table.frame.rename(SHORT_NAMES, strict=False))
    need(
        table,
        SHORT,
        "a .trace file is tab-separated; the short CSV begins with job_id,model,batch_size,total_steps",
    )
    return table


def _full(text: bytes, path: Path, count: int) -> Table:
    """Read files in the full layout; jobs are numbered from 0 in the order of the file, as Gavel does."""
    columns = LAYOUTS.get(count)
    if columns is None:
        hint = f"Gavel's traces have {', '.join(map(str, LAYOUTS))}"
        raise TraceError(f"has {count} columns", where=f"{path}:1", hint=hint)
    table = parse_table(text, path, separator="\t", quoted=False, columns=columns)
    kind = pl.col("job_type")
    return table.with_frame(
        table.frame.with_columns(
            kind.str.replace(r"\s*\(batch size \d+\)\s*$", "").alias("model"),
            kind.str.extract(r"\(batch size (\d+)\)", 1).alias("batch_size"),
        ).with_row_index("job_id")
    )
