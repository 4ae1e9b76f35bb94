"""Acme `trace_seren.csv` and `trace_kalos.csv`: LLM development at Shanghai AI Lab, March to August 2023.

The run time is end − start: Kalos' own `duration` includes the time in the queue. `queue` in these files is
that waiting time, not a queue. Memory is known per pod (Kalos only) and taken once per node. The workload
`type` (Pretrain, Evaluation, …) becomes the job's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.importers._build import Kind, convert, finish, need
from argosy.workload.importers._slurm import ran
from argosy.workload.importers._table import LINE, Table, read_table

COLUMNS = {
    "job_id": Kind.TEXT,
    "user": Kind.TEXT,
    "node_num": Kind.NUMBER,
    "gpu_num": Kind.NUMBER,
    "cpu_num": Kind.NUMBER,
    "type": Kind.TEXT,
    "state": Kind.STATUS,
    "submit_time": Kind.TIME,
    "start_time": Kind.TIME,
    "end_time": Kind.TIME,
    "duration": Kind.NUMBER,
}
REQUIRED = ("job_id", "gpu_num", "state", "submit_time")
NULLS = ("nan", "NaN", "None", "Unknown")


@importer(
    "acme",
    "trace_seren.csv and trace_kalos.csv of Shanghai AI Lab's Acme",
    "Hu et al., NSDI 2024; github.com/InternLM/AcmeTrace",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes: list[str] = []
    return finish([_rows(path, notes) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path, notes: list[str]) -> Table:
    table = read_table(path, nulls=NULLS)
    need(table, COLUMNS, f"an Acme trace begins with {','.join(COLUMNS)}")
    memory = {"mem_per_pod_GB": Kind.NUMBER} if "mem_per_pod_GB" in table.frame.columns else {}
    table = convert(table, COLUMNS | memory, required=REQUIRED)
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
            pl.col("type").alias("name"),
            *((pl.col(c) * pl.col("node_num").fill_null(1.0)).alias("memory_gib") for c in memory),
        )
    )
