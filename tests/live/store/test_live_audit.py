"""The audit log is append-only, has one line for each request, and limits the rate of refusals."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.live.clock import Clock
from argosy.live.daemon import audit as auditing
from argosy.live.daemon.audit import Audit
from argosy.live.errors import StoreError
from argosy.live.store import Actor, Store, schema

ANN = Actor("ann", "user", "10.0.0.7", 3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "argosy.db")
    yield store
    store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE audit SET who = 'bob'",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE id = 1",
        "INSERT OR REPLACE INTO audit SELECT id, at, 'bob', role, address, token, action, object, first_job, last_job,"
        " result, detail FROM audit",
    ],
)
def test_lines_are_neither_changed_nor_removed(store: Store, sql: str) -> None:
    with store.transaction() as changes:
        changes.audit(ANN, "submit", jobs=[1, 2, 3])
    with pytest.raises(StoreError, match="audit log is never"), store.transaction() as changes:
        changes.execute(sql)
    (entry,) = Audit(store).entries()
    assert (entry.who, entry.address, entry.token, entry.object) == ("ann", "10.0.0.7", 3, "jobs 1-3")


def test_a_line_is_written_with_its_change_or_not_at_all(store: Store) -> None:
    with pytest.raises(RuntimeError), store.transaction() as changes:
        changes.audit(ANN, "submit", jobs=[1])
        raise RuntimeError
    assert Audit(store).entries() == []


def test_jobs_are_found_within_ranges(store: Store) -> None:
    with store.transaction() as changes:
        changes.audit(ANN, "submit", jobs=list(range(10, 1010)))
        changes.audit(Actor("olga", "operator"), "cancel", jobs=[700, 12, 11])
    log = Audit(store)
    assert len(log.entries()) == 3  # one line for the array, one for each range of what was cancelled
    assert [e.object for e in log.entries(job=700)] == ["job 700", "jobs 10-1009"]
    assert [e.object for e in log.entries(job=11, action="cancel")] == ["jobs 11-12"]
    assert log.entries(job=9) == [] and [e.action for e in log.entries(who="ann")] == ["submit"]


def test_pages_and_times(tmp_path: Path) -> None:
    wall = [1000.0]
    store = Store(tmp_path / "argosy.db", Clock(wall=lambda: wall[0]))
    log = Audit(store)
    for _ in range(5):
        wall[0] += 10
        log.done(ANN, "backup")
    first = log.entries(limit=2)
    assert [e.at for e in first] == [1050.0, 1040.0]
    assert [e.at for e in log.entries(limit=9, before=first[-1].id)] == [1030.0, 1020.0, 1010.0]
    assert len(log.entries(since=1040.0)) == 2
    store.close()


def test_a_flood_of_refusals_is_written_at_a_bounded_rate_and_counted(tmp_path: Path) -> None:
    now = [0.0]
    store = Store(tmp_path / "argosy.db", Clock(monotonic=lambda: now[0]))
    log = Audit(store)
    for _ in range(1000):
        log.refused(Actor("", "", "10.0.0.66"), "authenticate", "GET /v1/jobs", "401: no valid token")
    log.refused(ANN, "token-add", "POST /v1/tokens", "403: only operators may do this")  # others are still seen
    assert len(log.entries(limit=2000)) == auditing.PER_CALLER + 1
    assert f"({1000 - auditing.PER_CALLER} earlier refusals" in log.entries()[0].detail
    for i in range(1000):
        log.refused(Actor("", "", f"10.0.{i // 250}.{i % 250}"), "authenticate", "GET /", "401: no valid token")
    assert len(log.entries(limit=2000)) == auditing.IN_ALL
    now[0] += auditing.SPAN_S
    log.refused(ANN, "cancel", "DELETE /v1/jobs/1", "404: there is no job 1")
    assert len(log.entries(limit=2000)) == auditing.IN_ALL + 1
    store.close()


def test_a_database_from_before_is_upgraded_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "argosy.db"
    old = sqlite3.connect(path, isolation_level=None)
    schema.migrate(old, schema.STEPS[:3])
    old.execute("INSERT INTO tokens (digest, owner, role, created_at) VALUES ('d', 'ann', 'user', 5.0)")
    old.execute("INSERT INTO overheads VALUES ('resnet50', 'start', 2.0, 5.0)")
    old.close()
    store = Store(path)
    assert store.query("PRAGMA user_version") == [(schema.VERSION,)]
    assert store.query("SELECT owner, expires_at, used_at FROM tokens") == [("ann", None, None)]
    assert store.query("SELECT model, owner FROM overheads") == [("resnet50", "")]
    with store.transaction() as changes:
        changes.audit(ANN, "submit", jobs=[1])
    with pytest.raises(StoreError), store.transaction() as changes:
        changes.execute("DELETE FROM audit")
    store.close()
