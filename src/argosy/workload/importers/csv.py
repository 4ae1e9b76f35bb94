"""Import traces with our own columns, CSV or Parquet, or any table whose columns can be mapped to them.

Times may be seconds or dates (`2024-01-31 08:00:00`); the first submission becomes 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from argosy.workload.conversion import Kind, finish
from argosy.workload.files import COLUMN_KINDS, read_rows
from argosy.workload.importers import ImportReport, OnError, importer

_KINDS = COLUMN_KINDS | {"submit_s": Kind.TIME, "deadline_s": Kind.TIME}


@importer("csv", "any CSV or Parquet table; --map names its columns", "docs/traces.md")
def read(
    paths: Sequence[Path], *, on_error: OnError = "fail", mapping: Mapping[str, str] | None = None
) -> ImportReport:
    """Read the files; with a mapping `{ours: theirs}` other columns are ignored, without one they are errors."""
    return finish([read_rows(path, mapping, _KINDS) for path in paths], on_error=on_error)
