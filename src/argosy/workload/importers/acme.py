"""Import Acme `trace_seren.csv` and `trace_kalos.csv`: LLM development at Shanghai AI Lab, March to August 2023.

The run time is end − start: Kalos' own `duration` includes the time in the queue. `queue` in these files is
that waiting time, not a queue. Memory is known per pod (Kalos only) and taken once per node. The workload
`type` (Pretrain, Evaluation, …) becomes the job's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.workload.conversion import Kind, finish
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.importers._slurm import OUTCOME, read_cluster_log
from argosy.workload.text_table import Table

COLUMNS = {
    "job_id": Kind.TEXT,
    "user": Kind.TEXT,
    "node_num": Kind.NUMBER,
    "gpu_num": Kind.NUMBER,
    "cpu_num": Kind.NUMBER,
    "type": Kind.TEXT,
    **OUTCOME,
}


@importer(
    "acme",
    "trace_seren.csv and trace_kalos.csv of Shanghai AI Lab's Acme",
    "Hu et al., NSDI 2024; github.com/InternLM/AcmeTrace",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes: list[str] = []
    return finish([_rows(path, notes) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path, notes: list[str]) -> Table:
    memory, renamed = {"mem_per_pod_GB": Kind.NUMBER}, {"type": "name", "node_num": "nodes"}
    table = read_cluster_log(path, notes, columns=COLUMNS, optional=memory, what="an Acme trace", renamed=renamed)
    per_node = [(pl.col(c) * pl.col("nodes").fill_null(1.0)).alias("memory_gib") for c in memory if c in table.frame]
    return table.with_frame(table.frame.with_columns(per_node).drop("nodes", *memory, strict=False))
