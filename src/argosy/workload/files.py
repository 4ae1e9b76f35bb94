"""Read and write our own trace files: CSV, gzipped CSV and Parquet.

Columns are those of `SCHEMA`, by their exact names and in any order. A mapping `{ours: theirs}` reads files
with other names; columns that are then neither mapped nor ours are ignored.
"""

from __future__ import annotations

import difflib
import gzip
from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from argosy.atomic import writing
from argosy.errors import InputError, TraceError, UnknownName
from argosy.workload.conversion import SHOWN, USUAL, Dialect, Kind, convert, finish
from argosy.workload.importers import ImportReport, OnError
from argosy.workload.text_table import LINE, Table, open_binary, read_table
from argosy.workload.trace import SCHEMA, Trace

SUFFIXES = (".csv", ".csv.gz", ".parquet")
REQUIRED = ("job_id", "submit_s", "gpus")
_KINDS = {pl.String(): Kind.TEXT, pl.Float64(): Kind.NUMBER, pl.Int64(): Kind.WHOLE}
_PARQUET_TYPES = (pl.String, pl.Boolean, pl.Null, pl.Date, pl.Datetime, pl.Categorical, pl.Enum)
COLUMN_KINDS = {name: _KINDS[dtype] for name, dtype in SCHEMA.items()} | {"status": Kind.STATUS}


def read_trace(path: str | Path, mapping: Mapping[str, str] | None = None, on_error: OnError = "fail") -> Trace:
    """Return the jobs of a file; its first bytes tell the format (CSV, gzip, Parquet)."""
    return read_trace_report(path, mapping, on_error).trace


def read_trace_report(
    path: str | Path, mapping: Mapping[str, str] | None = None, on_error: OnError = "fail"
) -> ImportReport:
    """Read a trace as `read_trace` does, and also return the rows that were skipped."""
    return finish([read_rows(Path(path), mapping)], on_error=on_error, shift=False)


def read_rows(
    path: Path,
    mapping: Mapping[str, str] | None = None,
    kinds: Mapping[str, Kind] = COLUMN_KINDS,
    *,
    aliases: Mapping[str, Collection[str]] | None = None,
    separator: str = ",",
    dialect: Dialect = USUAL,
) -> Table:
    """Return the rows of a file under our column names, typed; a duration may follow from start and end.

    `aliases` are names that columns of ours often have elsewhere, used where neither we nor the mapping name them.
    """
    table = _read_parquet(path) if _is_parquet(path) else read_table(path, separator=separator)
    source = _sources(table, mapping, aliases or {})
    frame = table.frame.select(LINE, *(pl.col(theirs).alias(ours) for ours, theirs in source.items()))
    table = convert(table.with_frame(frame), {c: kinds[c] for c in source}, required=REQUIRED, dialect=dialect)
    if not source.keys() >= {"start_s", "end_s"}:
        return table
    length = pl.col("end_s") - pl.col("start_s")
    given = [pl.col("duration_s")] if "duration_s" in source else []
    return table.with_frame(table.frame.with_columns(pl.coalesce(*given, length).alias("duration_s")))


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as CSV, CSV.gz or Parquet, by suffix, atomically; CSV files omit columns without values.

    The same trace gives the same bytes.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        hint = f"end its name with {', '.join(SUFFIXES)}"
        raise InputError(f"unknown kind of trace file: {path.name!r}", hint=hint)
    with writing(path) as temporary:
        if name.endswith(".parquet"):
            trace.frame.write_parquet(temporary)
            return
        known = [c for c in trace.frame.columns if trace.frame[c].null_count() < len(trace)]
        table = trace.frame.select(known)
        if name.endswith(".csv"):
            table.write_csv(temporary)
            return
        with temporary.open("wb") as file, gzip.GzipFile("", "wb", 3, fileobj=file, mtime=0) as zipped:
            zipped.write(table.write_csv().encode())


def _sources(table: Table, mapping: Mapping[str, str] | None, aliases: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return which column of the file feeds each of ours."""
    present = [c for c in table.frame.columns if c != LINE]
    also = {
        ours: theirs
        for ours, names in aliases.items()
        if ours not in (mapping or {}) and ours not in present
        for theirs in present
        if theirs.strip().lower() in names and theirs not in (mapping or {}).values()
    }
    where = f"{table.path}:1"
    for ours, theirs in (mapping or {}).items():
        if ours not in SCHEMA:
            raise UnknownName("trace column", ours, SCHEMA)
        if theirs not in present:
            raise TraceError(f"has no column {theirs!r}", where=where, hint=_nearest(theirs, present))
    unknown = [c for c in present if c not in SCHEMA and c not in also.values()]
    if unknown and mapping is None:
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        what = f"unknown column{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown[:SHOWN]))}{more}"
        hint = f"{_nearest(unknown[0], SCHEMA)}; or name yours: argosy import csv --map gpus=num_gpu"
        raise TraceError(what, where=where, hint=hint)
    named = also | dict(mapping or {})
    source = {c: named.get(c, c) for c in SCHEMA if c in named or c in present}
    for column in REQUIRED:
        if column not in source:
            raise TraceError(f"has no column {column!r}", where=where, hint=_nearest(column, present))
    if not source.keys() & {"duration_s", "work"} and not source.keys() >= {"start_s", "end_s"}:
        what = "has neither a column 'duration_s' nor 'work', nor both 'start_s' and 'end_s'"
        raise TraceError(what, where=where, hint=_nearest("duration_s", present))
    return source


def _nearest(name: str, known: Collection[str]) -> str:
    """Suggest the column that was probably meant, or else list all columns."""
    lower = {k.strip().lower(): k for k in known}
    close = difflib.get_close_matches(name.strip().lower(), lower, n=1, cutoff=0.5)
    return f"did you mean {lower[close[0]]!r}?" if close else f"columns: {', '.join(known)}"


def _is_parquet(path: Path) -> bool:
    if not path.is_file():  # a pipe cannot be read twice
        return False
    with open_binary(path) as file:
        return file.peek(4)[:4] == b"PAR1"


def _read_parquet(path: Path) -> Table:
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as problem:
        reason = str(problem).splitlines()[0][:200]
        raise TraceError(f"damaged Parquet: {reason}", where=str(path), hint="copy or write it again") from None
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype in _PARQUET_TYPES):
            hint = "columns must hold numbers, texts or dates"
            raise TraceError(f"column {name!r} holds {dtype}", where=str(path), hint=hint)
    empty = [name for name, (nulls,) in zip(frame.columns, frame.null_count().iter_columns()) if nulls == frame.height]
    frame = frame.with_columns(
        pl.col(pl.Categorical, pl.Enum).cast(pl.String),
        *(pl.lit(None, frame.schema[name]).alias(name) for name in empty),  # takes no memory, as in a file without it
    )
    return Table(path, frame.with_row_index(LINE, offset=1), numbered=" row ")
