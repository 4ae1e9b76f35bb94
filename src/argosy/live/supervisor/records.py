"""Reads and writes the files through which the supervisor of a run and the backend communicate.

Records are JSON files that are replaced atomically.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argosy.live.untrusted_files import read_file

MAX_BYTES = 4 << 20  # the largest record that is read: a job must not fill the daemon's memory through its reports


class RunFolder:
    """The folder home/gen-<generation> of a run, and the paths of the files in it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.run = self.path / "run.json"  # what to run, written by the backend
        self.lock = self.path / "lock"  # locked by the supervisor as long as it lives
        self.supervisor = self.path / "supervisor.json"  # its process, and the resources to remove if it dies
        self.status = self.path / "status.json"  # how the run is doing
        self.exit = self.path / "exit.json"  # how it ended
        self.log = self.path / "log"
        self.complaints = self.path / "supervisor.log"

    def take_lock(self) -> int | None:
        """Take the lock and return its descriptor, or None if a supervisor holds the lock."""
        fd = os.open(self.lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def supervised(self) -> bool:
        """Return whether the supervisor is alive. The system releases its lock when it dies, for whatever reason."""
        try:
            fd = self.take_lock()
        except FileNotFoundError:
            return False
        if fd is None:
            return True
        os.close(fd)
        return False


def write_record(path: Path, content: Mapping[str, Any], *, durable: bool) -> None:
    """Replace the file atomically; with `durable` it is on the disk when this returns."""
    beside = path.with_name(f".{path.name}.new")
    fd = os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(content).encode()
        while data:  # if the disk fills up, one call writes a part and the next raises the error
            data = data[os.write(fd, data) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    beside.replace(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the content of the record, or None if there is no file or it is not a JSON object."""
    try:
        content = json.loads(read_file(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
