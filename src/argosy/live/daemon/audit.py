"""The audit log: who did what, to what, from where, and whether it was refused. Entries are added, never changed.

A change and its entry are one transaction (`Transaction.audit`), so neither exists without the other. Refusals change
nothing and have a transaction of their own; they are recorded at a bounded rate, because a flood of wrong tokens must
not fill the disk. The next entry says how many were left out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

from argosy.live.daemon_log import note
from argosy.live.errors import NoSpace
from argosy.live.store import Actor, AuditEntry, Store, database

DAEMON = Actor("daemon", "daemon")  # for what the daemon does by itself
SPAN_S = 60.0
PER_CALLER, IN_ALL = 20, 200  # refusals that are recorded in a minute
COLUMNS = "id, at, who, role, address, token, action, object, first_job, last_job, result, detail"


class Rate:
    """Admits a limited number of events a minute, from one caller and from all together."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._since = now, float("-inf")
        self._seen: Counter[str] = Counter()  # at most IN_ALL names
        self.left_out = 0

    def admits(self, caller: str) -> bool:
        now = self._now()
        if now - self._since >= SPAN_S:
            self._since, self._seen = now, Counter()
        if self._seen[caller] >= PER_CALLER or self._seen.total() >= IN_ALL:
            self.left_out += 1
            return False
        self._seen[caller] += 1
        return True


class Audit:
    """The log of one database."""

    def __init__(self, store: Store) -> None:
        self._store, self._rate = store, Rate(store.clock.now)

    def refused(self, by: Actor, action: str, what: str, detail: str) -> None:
        """Record a refusal, unless there were too many in this minute."""
        if not self._rate.admits(f"{by.role} {by.who}" if by.who else by.address):
            return
        left_out, self._rate.left_out = self._rate.left_out, 0
        more = f" ({left_out} earlier refusals were not recorded)" if left_out else ""
        try:
            with self._store.transaction() as changes:
                changes.audit(by, action, what, detail=detail + more, result="refused")
        except NoSpace:
            note("a refusal could not be recorded: the disk is full", logging.WARNING, who=by.who, action=action)

    def done(self, by: Actor, action: str, what: str = "", detail: str = "") -> None:
        """Record an action that changes nothing in the database, such as a backup."""
        with self._store.transaction() as changes:
            changes.audit(by, action, what, detail=detail)

    def entries(
        self,
        *,
        who: str | None = None,
        job: int | None = None,
        since: float | None = None,
        action: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[AuditEntry]:
        """Return entries of the log, newest first; may be called from another thread."""
        conditions: list[tuple[str, Any]] = [
            ("who = ?", who),
            ("? BETWEEN first_job AND last_job", job),
            ("at >= ?", since),
            ("action = ?", action),
            ("id < ?", before),
        ]
        given = [(text, value) for text, value in conditions if value is not None]
        where = f"WHERE {' AND '.join(text for text, _ in given)}" if given else ""
        sql = f"SELECT {COLUMNS} FROM audit {where} ORDER BY id DESC LIMIT ?"
        with closing(database.reader(self._store.path)) as reading:
            rows = reading.execute(sql, (*(value for _, value in given), limit)).fetchall()
        return [AuditEntry(*row) for row in rows]
