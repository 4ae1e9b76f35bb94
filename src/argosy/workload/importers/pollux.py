"""Import workload files of the Pollux and Sia simulators: name,time,application,num_replicas,batch_size.

The files name the application of a job, but not its duration. The work of an application is what its authors'
simulator trains: the steps at the smallest validated batch size until the last epoch, times that batch size, so
it is in samples of full statistical efficiency. The engine derives the run time from the performance model of
that name. All jobs may be resized between 1 GPU and the authors' limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.workload.conversion import Kind, convert, finish, need
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.text_table import LINE, Table, read_table

COLUMNS = {
    "name": Kind.TEXT,
    "time": Kind.NUMBER,
    "application": Kind.TEXT,
    "num_replicas": Kind.NUMBER,
    "batch_size": Kind.NUMBER,
}
MAX_REPLICAS = 64.0

# application: (smallest batch size, steps at it); from the validation-*.csv of both simulators
TRAINING = {
    "bert": (12, 14_774),
    "cifar10": (128, 39_063),
    "deepspeech2": (20, 28_536),
    "gpt_pmp": (12, 14_774),
    "imagenet": (200, 576_526),
    "ncf": (256, 194_174),
    "yolov3": (8, 103_444),
}
WORK = {name: float(batch * steps) for name, (batch, steps) in TRAINING.items()}


@importer(
    "pollux",
    "workload-*.csv of the Pollux and Sia simulators",
    "Qiao et al., Pollux, OSDI 2021; Sia, SOSP 2023; github.com/petuum/adaptdl, siasosp23/artifacts",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes = [
        "work is in samples, by application; durations follow from the performance model named in `model`",
        f"jobs may be resized: 1..{MAX_REPLICAS:g} GPUs",
    ]
    return finish([_rows(path) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path) -> Table:
    table = read_table(path)
    need(table, COLUMNS, f"a Pollux workload begins with {','.join(COLUMNS)}")
    table = convert(table, COLUMNS, required=COLUMNS)
    model, gpus = pl.col("application").str.to_lowercase(), pl.col("num_replicas")
    unknown = table.frame.filter(~model.is_in(list(WORK)))
    reasons = [
        (line, f"application '{name}' is not one of {', '.join(WORK)}")
        for line, name in unknown.select(LINE, "application").rows()
    ]
    frame = table.frame.filter(model.is_in(list(WORK))).select(
        LINE,
        "batch_size",
        pl.col("name").alias("job_id"),
        pl.col("time").alias("submit_s"),
        gpus.alias("gpus"),
        model.alias("model"),
        model.replace_strict(WORK, return_dtype=pl.Float64).alias("work"),
        pl.lit(1.0).alias("min_gpus"),
        pl.max_horizontal(gpus, pl.lit(MAX_REPLICAS)).alias("max_gpus"),
    )
    return Table(path, frame, (*table.bad, *reasons))
