"""Import Alibaba's GPU-sharing trace of 2023: `openb_pod_list_default.csv` and its variants with times.

A pod asks for whole GPUs, or with `num_gpu` = 1 for `gpu_milli` thousandths of one. It ran from
`scheduled_time` to `deletion_time`; a pod that was never scheduled is left out. The QoS class has no
counterpart here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.workload.conversion import Kind, convert, finish, need
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.importers._slurm import ran, when_it_ran
from argosy.workload.text_table import LINE, Table, read_table

COLUMNS = {
    "name": Kind.TEXT,
    "cpu_milli": Kind.NUMBER,
    "memory_mib": Kind.NUMBER,
    "num_gpu": Kind.NUMBER,
    "gpu_milli": Kind.NUMBER,
    "gpu_spec": Kind.TEXT,
    "pod_phase": Kind.STATUS,
    "creation_time": Kind.NUMBER,
    "deletion_time": Kind.NUMBER,
    "scheduled_time": Kind.NUMBER,
}
REQUIRED = ("name", "num_gpu", "gpu_milli", "creation_time")


@importer(
    "pai2023",
    "openb_pod_list*.csv of Alibaba's 2023 trace with shared GPUs",
    "Weng et al., ATC 2023; github.com/alibaba/clusterdata, cluster-trace-gpu-v2023",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes: list[str] = []
    return finish([_rows(path, notes) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path, notes: list[str]) -> Table:
    table = read_table(path, nulls=("nan", "NaN"))
    need(table, COLUMNS, "only openb_pod_list_default.csv and the gpuspec variants have times")
    table = convert(table, COLUMNS, required=REQUIRED)
    table = ran(table, "scheduled_time", "deletion_time", notes)
    share = pl.when(pl.col("num_gpu") == 1).then(pl.col("gpu_milli") / 1000).otherwise(pl.col("num_gpu"))
    return table.with_frame(
        table.frame.select(
            LINE,
            "duration_s",
            pl.col("name").alias("job_id"),
            pl.col("creation_time").alias("submit_s"),
            share.alias("gpus"),
            (pl.col("cpu_milli") / 1000).alias("cpus"),
            (pl.col("memory_mib") / 1024).alias("memory_gib"),
            pl.col("gpu_spec").alias("gpu_type"),
            pl.col("pod_phase").alias("status"),
            *when_it_ran("creation_time", "scheduled_time", "deletion_time"),
        )
    )
