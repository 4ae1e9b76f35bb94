"""Notices that are to be sent: rows of the database, made from the events of jobs.

A row is written in the same transaction as the number of the last event that was looked at, so that after a crash no
notice is missing; one that was being sent may be sent again, with the same delivery number.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from argosy.live import sanitize
from argosy.live.states import State
from argosy.live.store import Job, Store

LAST_EVENT = "notices_event"  # key in `meta`
KINDS = {
    "running": "start",
    "succeeded": "end",
    "failed": "end",
    "cancelled": "end",
    "suspended": "preempted",
    "lost": "lost",
}
MOST_EVENTS = 1000  # looked at in one go
MOST_AN_HOUR = 100  # notices of one user
MOST_TRIES, FIRST_WAIT_S, LONGEST_WAIT_S = 10, 10.0, 3600.0
KEPT_S = 7 * 86_400.0  # how long rows of notices that are done can be seen
WORDS = {"start": "has started", "preempted": "was preempted", "lost": "lost its node and is tried again"}


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice to one target."""

    id: int
    job: int
    owner: str
    event: str
    channel: str  # mail or webhook
    target: str
    payload: str  # JSON
    tries: int
    due_at: float
    state: str  # waiting, sent, failed or left-out
    error: str
    made_at: float

    @property
    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.payload)
        return found

    @property
    def subject(self) -> str:
        about = self.about
        return f"[argosy] job {about['job']} {about['name']} {WORDS.get(about['event'], about['state'])}"

    @property
    def text(self) -> str:
        """Return the body of a mail."""
        about = self.about
        rows = [(key, value) for key, value in about.items() if value not in (None, "")]
        return "\n".join(f"{key.replace('_', ' ')}: {value}" for key, value in rows) + "\n"


COLUMNS = "id, job, owner, event, channel, target, payload, tries, due_at, state, error, made_at"


class Outbox:
    """The notices in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        newest = store.query("SELECT coalesce(max(id), 0) FROM events")[0][0]
        last = store.get_meta(LAST_EVENT)
        self._seen = self._written = newest if last is None else min(int(last), newest)
        if last is None:  # what happened before notices existed is not told
            with store.transaction() as changes:
                changes.meta(LAST_EVENT, newest)

    def collect(self) -> int:
        """Write notices for events that have happened since the last call; return how many events were looked at."""
        store, wanted = self._store, ", ".join(f"'{kind}'" for kind in KINDS)
        newest = store.query("SELECT coalesce(max(id), 0) FROM events")[0][0]
        if newest == self._seen:
            return 0
        sql = f"SELECT id, job, generation, at, kind, text FROM events WHERE id > ? AND kind IN ({wanted})"
        rows = store.query(f"{sql} ORDER BY id LIMIT ?", (self._seen, MOST_EVENTS))
        seen = rows[-1][0] if len(rows) == MOST_EVENTS else newest
        counts: dict[str, int] = {}
        made = [values for row in rows for values in self._of_event(counts, *row)]
        if made or seen - self._written > 100_000:
            with store.transaction() as changes:
                changes.executemany(
                    "INSERT INTO notices (job, owner, event, channel, target, payload, due_at, state, made_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    made,
                )
                changes.meta(LAST_EVENT, seen)
            self._written = seen
        self._seen = seen
        return len(rows)

    def due(self, most: int) -> list[Notice]:
        """Return notices that should be sent now."""
        now = self._store.clock.wall()
        sql = f"SELECT {COLUMNS} FROM notices WHERE state = 'waiting' AND due_at <= ? ORDER BY due_at LIMIT ?"
        return [Notice(*row) for row in self._store.query(sql, (now, most))]

    def recent(self, owner: str | None, limit: int) -> list[Notice]:
        """Return the newest notices of a user, or of all users."""
        whose, values = ("WHERE owner = ?", (owner, limit)) if owner is not None else ("", (limit,))
        rows = self._store.query(f"SELECT {COLUMNS} FROM notices {whose} ORDER BY id DESC LIMIT ?", values)
        return [Notice(*row) for row in rows]

    def sent(self, notice: Notice) -> None:
        self._update(notice, "sent", "", notice.due_at)

    def failed(self, notice: Notice, why: str, final: bool) -> None:
        """Record a failed attempt. It is repeated after a wait that doubles each time, unless the failure is final."""
        over = final or notice.tries + 1 >= MOST_TRIES
        wait = min(FIRST_WAIT_S * 2**notice.tries, LONGEST_WAIT_S)
        self._update(notice, "failed" if over else "waiting", why, self._store.clock.wall() + wait)

    def forget_old(self) -> None:
        with self._store.transaction() as changes:
            limit = self._store.clock.wall() - KEPT_S
            changes.execute("DELETE FROM notices WHERE state != 'waiting' AND made_at < ?", (limit,))

    def _update(self, notice: Notice, state: str, error: str, due_at: float) -> None:
        job = self._store.job(notice.job)
        with self._store.transaction() as changes:
            changes.execute(
                "UPDATE notices SET state = ?, error = ?, tries = tries + 1, due_at = ? WHERE id = ?",
                (state, error[:500], due_at, notice.id),
            )
            if state == "failed" and job is not None:
                changes.event(job, "not-notified", f"{notice.channel} {notice.target} was not reached: {error}")

    def _of_event(
        self, counts: dict[str, int], event: int, number: int, generation: int, at: float, kind: str, text: str
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that an event makes."""
        job = self._store.job(number)
        notify = job.parsed.notify if job is not None else None
        if job is None or notify is None:
            return
        what = KINDS[kind]
        if kind == "failed" and not (job.state is State.FAILED and job.generation == generation):
            return  # it is tried again
        wanted = what in notify.on or (kind == "failed" and "failed" in notify.on)
        if not wanted:
            return
        payload = json.dumps(_payload(job, what, kind, generation, at, text), separators=(",", ":"))
        now = self._store.clock.wall()
        if job.owner not in counts:
            sql = "SELECT count(*) FROM notices WHERE owner = ? AND made_at > ? AND state != 'left-out'"
            counts[job.owner] = self._store.query(sql, (job.owner, now - 3600.0))[0][0]
        for channel, targets in (("mail", notify.mail), ("webhook", notify.webhook)):
            for target in targets:
                state = "waiting" if counts[job.owner] < MOST_AN_HOUR else "left-out"
                counts[job.owner] += state == "waiting"
                yield number, job.owner, what, channel, target, payload, now, state, now


def _payload(job: Job, what: str, kind: str, generation: int, at: float, text: str) -> dict[str, Any]:
    """Return what is told; nothing of the job file but its name, because commands may have secrets in them."""
    return {
        "event": what,
        "job": job.id,
        "name": job.name,
        "array": None if job.array_index is None else f"{job.array_id}[{job.array_index}]",
        "owner": job.owner,
        "queue": job.queue,
        "state": kind if what == "end" else job.state.value,
        "run": generation,
        "exit_code": job.exit_code if what == "end" else None,
        "text": sanitize.text(text, 500),
        "at": at,
        "run_s": round(job.run_s, 1),
        "gpu_s": round(job.gpu_s, 1),
    }


def secret_of(key: bytes, owner: str) -> str:
    """Return the secret that signs a user's webhooks."""
    return hmac.new(key, b"notices\0" + owner.encode(), hashlib.sha256).hexdigest()
