"""Writes the output of all workers of a run into one log of bounded size."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_LINE = 16 << 10  # a longer line is broken into several
TAIL = 4 << 10


class LogFile:
    """A log of at most twice `max_bytes`: a full file becomes `log.1` and replaces the former one.

    If the disk is full, output is dropped and counted, and the run goes on.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        self.dropped = 0  # bytes that could not be written
        self.tail = b""  # the last bytes written, for error messages
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL:]
        if self._size + len(data) > self.max_bytes:
            self._rotate()
        try:
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        self._size += written
        self.dropped += len(data) - written

    def _rotate(self) -> None:
        with contextlib.suppress(OSError):
            os.replace(self.path, self.path.with_name(self.path.name + ".1"))
            fresh = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.close(self._fd)
            self._fd, self._size = fresh, 0

    def close(self) -> None:
        os.close(self._fd)


class Splitter:
    """Splits what a worker prints into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return complete lines, each with a newline. Carriage returns, which progress bars print, also end lines."""
        *lines, self._rest = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        cut = []
        for line in lines:
            cut += [line[i : i + MAX_LINE] + b"\n" for i in range(0, max(len(line), 1), MAX_LINE)]
        while len(self._rest) > MAX_LINE:
            cut.append(self._rest[:MAX_LINE] + b"\n")
            self._rest = self._rest[MAX_LINE:]
        return cut

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest + b"\n"] if rest else []
