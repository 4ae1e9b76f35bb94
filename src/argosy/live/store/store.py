"""Access to the database. Active jobs and their runs are also kept in memory, as the last commit left them.

A `Transaction` collects changes; memory is updated only once they are on the disk. So a reader never sees a change that
was not written, and a write that fails leaves everything as it was.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.live.clock import Clock
from argosy.live.errors import DatabaseLost, NoSpace, StoreError
from argosy.live.states import ACTIVE, State
from argosy.live.store import codec, database
from argosy.live.store.file_watch import FileWatch
from argosy.live.store.job_numbers import JobNumbers
from argosy.live.store.rows import Actor, Checkpoint, Job, RunRow
from argosy.live.store.transaction import INSERT_EVENT, Transaction


class Store:
    """One connection, used by the daemon's thread. Without `create`, the database must exist."""

    def __init__(self, path: Path, clock: Clock | None = None, *, create: bool = True) -> None:
        self.path, self.clock = path, clock or Clock()
        self._db = database.connect(path, create=create)
        self._numbers: JobNumbers | None = None
        self._watch: FileWatch | None = None
        self.is_replaced = False  # whether it is a copy, and not the database that was in use last
        self.jobs: dict[int, Job] = {}  # active jobs, by number
        self.runs: dict[int, RunRow] = {}  # runs that have not ended, by job
        self.reports: dict[int, Mapping[str, Any]] = {}  # reports newer than in the rows, by job
        self.queued: Counter[str] = Counter()  # number of waiting jobs, by owner
        self.touched: set[int] = set()  # jobs that changed since the bookkeeper last took the set
        self.watchers: list[set[int]] = []  # sets to which numbers of changed jobs are added, for other readers
        self._arriving: set[tuple[int, int]] = set()  # first and last numbers of jobs that are not all written yet
        try:
            self._load()
            self._begin()
        except BaseException:
            self._db.close()
            raise

    def _begin(self) -> None:
        """Stamp the database as the one in use, and continue its numbers above all that were ever used."""
        numbers = JobNumbers(self.path.parent)
        (found,), last = self.query("PRAGMA application_id")[0], self._last_number()
        stamp, floor = secrets.randbits(30) + 1, numbers.floor(found, last)
        self.is_replaced = numbers.is_replaced(found) or bool(self.get_meta("replaced"))
        with database.telling(self.path):  # the file must know the stamp even if the daemon is killed here
            numbers.begin(stamp, floor, 0 if numbers.is_replaced(found) else found)
        with self.transaction() as changes:
            if floor > last:
                changes.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs'")
                changes.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', ?)", (floor,))
            changes.meta("replaced", self.is_replaced)
            changes.execute(f"PRAGMA application_id = {stamp}")
        with database.telling(self.path):
            numbers.begin(stamp, floor)
        self._numbers = numbers
        self.query("PRAGMA wal_checkpoint(TRUNCATE)")  # brings the stamp into the file itself
        self._watch = FileWatch(self.path, stamp)

    def _last_number(self) -> int:
        return max((row[0] for row in self.query("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")), default=0)

    def trust(self) -> None:
        """Record that the runs unknown to a restored database have been ended, so that it now knows all runs."""
        with self.transaction() as changes:
            changes.meta("replaced", False)
        self.is_replaced = False

    def keep_numbers(self) -> None:
        """Reserve job numbers before they are committed, so that no other database uses them."""
        if self._numbers is not None:
            with database.telling(self.path):
                self._numbers.reserve(self._last_number())

    def check(self) -> None:
        """Raise DatabaseLost if the files in use were removed, replaced or overwritten."""
        if self._watch is not None:
            self._watch.check()

    def leave(self, lost: DatabaseLost, folder: Path) -> Path | None:
        """Move what is left of a lost database into a folder, so that nobody continues with a part of it.

        Unless the file was overwritten, everything that was committed is still readable through the open connection,
        and is saved in the folder too.
        """
        assert self._watch is not None
        saved = None if lost.overwritten else folder / "saved.db"
        if saved is not None:
            try:
                with closing(sqlite3.connect(saved)) as copy:
                    database.copy_into(self._db, copy)
            except sqlite3.Error:
                saved = None
        for file in self._watch.own_files():
            os.replace(file, folder / file.name)
        return saved

    def _load(self) -> None:
        mark = self.get_meta("clock")
        if mark is not None:
            self.clock.resume(mark)
        for first, last in self.get_meta("arriving") or ():  # a daemon was killed before all were written
            self.withdraw(first, last)
        self.read_active()
        self.mark_clock()

    def read_active(self) -> None:
        """Load the jobs that have not ended, and their runs, into memory."""
        states = ", ".join(f"'{state.value}'" for state in sorted(ACTIVE))
        for row in self.query(f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE state IN ({states}) ORDER BY id"):
            job = codec.job_of(row)
            self.jobs[job.id] = job
            self.queued[job.owner] += job.state is State.PENDING
        for row in self.query(f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE ended_s IS NULL"):
            run = codec.run_of(row)
            self.runs[run.job] = run

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run a transaction: all changes of the block are on the disk when it ends, or none."""
        self.check()
        with database.transaction(self._db, self.path) as connection:
            changes = Transaction(self, connection)
            yield changes
            changes.flush()
        self._note(changes.jobs.keys() | changes.runs.keys(), changes.jobs)
        for job in changes.jobs.values():
            before = self.jobs.get(job.id)
            waited = before is not None and before.state is State.PENDING
            self.queued[job.owner] += (job.state is State.PENDING) - waited
            if job.state.ended:
                self.jobs.pop(job.id, None)
                self.reports.pop(job.id, None)
            else:
                self.jobs[job.id] = job
        for run in changes.runs.values():
            if run.ended_s is None:
                self.runs[run.job] = run
            else:
                self.runs.pop(run.job, None)

    def _note(self, changed: Iterable[int], jobs: Iterable[int]) -> None:
        """Tell readers which jobs have changed; those who watch also learn of changes of their runs alone."""
        self.touched.update(jobs)
        for watcher in self.watchers:
            watcher.update(changed)

    # Many jobs of one request are written in pieces, between which the event loop continues. They are invisible until
    # `publish`; if that is never called, they are removed.

    def reserve(self, count: int) -> int:
        """Reserve this many consecutive numbers for jobs that are written in pieces; return the first."""
        with self.transaction() as changes:
            found = self.query("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")
            first = (found[0][0] if found else 0) + 1
            last = first + count - 1
            if found:
                changes.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'jobs'", (last,))
            else:
                changes.execute("INSERT INTO sqlite_sequence VALUES ('jobs', ?)", (last,))
            changes.meta("arriving", sorted({*self._arriving, (first, last)}))
        self._arriving.add((first, last))
        return first

    def add_hidden(self, jobs: Sequence[Job]) -> None:
        """Write some of the jobs whose numbers were reserved."""
        self.check()
        with database.transaction(self._db, self.path) as connection:
            connection.executemany(codec.INSERT_NUMBERED_JOB, map(codec.new_values, jobs))
            told = [(j.id, 0, j.submitted_s, j.submitted_at, "submitted", f"submitted by {j.owner}") for j in jobs]
            connection.executemany(INSERT_EVENT, told)

    def publish(self, first: int, last: int, jobs: Iterable[Job], by: Actor, detail: str) -> None:
        """Make jobs visible after all of them are written."""
        with self._arrived(first, last) as changes:
            changes.audit(by, "submit", jobs=range(first, last + 1), detail=detail)
        new = {job.id: job for job in jobs}
        self.jobs.update(new)
        self.queued.update(job.owner for job in new.values())
        self._note(new, new)

    def withdraw(self, first: int, last: int) -> None:
        """Remove the jobs of a request that were written, because not all of them could be."""
        with self._arrived(first, last) as changes:
            changes.execute("DELETE FROM events WHERE job BETWEEN ? AND ?", (first, last))
            changes.execute("DELETE FROM jobs WHERE id BETWEEN ? AND ?", (first, last))

    @contextmanager
    def _arrived(self, first: int, last: int) -> Iterator[Transaction]:
        with self.transaction() as changes:
            changes.meta("arriving", sorted(self._arriving - {(first, last)}))
            yield changes
        self._arriving.discard((first, last))

    def conditions(self) -> list[str]:
        """Return the SQL conditions that exclude jobs that are not published yet."""
        return [f"id NOT BETWEEN {first} AND {last}" for first, last in self._arriving]

    def _is_arriving(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self._arriving)

    def flush_reports(self) -> None:
        """Write reports of jobs to the disk; they are kept in memory between these calls."""
        if self.reports:
            rows = [(json.dumps(dict(said)), number) for number, said in self.reports.items()]
            with self.transaction() as changes:
                changes.executemany("UPDATE jobs SET report = ? WHERE id = ?", rows)
            for number, said in self.reports.items():
                if number in self.jobs:
                    self.jobs[number] = replace(self.jobs[number], report=said)
            self.reports.clear()

    def mark_clock(self) -> None:
        with self.transaction() as changes:
            changes.meta("clock", self.clock.mark())

    def query(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with database.telling(self.path):
            return self._db.execute(sql, tuple(values)).fetchall()

    def problems(self) -> list[str]:
        """Return a list with the problem if the database does not answer; otherwise an empty list."""
        try:
            self.query("SELECT value FROM meta LIMIT 1")
        except (sqlite3.Error, StoreError) as problem:
            return [f"{self.path}: the database does not answer: {problem}"]
        return []

    def get_meta(self, key: str) -> Any | None:
        found = self.query("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(found[0][0]) if found else None

    def job(self, number: int) -> Job | None:
        """Return any job, including those that have ended."""
        if number in self.jobs:
            return self.jobs[number]
        if self._is_arriving(number):
            return None
        found = self.query(f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE id = ?", (number,))
        return codec.job_of(found[0]) if found else None

    def some_jobs(self, numbers: Iterable[int]) -> dict[int, Job]:
        """Return these jobs by number; only those that are not in memory are read."""
        found = {number: self.jobs[number] for number in numbers if number in self.jobs}
        ended = json.dumps([number for number in numbers if number not in found])
        sql = f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        return found | {row[0]: codec.job_of(row) for row in self.query(sql, (ended,))}

    def job_state(self, number: int) -> State | None:
        if number in self.jobs:
            return self.jobs[number].state
        if self._is_arriving(number):
            return None
        found = self.query("SELECT state FROM jobs WHERE id = ?", (number,))
        return State(found[0][0]) if found else None

    def run(self, job: int, generation: int) -> RunRow | None:
        """Return any run, including those that have ended."""
        found = self.query(f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE job = ? AND generation = ?", (job, generation))
        return codec.run_of(found[0]) if found else None

    def all_runs(self, job: int) -> list[RunRow]:
        rows = self.query(f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE job = ? ORDER BY generation", (job,))
        return [codec.run_of(row) for row in rows]

    def checkpoints(self, job: int, limit: int = 2) -> list[Checkpoint]:
        """Return the committed checkpoints, newest first."""
        sql = "SELECT * FROM checkpoints WHERE job = ? ORDER BY generation DESC, step DESC, t_s DESC LIMIT ?"
        return [Checkpoint(*row) for row in self.query(sql, (job, limit))]

    def backup(self, target: Path) -> None:
        database.backup(self.path, target)

    def close(self) -> None:
        with suppress(NoSpace, DatabaseLost):  # otherwise the clock continues from the mark before
            self.mark_clock()
        self._db.close()
        if self._watch is not None:
            self._watch.close()
