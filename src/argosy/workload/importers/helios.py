"""Import Helios' `cluster_log.csv`: Slurm jobs of SenseTime's clusters, April to September 2020.

`queue` in that file is the time spent waiting; our queue is the virtual cluster `vc`. Only some releases have
`jobname`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from argosy.workload.conversion import Kind, finish
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.importers._slurm import OUTCOME, read_cluster_log
from argosy.workload.text_table import Table

COLUMNS = {
    "job_id": Kind.TEXT,
    "user": Kind.TEXT,
    "vc": Kind.TEXT,
    "gpu_num": Kind.NUMBER,
    "cpu_num": Kind.NUMBER,
    **OUTCOME,
}


@importer(
    "helios",
    "cluster_log.csv of SenseTime's Helios clusters",
    "Hu et al., SC 2021; github.com/S-Lab-System-Group/HeliosData",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes: list[str] = []
    return finish([_rows(path, notes) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path, notes: list[str]) -> Table:
    name, renamed = {"jobname": Kind.TEXT}, {"vc": "queue"}
    table = read_cluster_log(path, notes, columns=COLUMNS, optional=name, what="cluster_log.csv", renamed=renamed)
    return table.with_frame(table.frame.rename({"jobname": "name"}, strict=False))
