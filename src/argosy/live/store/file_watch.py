"""Detects that the database's files were removed, replaced or overwritten while a daemon uses them.

SQLite does not notice: it continues with the files that it has open, and whatever is written from then on is lost when
they are closed.
"""

from __future__ import annotations

import os
from pathlib import Path

from argosy.live.durable_files import database_files, identity
from argosy.live.errors import DatabaseLost

STAMP_AT, STAMP_BYTES = 68, 4  # `PRAGMA application_id` in the header of an SQLite file


class FileWatch:
    """Remembers which files were opened, and with which stamp."""

    def __init__(self, path: Path, stamp: int) -> None:
        self.path = path
        # kept open until SQLite has closed the file: closing any descriptor of it would drop SQLite's locks
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._files = {file: identity(file) for file in database_files(path)}
        self._stamps = {stamp, self._stamp()}  # the new one may still be in the write-ahead log

    def check(self) -> None:
        """Raise DatabaseLost unless all files are those that were opened."""
        for file, known in self._files.items():
            if known is not None and (found := identity(file)) != known:
                how = "was removed" if found is None else "was replaced"
                raise DatabaseLost(f"{file} {how} while the daemon was using it")
        if self._stamp() not in self._stamps:
            raise DatabaseLost(f"{self.path} was overwritten while the daemon was using it", overwritten=True)

    def own_files(self) -> list[Path]:
        """Return the files that are still those that were opened."""
        return [file for file, known in self._files.items() if known is not None and identity(file) == known]

    def close(self) -> None:
        os.close(self._handle)

    def _stamp(self) -> int:
        return int.from_bytes(os.pread(self._handle, STAMP_BYTES, STAMP_AT), "big")
