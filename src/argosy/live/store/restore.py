"""Restores a copy of the database that `argosy backup` has made.

Replacing `argosy.db` by hand is not enough: the write-ahead log of the old database would be replayed into the copy.
Here the copy is checked first; the present database is moved away with all its files, not removed; and job numbers that
it has used are never used again.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import InputError
from argosy.live.durable_files import sync_folder
from argosy.live.home import Home
from argosy.live.store import database, schema
from argosy.live.store.job_numbers import JobNumbers


@dataclass(frozen=True, slots=True)
class Contents:
    """What a database contains."""

    jobs: frozenset[int]
    ended: frozenset[int]
    last_given_out: int  # the highest number of a job, including removed ones
    last_event: int
    written_at: float | None  # of the newest event
    stamp: int


NOTHING = Contents(frozenset(), frozenset(), 0, 0, None, 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """What the present database contains and the copy does not."""

    jobs: tuple[int, ...]  # they are forgotten
    rerun: tuple[int, ...]  # jobs of the copy that have ended since; they run again
    events: int


@dataclass(frozen=True, slots=True)
class Restore:
    """A checked copy, ready in the home. `present` is None if the present database cannot be read."""

    home: Home
    copy: Path
    found: Contents
    present: Contents | None

    @property
    def loss(self) -> Loss | None:
        """Return what will be lost; None if that is unknown."""
        if self.present is None:
            return None
        forgotten = tuple(sorted(self.present.jobs - self.found.jobs))
        rerun = tuple(sorted((self.present.ended - self.found.ended) & self.found.jobs))
        return Loss(forgotten, rerun, max(0, self.present.last_event - self.found.last_event))

    def carry_out(self) -> Path | None:
        """Put the copy in place; return the folder that holds the former database."""
        former = self.present or NOTHING
        JobNumbers(self.home.folder).settle(former.stamp, former.last_given_out)
        aside = self.home.set_aside()
        os.replace(self.copy, self.home.database)
        sync_folder(self.home.folder)
        return aside


@contextmanager
def prepared(home: Home, file: Path) -> Iterator[Restore]:
    """Check the copy and compare it with the present database. No daemon can start on this home inside the block."""
    if not file.is_file():
        raise InputError("there is no such file", where=str(file), hint="name a copy that argosy backup has made")
    home.create()
    home.lock()
    try:
        if home.database.exists() and file.samefile(home.database):
            raise InputError("this is the database itself", where=str(file), hint="name a copy of it")
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=home.folder) as folder:
            copy = Path(folder) / "argosy.db"
            _copy(file, copy)
            found = _checked(copy, file)
            with open(copy, "rb+") as written:
                os.fsync(written.fileno())
            yield Restore(home, copy, found, _present(home.database))
    finally:
        home.unlock()


def _copy(file: Path, copy: Path) -> None:
    """Copy a database, including its write-ahead log."""
    for suffix in ("-wal", "-journal"):  # SQLite trusts these files, no matter who has put them there
        beside = file.with_name(file.name + suffix)
        if beside.exists() and beside.stat().st_uid != file.stat().st_uid:
            raise InputError(f"{beside} belongs to another user", where=str(file), hint="remove it, if it is not yours")
    try:
        with closing(database.reader(file)) as source, closing(sqlite3.connect(copy)) as target:
            database.copy_into(source, target)
        copy.chmod(0o600)
    except sqlite3.Error as problem:
        if database.is_full(problem, copy.parent):
            raise database.no_space(copy) from None
        raise _unusable(file, f"it cannot be read as a database ({problem})") from None


def _checked(copy: Path, file: Path) -> Contents:
    try:
        with closing(database.reader(copy)) as reading:
            version = int(reading.execute("PRAGMA user_version").fetchone()[0])
            if version > schema.VERSION:
                what = f"it has version {version}, this Argosy knows versions up to {schema.VERSION}"
                raise InputError(what, where=str(file), hint="use the Argosy that wrote it, or a newer one")
            if version < 1 or _tables(reading) != _tables_of(version):
                raise _unusable(file, "it is not a database of Argosy")
            damage = [row[0] for row in reading.execute("PRAGMA integrity_check(3)")]
            if damage != ["ok"]:
                raise _unusable(file, f"it is damaged ({'; '.join(damage)})")
            return _contents(reading)
    except sqlite3.Error as problem:
        raise _unusable(file, f"it is damaged ({problem})") from None


def _unusable(file: Path, why: str) -> InputError:
    return InputError(f"{why}; nothing was changed", where=str(file), hint="name a copy that argosy backup has made")


def _tables(reading: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return all tables, indices, triggers and views, to compare them with those of the schema."""
    sql = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    return set(reading.execute(sql))


def _tables_of(version: int) -> set[tuple[str, str, str]]:
    with closing(sqlite3.connect(":memory:")) as fresh:
        schema.migrate(fresh, schema.STEPS[:version])
        return _tables(fresh)


def _present(path: Path) -> Contents | None:
    """Return the contents of the present database; empty if there is no database, None if it cannot be read."""
    if not path.exists():
        return NOTHING
    try:
        with closing(database.reader(path)) as reading:
            return _contents(reading)
    except sqlite3.Error:
        return None


def _contents(reading: sqlite3.Connection) -> Contents:
    rows = reading.execute("SELECT id, ended_s IS NOT NULL FROM jobs").fetchall()
    jobs, ended = frozenset(row[0] for row in rows), frozenset(row[0] for row in rows if row[1])
    given_out = reading.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
    event, at = reading.execute("SELECT coalesce(max(id), 0), max(at) FROM events").fetchone()
    (stamp,) = reading.execute("PRAGMA application_id").fetchone()
    return Contents(jobs, ended, max([*jobs, *(given_out or ())], default=0), event, at, stamp)
