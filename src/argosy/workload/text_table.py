"""Read text files as tables of strings that keep the line number of every row.

Files may come from anywhere, so nothing is trusted: the bytes are checked while they are read (encoding, length of
lines, damaged gzip), the records are found before Polars parses them, and rows with too many or too few fields are
set aside with their line numbers instead of causing a failure or shifting the others.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.errors import TraceError

LINE = "__line"  # the column with the line number of each row
CHUNK_BYTES = 2**20
MAX_LINE_BYTES = 2**20  # at least a chunk, so that only lines that cross a chunk's border must be measured
MAX_JSON_BYTES = 2**29  # JSON is parsed as a whole; the largest public log has a fifth of this

WRONG_FILE, CHECK_WRITER = "is this the file you meant?", "check the command that wrote it"  # hints

OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}

Bad = tuple[int, str]  # line, reason


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file, the bad rows that were set aside, and how to refer to a place in the file."""

    path: Path
    frame: pl.DataFrame
    bad: tuple[Bad, ...] = ()
    numbered: str = ":"  # before the row's number: file:7, or "file row 7" where there are no lines

    def where(self, line: int) -> str:
        return f"{self.path}{self.numbered}{line}"

    def with_frame(self, frame: pl.DataFrame) -> Table:
        return replace(self, frame=frame)

    def without(self, condition: pl.Expr, why: str, notes: list[str]) -> Table:
        """Leave out rows that are not jobs in this format; they are counted in the notes and are not an error."""
        kept = self.frame.filter(~condition.fill_null(False))
        if gone := self.frame.height - kept.height:
            notes.append(f"{gone:,} rows left out: {why}")
        return self.with_frame(kept)


def load(path: Path, *, max_line: int | None = MAX_LINE_BYTES, max_bytes: int | None = None) -> bytes:
    """Return the text of a file, gzipped or not, without byte-order mark; raise TraceError if it is not text."""
    text = io.BytesIO()
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, since_newline = 1, 0
    for chunk in chain(_chunks(path), [b""]):
        if b"\0" in chunk:
            raise TraceError("not a text file: it has zero bytes", where=str(path), hint=WRONG_FILE)
        try:
            decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as problem:
            line = lines + problem.object[: problem.start].count(b"\n")
            hint = f"{WRONG_FILE} Then save it as UTF-8"
            raise TraceError("not UTF-8 text", where=f"{path}:{line}", hint=hint) from None
        first = chunk.find(b"\n")
        since_newline += len(chunk) if first < 0 else first
        if max_line is not None and since_newline > max_line:
            what = f"a line is longer than {max_line // 2**20} MiB"
            raise TraceError(what, where=f"{path}:{lines}", hint=WRONG_FILE)
        if first >= 0:
            since_newline = len(chunk) - chunk.rfind(b"\n") - 1
            lines += chunk.count(b"\n")
        text.write(chunk)
        if max_bytes is not None and text.tell() > max_bytes:
            raise TraceError(f"larger than {max_bytes // 2**20} MiB", where=str(path), hint=WRONG_FILE)
    content = text.getvalue().removeprefix(codecs.BOM_UTF8)
    if not content:
        raise TraceError("the file is empty", where=str(path), hint=CHECK_WRITER)
    return content


def open_binary(path: Path) -> io.BufferedReader:
    """Open a file for reading; raise TraceError if it cannot be read."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise TraceError("there is no such file", where=str(path), hint="check the path") from None
    except IsADirectoryError:
        raise TraceError("this is a folder, not a file", where=str(path), hint="name a file in it") from None
    except (OSError, ValueError) as problem:  # ValueError: a zero byte in the path
        raise unreadable(path, problem) from None


def unreadable(path: Path, problem: OSError | ValueError) -> TraceError:
    reason = problem.strerror if isinstance(problem, OSError) else str(problem)
    return TraceError(f"cannot be read: {reason}", where=str(path), hint="check the path and its rights")


def _chunks(path: Path) -> Iterator[bytes]:
    with open_binary(path) as file:
        try:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"  # a pipe cannot be rewound
            source = gzip.GzipFile(fileobj=file) if zipped else file
            while chunk := source.read(CHUNK_BYTES):
                yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error):
            hint = "copy or download it again"
            raise TraceError("the gzip data is cut off or damaged", where=str(path), hint=hint) from None
        except OSError as problem:
            raise unreadable(path, problem) from None


def read_table(
    path: Path,
    *,
    separator: str = ",",
    quoted: bool = True,
    columns: Sequence[str] | None = None,
    nulls: Sequence[str] = (),
) -> Table:
    """Return the rows of a delimited file as strings; empty cells and `nulls` are null.

    `columns` names the columns of a file without header.
    """
    return parse_table(load(path), path, separator=separator, quoted=quoted, columns=columns, nulls=nulls)


def parse_table(
    text: bytes,
    path: Path,
    *,
    separator: str = ",",
    quoted: bool = True,
    columns: Sequence[str] | None = None,
    nulls: Sequence[str] = (),
) -> Table:
    """Parse a text as `read_table` does with a file."""
    starts, ends, lines, fields = _records(text, separator, quoted, path)
    if not fields.any():
        raise TraceError("the file has only blank lines", where=str(path), hint=CHECK_WRITER)
    if columns is None:
        first = int(np.argmax(fields > 0))
        columns = _header(text[starts[first] : ends[first]], separator, quoted, path, int(lines[first]))
        fields[first] = 0  # the header is not a row of data
    good = fields == len(columns)
    ragged = np.flatnonzero(~good & (fields > 0))
    bad = tuple((int(lines[i]), f"has {fields[i]} fields, not {len(columns)}") for i in ragged)
    try:
        frame = _parse(_cut(text, starts, ends, good), separator, quoted, columns, nulls)
    except pl.exceptions.PolarsError:  # encoding and numbers of fields are right, so only quotes can be wrong
        raise _unpaired(text, path) from None
    if frame.height != int(good.sum()):
        raise _unpaired(text, path)
    return Table(path, frame.with_columns(pl.Series(LINE, lines[good])), bad)


def _records(
    text: bytes, separator: str, quoted: bool, path: Path
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return start, end, line and number of fields of every record; blank ones have 0 fields.

    A newline or separator counts if an even number of quotes precedes it.
    """
    data = np.frombuffer(text, np.uint8)
    newlines = np.flatnonzero(data == ord("\n"))
    ends = newlines if text.endswith(b"\n") else np.append(newlines, len(data))
    separators = np.flatnonzero(data == ord(separator))
    if quoted and len(quotes := np.flatnonzero(data == ord('"'))):
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
        if len(quotes) % 2:
            raise _unpaired(text, path)
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts
    blank = (lengths == 0) | ((lengths == 1) & (data[np.minimum(starts, len(data) - 1)] == ord("\r")))
    lines = np.searchsorted(newlines, starts) + 1
    fields = np.where(blank, 0, np.diff(np.searchsorted(separators, ends), prepend=0) + 1)
    return starts, ends, lines, fields


def _header(line: bytes, separator: str, quoted: bool, path: Path, number: int) -> list[str]:
    text = line.decode().rstrip("\r")
    try:
        names = next(csv.reader([text], delimiter=separator)) if quoted else text.split(separator)
    except csv.Error as problem:
        raise TraceError(f"no header: {problem}", where=f"{path}:{number}", hint=WRONG_FILE) from None
    other = next((word for mark, word in OTHER_SEPARATORS.items() if mark in text), None)
    if separator == "," and len(names) == 1 and other is not None:
        hint = "save it with commas between columns, and points in decimal numbers"
        raise TraceError(f"its columns are separated by {other}, not by commas", where=f"{path}:{number}", hint=hint)
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise TraceError(f"two columns are named {twice!r}", where=f"{path}:{number}", hint="rename one of them")
    return names


def _unpaired(text: bytes, path: Path) -> TraceError:
    """Return an error that names the first line with an odd number of quotation marks, most often the cause."""
    lines = (number for number, line in enumerate(text.split(b"\n"), 1) if line.count(b'"') % 2)
    where = f"{path}:{number}" if (number := next(lines, None)) else str(path)
    hint = "quote a whole field, and double a quotation mark inside it"
    return TraceError("quotation marks do not pair up", where=where, hint=hint)


def _cut(text: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], good: NDArray[np.bool_]) -> bytes:
    """Return only the good records, copied run by run, since most files are a single run of them."""
    edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0))
    return b"".join(text[starts[a] : ends[b - 1]] + b"\n" for a, b in edges.reshape(-1, 2))


def _parse(text: bytes, separator: str, quoted: bool, columns: Sequence[str], nulls: Sequence[str]) -> pl.DataFrame:
    schema = {name: pl.String() for name in columns}
    if not text:
        return pl.DataFrame(schema=schema)
    return pl.read_csv(
        text,
        has_header=False,
        separator=separator,
        quote_char='"' if quoted else None,
        schema=schema,
        null_values=list(nulls) or None,
    )
