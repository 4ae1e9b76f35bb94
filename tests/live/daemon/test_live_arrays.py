"""Large arrays are written piece by piece, so that the event loop goes on, and still atomically."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.cluster.cluster import Cluster
from argosy.live.daemon.service import Service
from argosy.live.errors import NoSpace
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.store import Store

MOST_S = 0.05  # the loop may be held


def array(count: int) -> JobSpec:
    return JobSpec.model_validate({"run": "true", "array": count})


def opened(folder: Path) -> Service:
    home = Home(folder)
    home.create()
    return Service(Store(home.database), home, Cluster.uniform(1, 1), min_free_bytes=0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = opened(tmp_path)
    yield service
    service.store.close()


async def longest_turn(until: asyncio.Task[list[int]]) -> float:
    """Return the CPU time of the loop's longest iteration; wall time depends on other programs."""
    longest, before = 0.0, time.thread_time()
    while not until.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


def test_twenty_thousand_jobs_do_not_hold_the_loop(service: Service) -> None:
    async def play() -> tuple[list[int], float]:
        gc.collect()
        gc.freeze()  # as `argosy serve` does: what the tests have imported is not looked through again and again
        task = asyncio.create_task(service.take_in([array(10_000), array(10_000)], "ann"))
        longest = await longest_turn(task)
        return await task, longest

    numbers, longest = asyncio.run(play())
    gc.unfreeze()
    assert numbers == list(range(1, 20_001))
    assert longest < MOST_S
    assert service.counts()["pending"] == 20_000 == len(service.store.jobs)
    first, last = service.store.job(10_001), service.store.job(20_000)
    assert first is not None and (first.array_id, first.array_index) == (10_001, 0)
    assert last is not None and (last.array_id, last.array_index) == (10_001, 9_999)
    assert len(service.events(20_000)) == 1


def test_nothing_is_seen_before_all_is_there(service: Service) -> None:
    async def play() -> None:
        before = await service.take_in([array(1)], "ann")
        task = asyncio.create_task(service.take_in([array(3000)], "ann"))
        between: list[int] = []
        while not task.done():
            await asyncio.sleep(0)
            if task.done():
                break
            assert service.counts()["pending"] == 1 + len(between) == len(service.store.jobs)
            assert len(service.jobs(limit=10)) == 1 + len(between)
            assert service.store.job(2) is None and service.store.job_state(3000) is None
            if not between and service.store.get_meta("arriving"):
                between = await service.take_in([array(1)], "bob")
        assert between and between[0] > max(await task) > min(await task) > before[0]
        assert service.counts()["pending"] == 3002 == len(service.store.jobs)

    asyncio.run(play())


@pytest.mark.parametrize("killed", [False, True])
def test_half_of_an_array_is_none(tmp_path: Path, killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    service, pieces = opened(tmp_path), [0]
    add = service.store.add_hidden

    def full(jobs: object) -> None:
        pieces[0] += 1
        if pieces[0] == 5:
            raise NoSpace("the disk is full")
        add(jobs)  # type: ignore[arg-type]

    monkeypatch.setattr(service.store, "add_hidden", full)
    if killed:  # nothing is put in order any more
        monkeypatch.setattr(service.store, "withdraw", lambda *_: None)
    with pytest.raises(NoSpace):
        asyncio.run(service.take_in([array(5000)], "ann"))
    assert sum(service.counts().values()) == 0 == len(service.store.jobs)
    assert bool(service.store.query("SELECT count(*) FROM jobs")[0][0]) is killed
    service.store.close()
    again = opened(tmp_path)
    assert again.store.query("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM events)") == [(0,)]
    assert again.store.get_meta("arriving") == []
    assert asyncio.run(again.take_in([array(1)], "ann"))[0] > 5000, "numbers are never given out twice"
    again.store.close()
