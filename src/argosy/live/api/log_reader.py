"""Reads a rotated log as one text: when `log` is full it becomes `log.1`, and a new file begins."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from argosy.live.errors import NotFound
from argosy.live.untrusted_files import open_below

CHUNK = 64 * 1024


class LogFile:
    """Reads a log that may not exist yet, and may be rotated while it is read.

    One thread may close it while another reads. A closed log is never opened or read again, because its descriptors may
    by then belong to other files.
    """

    def __init__(self, root: Path, path: Path) -> None:
        self._root, self._path = root, path
        self._older = self._file = -1
        self._older_size = 0
        self._lock, self._closed = threading.Lock(), False
        self.at = 0

    def open(self) -> bool:
        """Open the log and its older part, if they exist, and keep them open. Returns whether there is a log."""
        with self._lock:
            return self._open()

    def _open(self) -> bool:
        if self._file < 0 and not self._closed:
            with suppress(NotFound):
                self._file = open_below(self._root, self._path)
            if self._file >= 0:
                self._open_older()
        return self._file >= 0

    def _open_older(self) -> None:
        with suppress(NotFound):
            older = open_below(self._root, self._path.with_name(f"{self._path.name}.1"))
            if os.path.samestat(os.fstat(older), os.fstat(self._file)):  # the log was rotated between the two calls
                os.close(older)
            else:
                self._older, self._older_size = older, os.fstat(older).st_size

    def size(self) -> int:
        return self._older_size + os.fstat(self._file).st_size if self._file >= 0 else 0

    def read(self) -> bytes:
        """Return the next bytes, or b"" if there are no more at the moment."""
        with self._lock:
            if not self._open():
                return b""
            if self.at < self._older_size:
                chunk = os.pread(self._older, min(CHUNK, self._older_size - self.at), self.at)
            else:
                chunk = os.pread(self._file, CHUNK, self.at - self._older_size)
            self.at += len(chunk)
            return chunk

    def renewed(self) -> bool:
        """Return whether the log was rotated; if so, reading continues at the start of the new file."""
        with self._lock:
            if self._file < 0:
                return False
            try:
                fresh = open_below(self._root, self._path)
            except NotFound:
                return False
            if os.path.samestat(os.fstat(fresh), os.fstat(self._file)):
                os.close(fresh)
                return False
            self._close_files()
            self._file, self.at = fresh, 0
            return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._close_files()

    def _close_files(self) -> None:
        for file in (self._older, self._file):
            if file >= 0:
                os.close(file)
        self._older = self._file = -1
        self._older_size = 0

    def __del__(self) -> None:
        # the generator that closes the log never starts if the client disconnects before the first byte
        self.close()
