"""Opens the SQLite file, runs transactions that report a full disk clearly, and makes copies while it is in use."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from argosy.errors import InputError
from argosy.live.errors import NoSpace, StoreError
from argosy.live.store.schema import migrate

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
ROOM_BYTES = 2**20  # with less free space than this the disk counts as full


DAMAGED = "go back to a copy: argosy restore FILE; the present files are kept"


def connect(path: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open a database and migrate it to the newest version; a missing one is made only with `create`."""
    if not create and (not path.exists() or path.stat().st_size == 0):
        what = f"{path} is {'empty' if path.exists() else 'missing'}, but a daemon has worked here"
        raise StoreError(
            what, "go back to a copy: argosy restore FILE; or begin with an empty database: argosy serve --new-database"
        )
    try:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")  # what was confirmed survives a power cut
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("PRAGMA busy_timeout = 2000")
        migrate(database)
    except (sqlite3.Error, OSError) as problem:
        if is_full(problem, path.parent):
            raise no_space(path) from None
        raise StoreError(f"{path}: the database cannot be opened: {problem}", DAMAGED) from None
    return database


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the disk into `StoreError` or `NoSpace`."""
    try:
        yield
    except (sqlite3.Error, OSError) as problem:
        if is_full(problem, path.parent):
            raise no_space(path) from None
        raise StoreError(f"{path}: {problem}", DAMAGED if is_damaged(problem) else None) from problem


def is_damaged(problem: BaseException) -> bool:
    """Return whether the file itself is damaged."""
    code = getattr(problem, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_full(problem: BaseException, folder: Path) -> bool:
    """Return whether the error was caused by a full disk."""
    if isinstance(problem, OSError):
        return problem.errno in NO_ROOM
    code = getattr(problem, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
        return not has_room(folder)  # the write-ahead log cannot grow, or the disk is broken
    return code == sqlite3.SQLITE_FULL


def has_room(folder: Path) -> bool:
    """Return whether something can still be written. It tries to write, because the free space does not show quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
    except OSError as problem:
        return problem.errno not in NO_ROOM
    return True


def no_space(path: Path) -> NoSpace:
    return NoSpace(
        f"the disk of {path.parent} is full: nothing was changed",
        hint="make room; the daemon continues by itself",
    )


@contextmanager
def transaction(database: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """Run the block as one transaction."""
    with telling(path):
        try:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def reader(path: Path) -> sqlite3.Connection:
    """Open a second, read-only connection, for another thread or a long query."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def copy_into(source: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    """Copy a whole database into an empty one. The copy gets no stamp, because it is not the database in use."""
    source.backup(copy)
    copy.execute("PRAGMA journal_mode = DELETE")
    copy.execute("PRAGMA application_id = 0")


def backup(source: Path, target: Path) -> None:
    """Copy the database as it is at one moment, while it is in use; the target appears whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=".tmp-", dir=target.absolute().parent)  # only for its owner
        os.close(handle)
    except OSError as problem:
        what = f"cannot be written: {problem.strerror}"
        raise InputError(what, where=str(target), hint="choose another path") from None
    try:
        with closing(reader(source)) as reading, closing(sqlite3.connect(name)) as copy:
            copy_into(reading, copy)
        os.replace(name, target)
    except (sqlite3.Error, OSError) as problem:
        os.unlink(name)
        if is_full(problem, target.absolute().parent):
            raise no_space(target) from None
        raise StoreError(f"{target}: the copy failed: {problem}") from None
