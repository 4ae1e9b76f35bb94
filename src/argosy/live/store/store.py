"""The door to the database. Active jobs and their runs are also kept in memory, as the last commit left them.

A `Transaction` collects changes; what memory holds is replaced only once they are on the disk. So a reader never sees
what was not written, and a write that fails leaves everything as it was.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.live.clock import Clock
from argosy.live.problems import NoSpace
from argosy.live.states import ACTIVE, State, check
from argosy.live.store import codec, database
from argosy.live.store.rows import Checkpoint, Job, RunRow

CHECKPOINTS_KEPT = 2  # the newest, and one to fall back to if it is damaged
OVERHEADS_KEPT = 50  # of a model and kind: enough for a mean that follows


class Transaction:
    """Changes that become true together."""

    def __init__(self, store: Store, connection: sqlite3.Connection) -> None:
        self._store, self._db = store, connection
        self._now, self._wall = store.clock.now(), store.clock.wall()
        self.jobs: dict[int, Job] = {}
        self.runs: dict[int, RunRow] = {}
        self._added: dict[int, Job] = {}
        self._events: list[tuple[int, int, float, float, str, str]] = []

    def add(self, job: Job) -> Job:
        """A new job; its number is given out here, and never again."""
        values = (
            job.name, job.owner, job.queue, job.priority, job.spec_json, job.workdir, job.array_id, job.array_index,
            json.dumps(job.after), job.gpus_low, job.gpus_high, job.submitted_s, job.submitted_at, job.state.value,
        )  # fmt: skip
        number = self._db.execute(codec.INSERT_JOB, values).lastrowid
        assert number is not None
        if job.array_id == 0:  # the first of an array names the array
            self._db.execute("UPDATE jobs SET array_id = ? WHERE id = ?", (number, number))
            job = replace(job, array_id=number)
        job = replace(job, id=number)
        self.jobs[number] = self._added[number] = job
        return job

    def job(self, number: int) -> Job | None:
        """An active job as this transaction sees it."""
        return self.jobs.get(number) or self._store.jobs.get(number)

    def run(self, number: int) -> RunRow | None:
        return self.runs.get(number) or self._store.runs.get(number)

    def save(self, job: Job) -> None:
        before = self.job(job.id)
        check(job.id, before.state if before else job.state, job.state)
        self.jobs[job.id] = job

    def save_run(self, run: RunRow) -> None:
        self.runs[run.job] = run

    def event(self, job: Job, kind: str, text: str) -> None:
        self._events.append((job.id, job.generation, self._now, self._wall, kind, text))

    def checkpoint(self, job: int, generation: int, found: Mapping[str, Any]) -> bool:
        """Make a checkpoint count; False if it did already. Those that it makes needless no longer do."""
        done = self._db.execute(
            "INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (job, generation, found["path"], found["step"], found.get("seconds"), found.get("bytes"), self._now,
             self._wall),
        )  # fmt: skip
        self._db.execute(
            "DELETE FROM checkpoints WHERE job = ?1 AND path NOT IN (SELECT path FROM checkpoints WHERE job = ?1"
            " ORDER BY generation DESC, step DESC, t_s DESC LIMIT ?2)",
            (job, CHECKPOINTS_KEPT),
        )
        return done.rowcount > 0

    def overhead(self, model: str, kind: str, seconds: float) -> None:
        self._db.execute("INSERT INTO overheads VALUES (?, ?, ?, ?)", (model, kind, seconds, self._wall))
        self._db.execute(
            "DELETE FROM overheads WHERE model = ?1 AND kind = ?2 AND rowid <= (SELECT rowid FROM overheads"
            " WHERE model = ?1 AND kind = ?2 ORDER BY rowid DESC LIMIT 1 OFFSET ?3)",
            (model, kind, OVERHEADS_KEPT),
        )

    def meta(self, key: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        return self._db.execute(sql, tuple(values))

    def executemany(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._db.executemany(sql, rows)

    def flush(self) -> None:
        """Send what was collected to the database; done when the transaction ends."""
        changed = [job for job in self.jobs.values() if self._added.get(job.id) is not job]
        self._db.executemany(codec.UPDATE_JOB, map(codec.changing_values, changed))
        self._db.executemany(codec.SAVE_RUN, map(codec.run_values, self.runs.values()))
        self._db.executemany(
            "INSERT INTO events (job, generation, t_s, at, kind, text) VALUES (?, ?, ?, ?, ?, ?)", self._events
        )


class Store:
    """One connection, used by one thread: the daemon's."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path, self.clock = path, clock or Clock()
        self._db = database.connect(path)
        self.jobs: dict[int, Job] = {}  # active ones, by number
        self.runs: dict[int, RunRow] = {}  # runs that are not over, by job
        self.reports: dict[int, Mapping[str, Any]] = {}  # newer than in the rows, by job
        self.touched: set[int] = set()  # jobs that changed, until somebody takes note and clears it
        self._load()

    def _load(self) -> None:
        mark = self.get_meta("clock")
        if mark is not None:
            self.clock.resume(mark)
        states = ", ".join(f"'{state.value}'" for state in sorted(ACTIVE))
        for row in self._db.execute(f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE state IN ({states}) ORDER BY id"):
            job = codec.job_of(row)
            self.jobs[job.id] = job
        for row in self._db.execute(f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE ended_s IS NULL"):
            run = codec.run_of(row)
            self.runs[run.job] = run
        self.mark_clock()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Changes in the block are on the disk when it ends, or none is."""
        with database.transaction(self._db, self.path) as connection:
            changes = Transaction(self, connection)
            yield changes
            changes.flush()
        self.touched.update(changes.jobs)
        for job in changes.jobs.values():
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

    def flush_reports(self) -> None:
        """What jobs said of their progress is in memory at once, on the disk now and then."""
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
        return self._db.execute(sql, tuple(values)).fetchall()

    def get_meta(self, key: str) -> Any | None:
        found = self.query("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(found[0][0]) if found else None

    def job(self, number: int) -> Job | None:
        """Any job, also one that has ended."""
        if number in self.jobs:
            return self.jobs[number]
        found = self.query(f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE id = ?", (number,))
        return codec.job_of(found[0]) if found else None

    def some_jobs(self, numbers: Iterable[int]) -> dict[int, Job]:
        """These jobs by number; those in memory need no reading."""
        found = {number: self.jobs[number] for number in numbers if number in self.jobs}
        ended = json.dumps([number for number in numbers if number not in found])
        sql = f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        return found | {row[0]: codec.job_of(row) for row in self.query(sql, (ended,))}

    def job_state(self, number: int) -> State | None:
        if number in self.jobs:
            return self.jobs[number].state
        found = self.query("SELECT state FROM jobs WHERE id = ?", (number,))
        return State(found[0][0]) if found else None

    def run(self, job: int, generation: int) -> RunRow | None:
        """Any run, also one that is over."""
        found = self.query(f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE job = ? AND generation = ?", (job, generation))
        return codec.run_of(found[0]) if found else None

    def all_runs(self, job: int) -> list[RunRow]:
        rows = self.query(f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE job = ? ORDER BY generation", (job,))
        return [codec.run_of(row) for row in rows]

    def checkpoints(self, job: int, limit: int = 2) -> list[Checkpoint]:
        """Those that count, newest first."""
        sql = "SELECT * FROM checkpoints WHERE job = ? ORDER BY generation DESC, step DESC, t_s DESC LIMIT ?"
        return [Checkpoint(*row) for row in self.query(sql, (job, limit))]

    def backup(self, target: Path) -> None:
        database.backup(self.path, target)

    def close(self) -> None:
        with suppress(NoSpace):  # then the clock goes on from the mark before
            self.mark_clock()
        self._db.close()
