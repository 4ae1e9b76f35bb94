"""Import Slurm accounting: the output of `sacct -P` (or `-p`), with its header.

    sacct -aP -S 2024-01-01 -E 2024-02-01 \\
      -o JobID,User,Partition,JobName,Submit,Start,End,Elapsed,State,NCPUS,ReqTRES,AllocTRES,Timelimit

Job steps (123.batch) and jobs that never started are left out. GPUs, CPUs and memory are what was allocated,
else what was requested; the GPU type is only what was requested, since an allocation is not a requirement. The
run time is `Elapsed`, which does not count suspension; `Timelimit` is the user's own estimate.

A job that was requeued (after REQUEUED, PREEMPTED or NODE_FAIL) has a row for each time it ran if sacct was asked for
duplicates (`-D`). They become one job: submitted first, ended as in the last row, with the sum of their run times.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from argosy.errors import TraceError
from argosy.workload.conversion import Kind, convert, finish, need
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.importers._slurm import ran, when_it_ran
from argosy.workload.text_table import LINE, Table, read_table
from argosy.workload.trace import attempts_text

REQUIRED = ("JobID", "Submit", "Start", "State")
COLUMNS = {
    "JobID": Kind.TEXT,
    "Submit": Kind.TIME,
    "Start": Kind.TIME,
    "End": Kind.TIME,
    "Elapsed": Kind.SPAN,
    "ElapsedRaw": Kind.NUMBER,
    "Timelimit": Kind.SPAN,
    "State": Kind.STATUS,
    "NCPUS": Kind.NUMBER,
    "AllocCPUS": Kind.NUMBER,
    "ReqCPUS": Kind.NUMBER,
    "NNodes": Kind.NUMBER,
    **dict.fromkeys(
        ("User", "Partition", "JobName", "ReqMem", "AllocTRES", "ReqTRES", "TRES", "AllocGRES", "ReqGRES"),
        Kind.TEXT,
    ),
}
TRES = ("AllocTRES", "TRES", "ReqTRES")
NULLS = ("Unknown", "None", "N/A", "UNLIMITED", "Partition_Limit", "INVALID")
GIB = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20}


@importer("sacct", "Slurm accounting, the output of sacct -P", "slurm.schedmd.com/sacct.html")
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    notes: list[str] = []
    return finish([_rows(path, notes) for path in paths], on_error=on_error, notes=notes)


def _rows(path: Path, notes: list[str]) -> Table:
    table = read_table(path, separator="|", quoted=False, nulls=NULLS)
    need(
        table,
        REQUIRED,
        "run sacct -P without -n, with -o JobID,Submit,Start,Elapsed,State,AllocTRES and more",
    )
    present = {name: kind for name, kind in COLUMNS.items() if name in table.frame.columns}
    if not present.keys() & {"Elapsed", "ElapsedRaw", "End"}:
        raise TraceError("has no run times", where=str(path), hint="add Elapsed to the columns of sacct -o")
    table = table.without(pl.col("JobID").str.contains(".", literal=True), "job steps, such as 123.batch", notes)
    table = convert(table, present, required=("JobID", "Submit", "State"))
    absent = [pl.lit(None, dtype=pl.String if k is Kind.TEXT else pl.Float64).alias(c) for c, k in COLUMNS.items()]
    table = table.with_frame(table.frame.with_columns(e for e in absent if e.meta.output_name() not in present))
    end = pl.coalesce(pl.col("Start") + pl.coalesce("Elapsed", "ElapsedRaw"), "End")  # also of jobs that still run
    frame = table.frame.with_columns(pl.coalesce(pl.col("End"), end).alias("left"), end.alias("End"))
    table = _one_job_each(ran(table.with_frame(frame), "Start", "End", notes), notes)
    cpus = pl.coalesce("NCPUS", "AllocCPUS", *map(_cpus, TRES), "ReqCPUS")
    return table.with_frame(
        table.frame.select(
            LINE,
            "duration_s",
            pl.col("JobID").alias("job_id"),
            pl.col("Submit").alias("submit_s"),
            pl.coalesce(*map(_gpus, TRES), *map(_gres, ("AllocGRES", "ReqGRES")), pl.lit(0.0)).alias("gpus"),
            pl.col("User").alias("user"),
            pl.col("Partition").alias("queue"),
            pl.col("JobName").alias("name"),
            pl.col("State").alias("status"),
            pl.col("ReqTRES").str.extract(r"gres/gpu:([^=,]+)=", 1).str.to_lowercase().alias("gpu_type"),
            cpus.alias("cpus"),
            pl.coalesce(*map(_memory, TRES), _requested_memory(cpus)).alias("memory_gib"),
            pl.col("Timelimit").alias("expected_s"),
            *when_it_ran("Submit", "Start", "left"),
            "attempts",
        )
    )


def _one_job_each(table: Table, notes: list[str]) -> Table:
    """Put the rows of a job that was requeued together; equal ids of other users or names are other jobs."""
    key = ["JobID", "User", "JobName"]
    frame = table.frame.with_columns(pl.lit(None, dtype=pl.String).alias("attempts"))
    again = pl.struct(key).is_duplicated()
    several = frame.filter(again).sort("Start", maintain_order=True)
    if several.is_empty():
        return table.with_frame(frame)
    jobs = several.group_by(key, maintain_order=True).agg(
        pl.col(LINE).first(),
        pl.col("Submit", "Start").min(),
        pl.col("left").max(),
        pl.col("duration_s").sum(),
        pl.struct(
            pl.max_horizontal(pl.col("Start").min(), pl.col("Submit").min()).alias("from"),
            pl.concat_list("Start", "left").implode().alias("ran"),
        )
        .first()
        .map_elements(lambda job: attempts_text(job["from"], [tuple(one) for one in job["ran"]]), pl.String)
        .alias("attempts"),
        pl.exclude(*key, LINE, "Submit", "Start", "left", "duration_s", "attempts").last(),
    )
    notes.append(f"{several.height:,} rows are {jobs.height:,} jobs that were requeued; run times are added up")
    whole = pl.concat([frame.filter(~again), jobs.select(frame.columns)]).sort(LINE)
    return table.with_frame(whole)


def _gpus(tres: str) -> pl.Expr:
    """Read the GPUs in `gres/gpu=4`; if only counts by type are given (`gres/gpu:a100=4`), their sum."""
    column = pl.col(tres)
    total = column.str.extract(r"gres/gpu=(\d+)", 1).cast(pl.Float64)
    by_type = column.str.extract_all(r"gres/gpu:[^=,]+=\d+").list.eval(
        pl.element().str.extract(r"=(\d+)$", 1).cast(pl.Float64)
    )
    return pl.coalesce(total, pl.when(by_type.list.len() > 0).then(by_type.list.sum()))


def _gres(column: str) -> pl.Expr:
    """Read the GPUs as older Slurm writes them: `gpu:4` or `gpu:v100:4`."""
    return pl.col(column).str.extract(r"gpu(?::[A-Za-z][^:,]*)?:(\d+)", 1).cast(pl.Float64)


def _cpus(tres: str) -> pl.Expr:
    return pl.col(tres).str.extract(r"(?:^|,)cpu=(\d+)", 1).cast(pl.Float64)


def _memory(tres: str) -> pl.Expr:
    """Read `mem=64G`, in GiB."""
    return _gib(pl.col(tres).str.extract(r"(?:^|,)mem=([\d.]+[KMGTP]?)", 1))


def _requested_memory(cpus: pl.Expr) -> pl.Expr:
    """Read `ReqMem`, which is for the job, or per CPU or per node if it ends with c or n."""
    column = pl.col("ReqMem")
    per = (
        pl.when(column.str.ends_with("c"))
        .then(cpus)
        .when(column.str.ends_with("n"))
        .then(pl.col("NNodes").fill_null(1.0))
        .otherwise(1.0)
    )
    asked = _gib(column.str.extract(r"^([\d.]+[KMGTP]?)[cn]?$", 1)) * per
    return pl.when(asked > 0).then(asked)  # 0 means: no request


def _gib(text: pl.Expr) -> pl.Expr:
    """Read an amount such as `512M` in GiB; without a letter it is in MiB, as in Slurm."""
    unit = text.str.extract(r"([KMGTP])$", 1).fill_null("M").replace_strict(GIB, return_dtype=pl.Float64)
    return text.str.extract(r"^([\d.]+)", 1).cast(pl.Float64, strict=False) * unit
