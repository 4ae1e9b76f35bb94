"""Traces: the submitted jobs, as columns.

One Polars frame with the fixed columns below, sorted by submit time (ties keep the file's order). Columns
that a source does not know are null; the engine fills in defaults (CPUs and memory per GPU from the cluster,
a fixed size where no range is given, weight 1). All rows of a `Trace` have passed `find_problems`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import polars as pl

from argosy.errors import TraceError
from argosy.perf import quality

SCHEMA: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "submit_s": pl.Float64(),  # seconds since the trace began
    "duration_s": pl.Float64(),  # run time at the requested size on the reference GPU type
    "gpus": pl.Float64(),  # requested; 0 = CPU only, below 1 = a share of one device
    "user": pl.String(),
    "queue": pl.String(),  # virtual cluster, partition, organisation
    "model": pl.String(),  # network name: links the job to a performance model
    "gpu_type": pl.String(),  # allowed types, joined by '|'; null = any
    "status": pl.String(),  # how it ended: completed | failed | killed
    "cpus": pl.Float64(),  # for the whole job at its requested size
    "memory_gib": pl.Float64(),  # likewise
    "min_gpus": pl.Float64(),  # elastic range; null = rigid
    "max_gpus": pl.Float64(),
    "work": pl.Float64(),  # samples or steps, instead of or in addition to a duration
    "batch_size": pl.Float64(),  # total batch at the requested size
    "ps": pl.Int64(),  # parameter servers; null = all-reduce
    "app": pl.String(),  # jobs of one search belong together
    "weight": pl.Float64(),
    "deadline_s": pl.Float64(),  # absolute, on the trace's clock
    "priority": pl.Float64(),  # 0..100, higher first
    "expected_s": pl.Float64(),  # the user's own estimate of the duration
    "name": pl.String(),  # job name, for estimators that learn from habits
    "saves": pl.String(),  # what survives a stop: none | step | interval; null = a checkpoint when asked to stop
    # what really happened, where the source knows it; the policy `actual` shows it
    "start_s": pl.Float64(),  # first start
    "end_s": pl.Float64(),  # last end
    "attempts": pl.String(),  # "0-600 900-4000": when it ran, in seconds after start_s; null = all the time
    "max_batch": pl.Float64(),  # largest total batch that a policy may choose; null = the batch is fixed
    "batches": pl.String(),  # batch sizes that the job itself takes by share of the work: 32|64@0.3|128@0.6
    "execution_plan": pl.String(),  # of a large model: the user's, then those a policy may choose: zero-dp|any
    "quality": pl.String(),  # what it reaches left alone, grown, replicated: a name in argosy.perf.quality
    "spare_gpus": pl.Float64(),  # GPUs beyond its size that it takes while they are spare; null = none
}
STATUSES = ("completed", "failed", "killed")
SAVES = ("none", "step", "interval")
ATTEMPTS = r"^\d+(\.\d+)?-\d+(\.\d+)?( \d+(\.\d+)?-\d+(\.\d+)?)*$"
TIMES = ("submit_s", "deadline_s", "start_s", "end_s")  # columns on the trace's clock
MAX_TIME_S = 1e12  # 31,700 years: larger times lose precision, and are mostly milliseconds since 1970
LARGEST = {
    "gpus": 1e9,
    "min_gpus": 1e9,
    "max_gpus": 1e9,
    "spare_gpus": 1e9,
    "weight": 1e9,
    "ps": 1e4,
}  # larger than any real value
AMOUNTS = (
    *("cpus", "memory_gib", "min_gpus", "max_gpus", "work", "batch_size", "max_batch"),
    *("expected_s", "deadline_s", "start_s", "spare_gpus"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """One row of a trace, for building small traces in code."""

    job_id: str
    submit_s: float
    duration_s: float | None
    gpus: float
    user: str | None = None
    queue: str | None = None
    model: str | None = None
    gpu_type: str | None = None
    status: str = "completed"
    cpus: float | None = None
    memory_gib: float | None = None
    min_gpus: float | None = None
    max_gpus: float | None = None
    work: float | None = None
    batch_size: float | None = None
    ps: int | None = None
    app: str | None = None
    weight: float | None = None
    deadline_s: float | None = None
    priority: float | None = None
    expected_s: float | None = None
    name: str | None = None
    saves: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    attempts: str | None = None
    max_batch: float | None = None
    batches: str | None = None
    execution_plan: str | None = None
    quality: str | None = None
    spare_gpus: float | None = None


assert tuple(f.name for f in fields(Job)) == tuple(SCHEMA)  # both must list the same columns


@dataclass(frozen=True, slots=True)
class Trace:
    """Validated jobs in submit order, and the name to show for them."""

    frame: pl.DataFrame
    name: str = "trace"

    @classmethod
    def of(cls, frame: pl.DataFrame, name: str = "trace", *, source: str | None = None) -> Trace:
        """Make a trace from a frame: add missing columns, sort, validate; `source` is named in errors."""
        frame = conform(frame)
        problems = find_problems(frame)
        if problems:
            row, reason = problems[0]
            others = len(problems) - 1
            more = f" (and {others} more bad row{'' if others == 1 else 's'})" if others else ""
            raise TraceError(f"job {frame['job_id'][row]!r}: {reason}{more}", where=source)
        if frame.is_empty():
            hint = "check the file, or the filters in use"
            raise TraceError("the trace has no jobs", where=source, hint=hint)
        return cls(in_order(frame), name)

    @classmethod
    def of_jobs(cls, jobs: Iterable[Job], name: str = "trace") -> Trace:
        return cls.of(pl.DataFrame([asdict(job) for job in jobs], schema=SCHEMA), name)

    @classmethod
    def read(cls, path: str | Path) -> Trace:
        """Read a trace in our own format, CSV (also .gz) or Parquet; `argosy import` reads other formats."""
        from argosy.workload.files import read_trace

        return read_trace(path)

    def write(self, path: str | Path) -> None:
        """Write the trace as CSV, CSV.gz or Parquet, by suffix, atomically."""
        from argosy.workload.files import write_trace

        write_trace(self, path)

    def __len__(self) -> int:
        return self.frame.height

    def window(self, start_s: float, end_s: float) -> Trace:
        """Return jobs submitted in [start, end), with the clock starting at `start`."""
        part = self.frame.filter((pl.col("submit_s") >= start_s) & (pl.col("submit_s") < end_s))
        shifted = part.with_columns(pl.col(time) - start_s for time in TIMES)
        return Trace.of(shifted, f"{self.name}[{start_s:g}..{end_s:g}s]")

    def at_load(self, factor: float) -> Trace:
        """Return the same jobs arriving `factor` times as fast; when they really ran says nothing about that."""
        scaled = self.frame.with_columns(
            (pl.col("submit_s") / factor + (pl.col("deadline_s") - pl.col("submit_s"))).alias("deadline_s"),
            (pl.col("submit_s") / factor).alias("submit_s"),
            *(pl.lit(None, dtype=SCHEMA[name]).alias(name) for name in ("start_s", "end_s", "attempts")),
        )
        return Trace(scaled, f"{self.name}×{factor:g}")

    def offered_load(self, gpus: float) -> float:
        """Return the GPU-seconds that jobs ask for, per GPU-second available while they arrive."""
        submit = self.frame["submit_s"].to_numpy()
        span = float(submit.max() - submit.min())
        asked = float((self.frame["gpus"] * self.frame["duration_s"].fill_null(0.0)).sum())
        return asked / (max(span, 1e-9) * gpus)


def attempts_text(start_s: float, ran: Sequence[tuple[float, float]]) -> str | None:
    """Return the text of the column `attempts` for a job; None if it ran once, or if the times make no sense."""
    ends = [start_s, *(end for _, end in ran)]
    if len(ran) < 2 or any(start < end for (start, _), end in zip(ran[1:], ends[1:])):
        return None
    return " ".join(f"{max(a - start_s, 0.0):.15g}-{max(b - start_s, 0.0):.15g}" for a, b in ran)


def read_attempts(text: str) -> list[tuple[float, float]]:
    """Return what `attempts_text` wrote, in seconds after the job's first start."""
    pairs = [span.split("-") for span in text.split(" ")]
    return [(float(start), float(end)) for start, end in pairs]


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with exactly the columns of SCHEMA, in order and type; raise TraceError for unknown ones."""
    unknown = [c for c in frame.columns if c not in SCHEMA]
    if unknown:
        raise TraceError(f"unknown column {unknown[0]!r}", hint=f"columns: {', '.join(SCHEMA)}")
    return frame.select(
        (pl.col(c).cast(t) if c in frame.columns else pl.lit(None, dtype=t).alias(c)) for c, t in SCHEMA.items()
    ).with_columns(pl.col("status").fill_null("completed"))


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by submission; those that are in order already are not copied."""
    return frame if frame["submit_s"].is_sorted() else frame.sort("submit_s", maintain_order=True)


def find_problems(frame: pl.DataFrame) -> list[tuple[int, str]]:
    """Return (row, first reason) of every row that cannot be simulated, in row order.

    Of several rows with the same job_id, the first is good.
    """
    is_wrong, reason = _checks(quality.names())
    again = ~pl.col("job_id").is_first_distinct()
    rows = frame.lazy().with_row_index("row").with_columns(again.alias("again"))
    return rows.filter(is_wrong).select("row", reason).collect().rows()  # reasons are computed only for wrong rows


@cache
def _checks(curves: tuple[str, ...]) -> tuple[pl.Expr, pl.Expr]:
    """Return whether a row is wrong, and why; to make the expressions takes as long as to check thousands of rows."""

    def bad(column: str, lowest: float, *, optional: bool = True) -> pl.Expr:
        c = pl.col(column)
        wrong = c.is_nan() | c.is_infinite() | (c < lowest)
        return wrong.fill_null(not optional)

    def shown(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.String).fill_null("missing")

    def positive(column: str) -> pl.Expr:
        return (pl.col(column) > 0).fill_null(False)

    gpus = pl.col("gpus")
    checks: list[tuple[pl.Expr, pl.Expr]] = [
        (pl.col("job_id").is_null() | (pl.col("job_id") == ""), pl.lit("no job_id")),
        (pl.col("again"), pl.format("duplicate job_id {}", shown("job_id"))),
        (
            bad("submit_s", 0.0, optional=False),
            pl.format("submit_s must be a time ≥ 0, is {}", shown("submit_s")),
        ),
        (
            pl.col("duration_s").is_null() & pl.col("work").is_null(),
            pl.lit("neither duration_s nor work is given"),
        ),
        (bad("duration_s", 0.0), pl.format("duration_s must be ≥ 0, is {}", shown("duration_s"))),
        (bad("gpus", 0.0, optional=False), pl.format("gpus must be ≥ 0, is {}", shown("gpus"))),
        ((gpus > 1) & (gpus % 1 != 0), pl.format("gpus above 1 must be whole, is {}", shown("gpus"))),
        (
            (gpus == 0) & ~positive("cpus") & ~positive("memory_gib"),
            pl.lit("asks for nothing: gpus, cpus and memory_gib are all 0 or missing"),
        ),
        (
            ~pl.col("status").is_in(STATUSES),
            pl.format("status must be completed, failed or killed, is {}", shown("status")),
        ),
        *((bad(c, 0.0), pl.format("{} must be ≥ 0, is {}", pl.lit(c), shown(c))) for c in AMOUNTS),
        (
            ((pl.col("min_gpus") > gpus) | (pl.col("max_gpus") < gpus)).fill_null(False),
            pl.format("gpus = {} lies outside min_gpus..max_gpus", shown("gpus")),
        ),
        (
            (pl.col("max_batch") < pl.coalesce("batch_size", pl.lit(1.0))).fill_null(False),
            pl.format("max_batch = {} is below its batch_size", shown("max_batch")),
        ),
        (
            pl.col("max_batch").is_not_null() & pl.col("batches").is_not_null(),
            pl.lit("batches says that the job changes its batch itself, max_batch that a policy may: give one"),
        ),
        (
            ~pl.col("quality").is_in(curves),
            pl.format("quality must be one of " + ", ".join(curves) + ", is {}", shown("quality")),
        ),
        (
            (pl.col("spare_gpus") % 1 != 0).fill_null(False),
            pl.format("spare_gpus must be whole, is {}", shown("spare_gpus")),
        ),
        (
            (pl.col("spare_gpus") > 0).fill_null(False)
            & ((gpus < 1) | (pl.col("ps") > 0).fill_null(False) | pl.col("quality").is_null()),
            pl.lit("spare_gpus need whole GPUs, no parameter servers, and a quality that says what they are worth"),
        ),
        (
            bad("weight", 0.0) | (pl.col("weight") == 0).fill_null(False),
            pl.format("weight must be > 0, is {}", shown("weight")),
        ),
        (bad("priority", -math.inf), pl.format("priority must be a number, is {}", shown("priority"))),
        ((pl.col("ps") < 0).fill_null(False), pl.format("ps must be ≥ 0, is {}", shown("ps"))),
        (
            ~pl.col("saves").is_in(SAVES),
            pl.format("saves must be none, step or interval, is {}", shown("saves")),
        ),
        (
            (pl.col("start_s") < pl.col("submit_s")).fill_null(False),
            pl.format("start_s {} lies before submit_s {}", shown("start_s"), shown("submit_s")),
        ),
        (
            pl.col("end_s").is_not_null() & ~(pl.col("end_s") >= pl.col("start_s")).fill_null(False),
            pl.format("end_s {} needs a start_s that is not later, which is {}", shown("end_s"), shown("start_s")),
        ),
        (
            ~pl.col("attempts").str.contains(ATTEMPTS),
            pl.format("attempts must be like '0-600 900-4000', is {}", shown("attempts")),
        ),
        *(
            (
                (pl.col(c) > MAX_TIME_S).fill_null(False),
                pl.format(f"{c} is beyond {MAX_TIME_S:g} s (in milliseconds?), is {{}}", shown(c)),
            )
            for c in (*TIMES, "duration_s", "expected_s")
        ),
        *(
            ((pl.col(c) > most).fill_null(False), pl.format(f"{c} must be ≤ {most:g}, is {{}}", shown(c)))
            for c, most in LARGEST.items()
        ),
    ]
    is_wrong = pl.any_horizontal(check for check, _ in checks)
    return is_wrong, pl.coalesce(pl.when(check).then(why) for check, why in checks)
