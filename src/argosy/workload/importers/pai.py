"""Import Alibaba PAI 2020: `pai_task_table.csv`, with `pai_job_table.csv` and `pai_group_tag_table.csv` if given.

The files have no header; the number of columns tells which is which. A job is the sum of its tasks, and an
instance asks for plan_gpu and plan_cpu hundredths and plan_mem GiB. A job is submitted when the job table says,
else when its first task starts, and runs from the first task's start to the last task's end. The job
table adds users and the ids that the tag table needs; the tags add recurring groups (our `name`), workloads
(our `model`) and the GPU types that were required. The `gpu_type` of a task is what it was given, not what it
required, and is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.errors import TraceError
from argosy.workload.conversion import Kind, convert, finish
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.importers._slurm import ran, when_it_ran
from argosy.workload.text_table import LINE, Table, load, parse_table

TASKS = {
    "job_name": Kind.TEXT,
    "task_name": Kind.TEXT,
    "inst_num": Kind.NUMBER,
    "status": Kind.STATUS,
    "start_time": Kind.NUMBER,
    "end_time": Kind.NUMBER,
    "plan_cpu": Kind.NUMBER,
    "plan_mem": Kind.NUMBER,
    "plan_gpu": Kind.NUMBER,
    "gpu_type": Kind.TEXT,
}
JOBS = {
    "job_name": Kind.TEXT,
    "inst_id": Kind.TEXT,
    "user": Kind.TEXT,
    "status": Kind.STATUS,
    "start_time": Kind.NUMBER,
    "end_time": Kind.NUMBER,
}
TAGS = dict.fromkeys(("inst_id", "user", "gpu_type_spec", "group", "workload"), Kind.TEXT)
TABLES = {"pai_task_table.csv": TASKS, "pai_job_table.csv": JOBS, "pai_group_tag_table.csv": TAGS}


@importer(
    "pai",
    "pai_task_table.csv (and job, group_tag tables) of Alibaba's 2020 trace",
    "Weng et al., NSDI 2022; github.com/alibaba/clusterdata, cluster-trace-gpu-v2020",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    tables = _tables(paths)
    tasks = tables.get("pai_task_table.csv")
    jobs, tags = tables.get("pai_job_table.csv"), tables.get("pai_group_tag_table.csv")
    if tasks is None:
        raise TraceError("there is no task table", where=str(paths[0]), hint="add pai_task_table.csv (10 columns)")
    if tags is not None and jobs is None:
        what = "group tags cannot be matched to jobs without the job table"
        raise TraceError(what, where=str(tags.path), hint="add pai_job_table.csv")
    notes: list[str] = []
    frame = _sum_tasks(tasks, notes)
    if jobs is not None:
        about = jobs.frame.rename({"status": "ended", "start_time": "submitted"}).unique("job_name", keep="first")
        frame = frame.join(
            about.select("job_name", "inst_id", "user", "ended", "submitted"),
            on="job_name",
            how="left",
            maintain_order="left",
        )
        submitted = pl.min_horizontal("submitted", "start_time")
        frame = frame.with_columns(pl.coalesce("ended", "status").alias("status"), submitted.alias("submit_s"))
    if tags is not None:
        frame = frame.join(
            tags.frame.drop("user", LINE).unique("inst_id", keep="first"),
            on="inst_id",
            how="left",
            maintain_order="left",
        )
        frame = frame.rename({"gpu_type_spec": "gpu_type", "group": "name", "workload": "model"})
    frame = frame.with_columns(when_it_ran("submit_s", "start_time", "end_time"))
    ours = Table(tasks.path, frame.rename({"job_name": "job_id"}), tasks.bad)
    others = [Table(t.path, ours.frame.clear(), t.bad) for t in (jobs, tags) if t is not None]
    return finish([ours, *others], on_error=on_error, notes=notes)


def _tables(paths: Sequence[Path]) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for path in paths:
        text = load(path)
        count = text.lstrip(b"\r\n").split(b"\n", 1)[0].count(b",") + 1
        name = next((name for name, columns in TABLES.items() if len(columns) == count), None)
        if name is None:
            hint = ", ".join(f"{name} has {len(columns)}" for name, columns in TABLES.items())
            raise TraceError(f"has {count} columns", where=f"{path}:1", hint=hint)
        if name in found:
            raise TraceError(f"a second {name}", where=str(path), hint="give each table once")
        columns = TABLES[name]
        table = parse_table(text, path, columns=list(columns))
        found[name] = convert(table, columns, required=[next(iter(columns))])
    return found


def _sum_tasks(tasks: Table, notes: list[str]) -> pl.DataFrame:
    """Return one row per job: what its tasks ask for together, and when they ran."""
    instances = pl.col("inst_num").fill_null(1.0)

    def total(column: str, unit: float) -> pl.Expr:
        return (instances * pl.col(column).fill_null(0.0) / unit).sum()

    started = pl.when(pl.col("start_time") > 0).then(pl.col("start_time"))  # 0 stands for unknown
    jobs = (
        tasks.frame.with_columns(started.alias("start_time"))
        .group_by("job_name", maintain_order=True)
        .agg(
            pl.col(LINE).first(),
            total("plan_gpu", 100).alias("asked"),
            total("plan_cpu", 100).alias("cpus"),
            total("plan_mem", 1).alias("memory_gib"),
            pl.col("start_time").min(),
            pl.col("end_time").max(),
            pl.when((pl.col("status") == "failed").any())
            .then(pl.lit("failed"))
            .when((pl.col("status") == "killed").any())
            .then(pl.lit("killed"))
            .otherwise(pl.lit("completed"))
            .alias("status"),
        )
    )
    jobs = ran(tasks.with_frame(jobs), "start_time", "end_time", notes).frame
    jobs = jobs.with_columns(pl.col("asked").round(6))  # sums of fractions
    broken = (pl.col("asked") > 1) & (pl.col("asked") % 1 != 0)
    if count := jobs.filter(broken).height:
        notes.append(f"{count:,} jobs ask for fractions of several GPUs; rounded up to whole ones")
    gpus = pl.when(pl.col("asked") > 1).then(pl.col("asked").ceil()).otherwise("asked")
    return jobs.with_columns(gpus.alias("gpus"), pl.col("start_time").alias("submit_s"))
