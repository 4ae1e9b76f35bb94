"""The history is sorted by end, the latest first, over all pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_cluster import spec

from argosy.cluster.cluster import Cluster
from argosy.live.daemon.service import Service
from argosy.live.errors import NotFound
from argosy.live.home import Home
from argosy.live.states import State
from argosy.live.store import Store


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    yield Service(store, home, Cluster.uniform(2))
    store.close()


def end(service: Service, number: int, at_s: float) -> None:
    with service.store.transaction() as changes:
        job = changes.job(number)
        assert job is not None
        changes.save(replace(job, state=State.SUCCEEDED, ended_s=at_s, ended_at=1e9 + at_s))


def pages(service: Service, size: int, owner: str | None = None) -> list[int]:
    found: list[int] = []
    before = None
    while entries := service.history(owner, limit=size, before=before):
        found += [entry["id"] for entry in entries]
        before = found[-1]
    return found


def test_what_ended_last_comes_first(service: Service) -> None:
    service.submit([spec() for _ in range(7)], "ann")
    for number, at_s in ((5, 10.0), (1, 20.0), (7, 20.0), (2, 30.0), (6, 5.0), (3, 40.0)):
        end(service, number, at_s)
    assert pages(service, 100) == [3, 2, 7, 1, 5, 6]
    for size in (1, 2, 3):
        assert pages(service, size) == [3, 2, 7, 1, 5, 6]


def test_what_ends_between_two_pages_moves_nothing(service: Service) -> None:
    service.submit([spec() for _ in range(5)], "ann")
    for number in (2, 4, 1):
        end(service, number, 10.0 * number)
    first = [entry["id"] for entry in service.history(limit=2)]
    end(service, 3, 100.0)
    assert first == [4, 2]
    assert [entry["id"] for entry in service.history(limit=2, before=2)] == [1]


def test_only_one_s_own(service: Service) -> None:
    service.submit([spec(), spec()], "ann")
    service.submit([spec(), spec()], "bob")
    for number in (3, 1, 4, 2):
        end(service, number, 50.0 - number)
    assert pages(service, 1, "ann") == [1, 2] and pages(service, 1, "bob") == [3, 4]
    with pytest.raises(NotFound, match="no job 3 that has ended"):
        service.history("ann", before=3)
    with pytest.raises(NotFound, match="no job 9 that has ended"):
        service.history(before=9)
    assert pages(service, 3) == [1, 2, 3, 4]


def test_an_index_gives_the_order(service: Service) -> None:
    plan = service.store.query(
        "EXPLAIN QUERY PLAN SELECT id FROM jobs WHERE ended_s IS NOT NULL AND (ended_s, id) < (9.0, 1)"
        " ORDER BY ended_s DESC, id DESC LIMIT 10"
    )
    assert "jobs_by_end" in str(plan) and "TEMP B-TREE" not in str(plan)
