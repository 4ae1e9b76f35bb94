"""Writes files durably, and identifies files by more than their names."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

Identity = tuple[int, int] | None  # device and inode, valid while the file is open; None: there is no such file


def identity(path: Path) -> Identity:
    """Return the identity of the file at this path."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def database_files(database: Path) -> list[Path]:
    """Return the paths of the database and of the files that SQLite keeps beside it."""
    return [database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm")]


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read: whole or not at all, and on the disk when this returns."""
    handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)  # made with mode 0600
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
