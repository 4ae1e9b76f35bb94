"""Helios `cluster_log.csv`: Slurm jobs of SenseTime's clusters, April to September 2020.

`queue` in that file is the time spent waiting; our queue is the virtual cluster `vc`. `jobname` is in some
releases.
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
    "vc": Kind.TEXT,
    "gpu_num": Kind.NUMBER,
    "cpu_num": Kind.NUMBER,
    "state": Kind.STATUS,
    "submit_time": Kind.TIME,
    "start_time": Kind.TIME,
    "end_time": Kind.TIME,
    "duration": Kind.NUMBER,
}
REQUIRED = ("job_id", "gpu_num", "state", "submit_time")
NULLS = ("nan", "NaN", "None", "Unknown")


@importer(
    "helios",
    "cluster_log.csv of SenseTime's Helios clusters",
    "Hu et al., SC 2021; github.com/S-Lab-System-Group/HeliosData",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes: list[str] = []
    return finish([_rows(path, notes) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path, notes: list[str]) -> Table:
    table = read_table(path, nulls=NULLS)
    need(table, COLUMNS, f"cluster_log.csv begins with {','.join(COLUMNS)}")
    name = {"jobname": Kind.TEXT} if "jobname" in table.frame.columns else {}
    table = convert(table, COLUMNS | name, required=REQUIRED)
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
            pl.col("vc").alias("queue"),
            pl.col("state").alias("status"),
            *(pl.col(c).alias("name") for c in name),
        )
    )
