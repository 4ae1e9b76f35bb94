"""A transaction: it collects changes to jobs and runs, which become visible once they are on the disk."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from argosy.live.states import check
from argosy.live.store import codec
from argosy.live.store.rows import Actor, Job, RunRow

if TYPE_CHECKING:
    from argosy.live.store.store import Store

CHECKPOINTS_KEPT = 2  # the newest, and one more in case the newest is damaged
INSERT_EVENT = "INSERT INTO events (job, generation, t_s, at, kind, text) VALUES (?, ?, ?, ?, ?, ?)"
OVERHEADS_KEPT = 50  # of each model and kind: a mean over these follows changes


class Transaction:
    """Changes that are committed together."""

    def __init__(self, store: Store, connection: sqlite3.Connection) -> None:
        self._store, self._db = store, connection
        self._now, self._wall = store.clock.now(), store.clock.wall()
        self.jobs: dict[int, Job] = {}
        self.runs: dict[int, RunRow] = {}
        self._added: dict[int, Job] = {}
        self._events: list[tuple[int, int, float, float, str, str]] = []

    def add(self, job: Job) -> Job:
        """Add a new job and assign its number, which is never used again."""
        number = self._db.execute(codec.INSERT_JOB, codec.new_values(job)[1:]).lastrowid
        assert number is not None
        if job.array_id == 0:  # the number of an array is that of its first job
            self._db.execute("UPDATE jobs SET array_id = ? WHERE id = ?", (number, number))
            job = replace(job, array_id=number)
        job = replace(job, id=number)
        self.jobs[number] = self._added[number] = job
        return job

    def job(self, number: int) -> Job | None:
        """Return an active job as this transaction sees it."""
        return self.jobs.get(number) or self._store.jobs.get(number)

    def run(self, number: int) -> RunRow | None:
        return self.runs.get(number) or self._store.runs.get(number)

    def save(self, job: Job) -> None:
        before = self.job(job.id)
        check(job.id, before.state if before else job.state, job.state)
        self.jobs[job.id] = job

    def rewrite(self, job: Job) -> None:
        """Save a job whose job file has changed: its name, queue, sizes, and the file itself."""
        self.save(job)
        values = (job.name, job.queue, job.spec_json, job.gpus_low, job.gpus_high, job.id)
        self._db.execute(codec.REWRITE_JOB, values)

    def save_run(self, run: RunRow) -> None:
        self.runs[run.job] = run

    def event(self, job: Job, kind: str, text: str) -> None:
        self._events.append((job.id, job.generation, self._now, self._wall, kind, text))

    def checkpoint(self, job: int, generation: int, found: Mapping[str, Any]) -> bool:
        """Commit a checkpoint, and forget those it supersedes. Returns False if it was committed already."""
        done = self._db.execute(
            "INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                job,
                generation,
                found["path"],
                found["step"],
                found.get("seconds"),
                found.get("bytes"),
                self._now,
                self._wall,
            ),
        )
        self._db.execute(
            "DELETE FROM checkpoints WHERE job = ?1 AND path NOT IN (SELECT path FROM checkpoints WHERE job = ?1"
            " ORDER BY generation DESC, step DESC, t_s DESC LIMIT ?2)",
            (job, CHECKPOINTS_KEPT),
        )
        return done.rowcount > 0

    def audit(
        self,
        by: Actor,
        action: str,
        what: str = "",
        *,
        jobs: Sequence[int] = (),
        detail: str = "",
        result: str = "done",
    ) -> None:
        """Record who did what, in the same transaction: one entry, or one for each range of jobs."""
        who = (self._wall, by.who, by.role, by.address, by.token, action)
        if not jobs:
            self._db.execute(codec.INSERT_AUDIT, (*who, what, None, None, result, detail))
        for first, last in codec.ranges(jobs):
            named = f"job {first}" if first == last else f"jobs {first}-{last}"
            self._db.execute(codec.INSERT_AUDIT, (*who, named, first, last, result, detail))

    def overhead(self, model: str, kind: str, seconds: float, owner: str = "") -> None:
        self._db.execute(
            "INSERT INTO overheads (model, kind, seconds, at, owner) VALUES (?, ?, ?, ?, ?)",
            (model, kind, seconds, self._wall, owner),
        )
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
        """Send the collected changes to the database; called when the transaction ends."""
        self._store.keep_numbers()
        changed = [job for job in self.jobs.values() if self._added.get(job.id) is not job]
        self._db.executemany(codec.UPDATE_JOB, map(codec.changing_values, changed))
        self._db.executemany(codec.SAVE_RUN, map(codec.run_values, self.runs.values()))
        self._db.executemany(INSERT_EVENT, self._events)
