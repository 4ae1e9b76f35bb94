"""Many jobs that have ended: a daemon that starts does not look through all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.live_restart import fill

from argosy.cluster.cluster import Cluster
from argosy.live.daemon import planner_facts
from argosy.live.daemon.bookkeeper import Bookkeeper
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.store import Store

ENDED = 300


def start(home: Home, store: Store) -> Bookkeeper:
    """Read what a daemon needs from the past before its first decision."""
    service = Service(store, home, Cluster.uniform(2, 2))
    bookkeeper = Bookkeeper(store, service.health, service.metrics)
    bookkeeper.taken = home.newest_generations(store.jobs)
    return bookkeeper


def test_no_question_at_the_start_reads_or_sorts_a_whole_table(tmp_path: Path) -> None:
    fill(tmp_path, ENDED)
    home, asked = Home(tmp_path), set[str]()
    store = Store(home.database)
    store._db.set_trace_callback(asked.add)
    store._load()
    start(home, store).feed.snapshot(None)
    store._db.set_trace_callback(None)
    plans = {sql: str(store.query(f"EXPLAIN QUERY PLAN {sql}")) for sql in asked if sql.startswith("SELECT")}
    for sql, plan in plans.items():
        assert not any(f"'SCAN {table}'" in plan for table in ("jobs", "runs", "events", "checkpoints", "audit")), sql
        of_active_jobs = "'pending'" in sql  # those are sorted, and are few
        assert of_active_jobs or "FROM jobs" not in sql or "TEMP B-TREE" not in plan, (sql, plan)
    assert len(plans) >= 4
    store.close()


def test_a_new_planner_learns_from_the_jobs_that_ended_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, ENDED)
    monkeypatch.setattr(planner_facts, "TEACHING", 3)
    store = Store(tmp_path / "argosy.db")
    snapshot = start(Home(tmp_path), store).feed.snapshot(None)
    assert [one.facts.id for one in snapshot.ended] == [ENDED - 2, ENDED - 1, ENDED]
    store.close()
