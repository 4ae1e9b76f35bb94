"""The bookkeeper: an answer of the policy that is overtaken by events does not undo them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from live_cluster import live, spec

from argosy.cluster.cluster import Cluster
from argosy.live.backends.base import Part, Phase, Placement, Run, RunKey, Status
from argosy.live.backends.fake import FakeBackend
from argosy.live.clock import Clock
from argosy.live.daemon.bookkeeper import MISSED_S, MISSES, Bookkeeper
from argosy.live.daemon.reconcile import Call
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.planner.messages import Decision
from argosy.live.states import State
from argosy.live.store import Store

PLACE = Placement((Part("n0", (0,)),))


class Desk:
    """A bookkeeper whose clock and statuses the test controls."""

    def __init__(self, folder: Path) -> None:
        self.time = [0.0]
        home = Home(folder)
        home.create()
        self.store = Store(home.database, Clock(lambda: self.time[0], lambda: 1e9 + self.time[0], "boot"))
        self.service = Service(self.store, home, Cluster.uniform(1, 2))
        self.bookkeeper = Bookkeeper(self.store, self.service.health, self.service.metrics)

    def submit(self, **more: object) -> int:
        return self.service.submit([spec(**more)], "ann")[0]  # type: ignore[arg-type]

    def answer(self, *running: int) -> dict[RunKey, Call]:
        self.bookkeeper.decide(Decision(self.time[0], dict.fromkeys(running, PLACE)))
        return self.bookkeeper.act()

    def run(self, number: int) -> None:
        """Have the job planned, started and reported as running."""
        self.bookkeeper.take_in([])
        self.bookkeeper.feed.update()
        self.answer(number)
        self.bookkeeper.take_in([Status(RunKey(number, 1), Phase.RUNNING, 1)])
        self.bookkeeper.act()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


def test_an_overtaken_answer_does_not_cut_a_back_off_short(desk: Desk) -> None:
    number = desk.submit(retry_wait=10, retries=1)
    desk.run(number)
    desk.bookkeeper.feed.update()  # the policy is asked, and thinks
    desk.bookkeeper.take_in([Status(RunKey(number, 1), Phase.EXITED, 1, 1)])
    assert desk.answer(number) == {RunKey(number, 1): Call.FORGET}
    assert desk.store.jobs[number].state is State.PENDING
    assert desk.bookkeeper.feed.update().ended == {number: "withdrawn"}
    desk.time[0] = 9.0
    desk.bookkeeper.take_in([])
    assert desk.bookkeeper.feed.update().arrived == ()
    desk.time[0] = 10.5
    desk.bookkeeper.take_in([])
    (back,) = desk.bookkeeper.feed.update().arrived
    assert back.facts.id == number and back.account.faults == 1
    assert desk.answer(number)[RunKey(number, 2)] is Call.LAUNCH


def test_an_overtaken_answer_does_not_stop_what_it_did_not_know(desk: Desk) -> None:
    first = desk.submit()
    desk.run(first)
    desk.bookkeeper.feed.update()
    desk.service.set_priority(first, 90)
    assert desk.answer() == {}, "it has not heard of the new priority yet"
    assert desk.store.jobs[first].state is State.RUNNING
    desk.bookkeeper.take_in([Status(RunKey(first, 1), Phase.RUNNING, 1)])
    assert desk.bookkeeper.feed.update().priorities == {first: 90.0}
    assert desk.answer() == {RunKey(first, 1): Call.STOP}


def test_only_a_run_that_stays_away_is_lost(desk: Desk) -> None:
    number = desk.submit()
    desk.run(number)
    for _ in range(MISSES - 1):
        desk.bookkeeper.take_in([])
    assert desk.store.jobs[number].state is State.RUNNING and desk.bookkeeper.act() == {}
    desk.bookkeeper.take_in([Status(RunKey(number, 1), Phase.RUNNING, 1)])
    for _ in range(2 * MISSES):  # many polls in no time: the backend may be about to find it again
        assert desk.store.jobs[number].state is State.RUNNING
        desk.bookkeeper.take_in([])
    desk.time[0] += MISSED_S - 0.1
    desk.bookkeeper.take_in([])
    assert desk.store.jobs[number].state is State.RUNNING
    desk.bookkeeper.take_in([Status(RunKey(number, 1), Phase.RUNNING, 1)])
    desk.bookkeeper.take_in([])
    desk.time[0] += 10 * MISSED_S  # few polls in a long time: the daemon itself was held up
    desk.bookkeeper.take_in([])
    assert desk.store.jobs[number].state is State.RUNNING
    desk.bookkeeper.take_in([])
    assert desk.store.jobs[number].state is State.PENDING and desk.store.jobs[number].losses == 1


def test_what_a_run_tells_is_taken_over_once(desk: Desk) -> None:
    number = desk.submit(model="resnet50")
    desk.run(number)
    told = Status(
        RunKey(number, 1),
        Phase.RUNNING,
        1,
        report={"progress": 0.5},
        story=({"text": "it grew"},),
        overheads=({"kind": "resize", "seconds": 0.25},),
        checkpoints=({"path": "gen-1/step-9", "step": 9},),
    )
    for _ in range(3):
        desk.bookkeeper.take_in([told])
    again = Bookkeeper(desk.store, desk.service.health, desk.service.metrics)  # a daemon that has been restarted
    again.take_in([told], adopted=True)
    kinds = [event.kind for event in desk.service.events(number)]
    assert [kinds.count(kind) for kind in ("story", "measured", "saved")] == [1, 1, 1]
    assert desk.bookkeeper.feed.update(ask=True).overheads == {"resnet50": {"resize": 0.25}}
    assert desk.store.checkpoints(number)[0].step == 9


class SlowLaunch(FakeBackend):
    """A backend whose first order takes long to arrive."""

    async def launch(self, run: Run) -> None:
        await asyncio.sleep(0.6 if run.key.job == 1 else 0.0)
        await super().launch(run)


def test_an_order_on_its_way_keeps_its_place(tmp_path: Path) -> None:
    """Cancelled before its launch has arrived: the next one must not meet it on the device."""

    async def scene() -> None:
        cluster = Cluster.uniform(1, 1)
        async with live(tmp_path, cluster=cluster, backend=SlowLaunch(cluster.nodes)) as here:
            first, second = here.submit(spec("fake seconds=50"), spec("fake seconds=2"))
            await here.until(lambda: here.state(first) == "starting")
            here.service.cancel([first])
            assert await here.ended(first, second) == ["cancelled", "succeeded"]

    asyncio.run(scene())


class Preparing(FakeBackend):
    """A backend that records what it is asked to prepare, and fails at it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.nodes)
        self.prepared: list[str | None] = []

    async def prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        self.prepared.append(spec and spec["name"])
        raise OSError("nothing can be prepared")


def test_jobs_are_prepared_for_when_they_come_a_few_of_each_owner(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = Cluster.uniform(1, 1)
        backend = Preparing(cluster)
        async with live(tmp_path, cluster=cluster, backend=backend) as here:
            blocker, *_ = here.submit(spec("fake seconds=50", name="first"), spec(array=30, name="array"))
            here.submit(*[spec(name=f"bob-{n}") for n in range(9)], owner="bob")
            await here.until(lambda: len(backend.prepared) >= 7)
            await here.until(lambda: here.state(blocker) == "running")
            assert sorted(map(str, backend.prepared)) == ["None", "array", "bob-0", "bob-1", "bob-2", "bob-3", "first"]
            here.service.cancel([blocker], at_once=True)

    asyncio.run(scene())
