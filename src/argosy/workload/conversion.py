"""Turn rows of strings into a trace: typed columns, bad rows with their reasons, one clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import polars as pl

from argosy.errors import TraceError
from argosy.workload.importers import ImportReport, OnError
from argosy.workload.text_table import LINE, Bad, Table
from argosy.workload.trace import SCHEMA, TIMES, Trace, conform, find_problems, in_order

SHOWN = 5  # bad rows that an error lists; further ones are only counted

_WORDS = {
    "completed": "pass passed completed complete success succeeded successful finished done ok terminated "
    # states of jobs that still ran when the log was written, which ran at least as long as recorded
    "running completing suspended resizing requeued configuring stage_out signaling stopping",
    "failed": "failed fail failure notpass not_pass error errored timeout node_fail out_of_memory oom "
    "boot_fail deadline launch_failed reconfig_fail crashed",
    # the owner or the cluster ended it, or withdrew it before it started
    "killed": "killed kill cancelled canceled stopped aborted revoked preempted evicted deleted pending waiting queued",
}
STATUS_WORDS = {word: status for status, words in _WORDS.items() for word in words.split()}


UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file writes times: the unit of plain numbers, and the format of dates (None: the usual ones)."""

    unit: str = "s"
    time_format: str | None = None


USUAL = Dialect()


class Kind(Enum):
    """The kinds of values that a column can hold."""

    TEXT = "text"
    NUMBER = "a number"
    WHOLE = "a whole number"
    TIME = "a time"  # seconds, or a date and time: then seconds since 1970 (UTC where no zone is given)
    SPAN = "a span of time like 1-02:30:00"  # in seconds
    LENGTH = "a number or a span of time like 1-02:30:00"
    STATUS = "a known status"


def normal_status(column: pl.Expr) -> pl.Expr:
    """Turn any spelling of a status into completed, failed or killed; null if the word is not known.

    Case and everything after the first word are ignored: Slurm writes "CANCELLED by 1001".
    """
    word = column.str.to_lowercase().str.extract(r"^\s*([a-z_]+)", 1)
    return word.replace_strict(STATUS_WORDS, default=None, return_dtype=pl.String)


def typed(name: str, kind: Kind, dtype: pl.DataType, dialect: Dialect = USUAL) -> pl.Expr:
    """Return a column converted to its kind; null where a value is not of that kind."""
    column = pl.col(name)
    if kind is Kind.TEXT:
        return column.cast(pl.String)
    if kind is Kind.STATUS:
        return normal_status(column.cast(pl.String))
    if kind is Kind.SPAN:
        return _span(column)
    if dtype.is_temporal():  # from Parquet
        dated = kind is Kind.TIME and dtype in (pl.Date, pl.Datetime)
        return column.dt.epoch("us") / 1e6 if dated else pl.lit(None, dtype=pl.Float64)
    number = column.str.strip_chars() if dtype == pl.String else column
    number = number.cast(pl.Float64, strict=False)
    if kind in (Kind.TIME, Kind.LENGTH) and dialect.unit != "s":
        number = number * UNITS[dialect.unit]
    if kind is Kind.LENGTH and dtype == pl.String:
        return pl.coalesce(number, _span(column))
    if kind is Kind.WHOLE:
        return pl.when(number % 1 == 0).then(number).cast(pl.Int64, strict=False)
    if kind is Kind.TIME and dtype == pl.String:
        return pl.coalesce(number, _moment(column, dialect.time_format))
    return number


MOMENTS = ("%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M")


def _moment(column: pl.Expr, time_format: str | None) -> pl.Expr:
    """Return seconds since 1970 for `2023-05-17 11:00:58`, with T or a blank, and optional fractions and zone.

    Dates in MOMENTS are understood too; what is ambiguous, such as 03/04/2024, needs a `time_format`.
    """
    if time_format is not None:
        stamp = column.str.strip_chars()
        if "%z" in time_format:
            return (
                stamp.str.to_datetime(time_format, strict=False, time_zone="UTC", time_unit="us").dt.epoch("us") / 1e6
            )
        return stamp.str.to_datetime(time_format, strict=False, time_unit="us").dt.epoch("us") / 1e6
    text = column.str.strip_chars().str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
    pattern = "%Y-%m-%d %H:%M:%S%.f"
    zoned = text.str.to_datetime(f"{pattern}%z", strict=False, time_zone="UTC", time_unit="us")
    plain = text.str.to_datetime(pattern, strict=False, time_unit="us")
    others = (text.str.to_datetime(other, strict=False, time_unit="us").dt.epoch("us") for other in MOMENTS)
    return pl.coalesce(zoned.dt.epoch("us"), plain.dt.epoch("us"), *others) / 1e6


def _span(column: pl.Expr) -> pl.Expr:
    """Return the seconds in `[[days-]hours:]minutes:seconds`."""
    parts = column.str.extract_groups(r"^\s*(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)\s*$").struct
    seconds = [parts.field(str(i + 1)).cast(pl.Float64) * unit for i, unit in enumerate((86_400, 3_600, 60, 1))]
    return seconds[0].fill_null(0.0) + seconds[1].fill_null(0.0) + seconds[2] + seconds[3]


def convert(
    table: Table, kinds: Mapping[str, Kind], *, required: Collection[str] = (), dialect: Dialect = USUAL
) -> Table:
    """Return the columns of `kinds`, typed; rows with a value of another kind, or without a required one, are bad."""
    raw = table.frame
    exprs = {name: typed(name, kind, raw.schema[name], dialect).alias(name) for name, kind in kinds.items()}
    frame = raw.select(LINE, *exprs.values())
    checks: list[tuple[pl.Expr, pl.Expr]] = []
    for name, kind in kinds.items():
        column, empty = pl.col(name), raw[name].null_count()
        if name in required and empty:
            checks.append((column.is_null(), pl.lit(f"{name} is missing")))
        if frame[name].null_count() > empty:
            shown = column.cast(pl.String).str.slice(0, 40)
            reason = pl.format("{} is not {}: '{}'", pl.lit(name), pl.lit(kind.value), shown)
            checks.append((column.is_not_null() & exprs[name].is_null(), reason))
    reasons: list[Bad] = []
    if checks:
        wrong = raw.select(pl.any_horizontal(check for check, _ in checks)).to_series()
        why = pl.coalesce(pl.when(check).then(reason) for check, reason in checks)
        reasons = raw.filter(wrong).select(LINE, why).rows()
        frame = frame.filter(~wrong)
    return Table(table.path, frame, (*table.bad, *reasons), table.numbered)


def need(table: Table, columns: Iterable[str], hint: str) -> None:
    """Raise TraceError for a file that lacks a column; `hint` says what the format looks like."""
    missing = [name for name in columns if name not in table.frame.columns]
    if missing:
        raise TraceError(f"has no column {' and no column '.join(missing)}", where=str(table.path), hint=hint)


def finish(parts: Sequence[Table], *, on_error: OnError, notes: Sequence[str] = (), shift: bool = True) -> ImportReport:
    """Return the rows as a trace; columns may be missing, and bad rows are skipped or raise TraceError.

    With `shift` the first submission becomes time 0.
    """
    frames = [part.frame.with_columns(pl.lit(i).alias("__part")) for i, part in enumerate(parts)]
    rows = pl.concat(frames, how="diagonal_relaxed")
    frame = conform(rows.select(c for c in rows.columns if c in SCHEMA))
    problems = find_problems(frame)
    bad = [(i, line, reason) for i, part in enumerate(parts) for line, reason in part.bad]
    if problems:
        at = [row for row, _ in problems]
        places = rows[at].select("__part", LINE).rows()
        bad += [(part, line, reason) for (part, line), (_, reason) in zip(places, problems)]
        frame = frame.with_row_index("__row").filter(~pl.col("__row").is_in(at)).drop("__row")
    skipped = [(parts[i].where(line), reason) for i, line, reason in sorted(bad)]
    if skipped and on_error == "fail":
        raise _refusal(skipped, rows.height + sum(len(part.bad) for part in parts))
    if frame.is_empty():
        raise _nothing(parts[0].path, skipped, notes)
    if shift:
        frame = frame.with_columns(pl.col(time) - pl.col("submit_s").min() for time in TIMES)
    trace = Trace(in_order(frame), stem(parts[0].path))
    return ImportReport(trace, skipped, list(notes))


def stem(path: Path) -> str:
    """Return the file's name without .csv, .csv.gz and the like."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0] or path.name


def _refusal(skipped: list[tuple[str, str]], rows: int) -> TraceError:
    (where, what), *others = skipped
    lines = [what, *(f"  {place}: {reason}" for place, reason in others[: SHOWN - 1])]
    if len(others) >= SHOWN:
        lines.append(f"  … and {len(others) - SHOWN + 1:,} more")
    if others:
        lines.append(f"  {len(skipped):,} of {rows:,} rows are bad")
    hint = "correct them, or leave them out with --on-error skip"
    return TraceError("\n".join(lines), where=where, hint=hint)


def _nothing(path: Path, skipped: list[tuple[str, str]], notes: Sequence[str]) -> TraceError:
    if skipped:
        where, reason = skipped[0]
        what = f"no good row is left; the first bad one: {reason}"
        return TraceError(what, where=where, hint="is this the right format?")
    what = "; ".join(["no jobs are left", *notes]) if notes else "the file has no rows"
    return TraceError(what, where=str(path), hint="is this the file you meant?")
