"""Limits of users: jobs beyond the queue limit are refused, and jobs beyond the running limits are not started."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_cluster import Live, live, spec
from random_planner import RandomPlanner

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.cluster.limits import EVERYBODY, Limits, UserLimits
from argosy.errors import UnknownName
from argosy.live.backends.base import Part
from argosy.live.daemon.limit_enforcement import Headroom, LimitFilter, holds
from argosy.live.daemon.service import Service
from argosy.live.daemon.user_limits import LimitBook
from argosy.live.errors import NotFound, OverLimit
from argosy.live.home import Home
from argosy.live.states import State
from argosy.live.store import Actor, RunRow, Store

ANN, OLGA = Actor("ann", "user"), Actor("olga", "operator")
LIMITS = (
    UserLimits(EVERYBODY, (("queued", 5), ("gpus", 4), ("priority", 60.0))),
    UserLimits("ann", (("gpus", 2), ("queues", ("q",)), ("array", 3))),
)
CLUSTER = Cluster((Node("a", "gpu", 8, 64, 256),), queues=(Queue("q"), Queue("default")), limits=LIMITS)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    yield Service(store, home, CLUSTER, min_free_bytes=0)
    store.close()


@pytest.mark.parametrize(
    ("owner", "wrong", "told"),
    [
        ("bob", {"resources": {"gpus": 5}}, "needs 5 GPUs, but bob may hold only 4 at once"),
        ("bob", {"resources": {"gpus": "5..8"}}, "needs 5 GPUs"),
        ("bob", {"priority": 61}, "61 is above 60, the highest that bob may use"),
        ("bob", {"array": 6}, "bob has 0 jobs waiting of 5 allowed, so 6 more are too many"),
        ("ann", {"queue": "default"}, "ann may submit to q, not to default"),
        ("ann", {}, "not to default"),
        ("ann", {"queue": "q", "array": 4}, "4 copies are too many, ann may have 3 in one array"),
        ("ann", {"queue": "q", "resources": {"gpus": 3}}, "ann may hold only 2 at once"),
    ],
)
def test_what_a_user_may_not_submit_is_refused_with_limit_value_and_whom_to_ask(
    service: Service, owner: str, wrong: dict[str, Any], told: str
) -> None:
    with pytest.raises(OverLimit) as caught:
        service.submit([spec(**wrong)], owner)
    assert told in caught.value.what and "ask an operator (argosy limits set" in (caught.value.hint or "")
    assert service.store.jobs == {}


def test_a_half_that_nobody_may_share_is_a_whole_one(service: Service) -> None:
    service.set_limits("bob", {"gpus": 0.5})
    assert service.submit([spec(resources={"gpus": 0.5})], "bob") == [1]
    with pytest.raises(OverLimit, match="needs 1 GPUs"):
        service.submit([spec(resources={"gpus": 0.5}, exclusive=True)], "bob")


def test_jobs_that_wait_are_counted_however_they_came(service: Service) -> None:
    first = service.submit([spec(array=2), spec(after=[])], "bob")
    service.submit([spec(after=first[:1])], "bob")
    service.submit([spec()], "carl")
    with pytest.raises(OverLimit, match="has 4 jobs waiting of 5 allowed, so 2 more"):
        service.submit([spec(), spec()], "bob")
    service.cancel(first[:2])
    assert len(service.submit([spec(array=3)], "bob")) == 3
    assert service.store.queued["bob"] == 5
    again = Store(service.store.path)  # counted anew by the next daemon
    assert again.queued == service.store.queued
    again.close()


def test_many_requests_at_once_do_not_get_past_the_limit_together(service: Service) -> None:
    async def flood() -> list[object]:
        return await asyncio.gather(*(service.take_in([spec()], "bob") for _ in range(20)), return_exceptions=True)

    answers = asyncio.run(flood())
    assert sum(isinstance(answer, list) for answer in answers) == 5 == service.store.queued["bob"]
    assert sum(isinstance(answer, OverLimit) for answer in answers) == 15


def test_a_priority_that_nobody_asked_for_is_lowered(service: Service) -> None:
    service.set_limits("bob", {"priority": 30})
    (number,) = service.submit([spec()], "bob")
    assert service.job(number).priority == 30
    with pytest.raises(OverLimit, match="31 is above"):
        service.set_priority(number, 31, Actor("bob", "user"))
    assert service.set_priority(number, 90, OLGA).priority == 90  # operators may


def test_what_is_set_overrules_the_file_limit_by_limit(service: Service) -> None:
    book = service.limits
    assert book.of("ann") == Limits(5, None, 2, 60.0, ("q",), 3) and book.of("bob") == Limits(5, None, 4, 60.0)
    service.set_limits("ann", {"gpus": None, "queued": 9}, OLGA)
    service.set_limits("ann", {"running": 1}, OLGA)
    assert book.of("ann") == Limits(9, 1, None, 60.0, ("q",), 3)
    service.set_limits(EVERYBODY, {"gpus": 3}, OLGA)
    assert book.of("bob").gpus == 3 and book.of("ann").gpus is None
    assert LimitBook(service.store, CLUSTER).of("ann") == book.of("ann")  # the next daemon knows
    service.clear_limits("ann", OLGA)
    assert book.of("ann") == Limits(5, None, 2, 60.0, ("q",), 3)
    with pytest.raises(NotFound):
        service.clear_limits("ann", OLGA)
    with pytest.raises(UnknownName, match="unknown queue 'p'"):
        service.set_limits("ann", {"queues": ["p"]}, OLGA)
    lines = [(e.action, e.object, e.detail) for e in service.audit.entries(who="olga")]
    assert lines == [
        ("limits-clear", "user ann", ""),
        ("limits-set", "user *", "gpus 3"),
        ("limits-set", "user ann", "running 1"),
        ("limits-set", "user ann", "gpus none, queued 9"),
    ]


def test_reasons_name_the_limit_and_what_is_held(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        here.service.set_limits("ann", {"gpus": 3})
        first = here.submit(*[spec("fake seconds=600", resources={"gpus": 1}) for _ in range(3)])
        await here.until(lambda: all(here.state(n) == "running" for n in first))
        (fourth,) = here.submit(spec("fake seconds=600", resources={"gpus": 1}))
        (other,) = here.submit(spec("fake seconds=600", resources={"gpus": 1}), owner="bob")
        await here.until(lambda: here.state(other) == "running")
        await here.until(lambda: here.service.explain(fourth)["category"] == "limit")
        told = here.service.explain(fourth)
        assert told["text"] == "ann holds 3 of 3 GPUs allowed" and "limits set ann --gpus 4" in told["change"]
        here.service.set_limits("ann", {"gpus": None, "running": 3})
        await here.until(lambda: here.service.explain(fourth)["text"] == "ann runs 3 of 3 jobs allowed at once")
        here.service.cancel([other])
        here.service.set_limits("ann", {"running": 4})
        await here.until(lambda: here.state(fourth) == "running")
        here.service.clear_limits("ann")
        here.service.cancel([*first, fourth])

    asyncio.run(_play(tmp_path, scene, calm=True))


async def _play(folder: Path, scene: Any, **options: Any) -> None:
    async with live(folder, **options) as here:
        await scene(here)


def test_elastic_jobs_do_not_grow_beyond_the_limit(tmp_path: Path) -> None:
    """The planner grows, moves, pauses and preempts at random; the limits change meanwhile."""
    owners = {"ann": 3, "bob": 2, "zoe": None}
    cluster = Cluster.uniform(2, 4)

    async def scene(here: Live) -> None:
        for owner, gpus in owners.items():
            here.service.set_limits(owner, {"gpus": gpus, "running": 3 if owner == "bob" else None})
        sizes = ["1..4", 1, 2, "1..2", 0.5, "1..3"]
        numbers = [
            number
            for i in range(24)
            for number in here.submit(
                spec("fake seconds=0.3 hot", resources={"gpus": sizes[i % 6]}, min_runtime=0),
                owner=["ann", "bob", "zoe"][i % 3],
            )
        ]
        for _ in range(100_000):
            for owner, gpus in owners.items():
                runs = [r for r in here.service.store.runs.values() if here.service.store.jobs[r.job].owner == owner]
                assert gpus is None or sum(map(holds, runs)) <= gpus, (owner, runs)
                assert owner != "bob" or len(runs) <= 3
            if all(here.service.job(n).state.ended for n in numbers):
                break
            await asyncio.sleep(0.005)
        assert {here.state(n) for n in numbers} <= {"succeeded"}

    planner = RandomPlanner(cluster, seed=7, calm=False)
    asyncio.run(_play(tmp_path, scene, cluster=cluster, planner=planner))


class Sandbox:
    """LimitFilter and headroom alone, with starts, changes and ends at random."""

    def __init__(self, store: Store) -> None:
        self.store, self.limits = store, LimitBook(store)
        self.limit_filter = LimitFilter(store, self.limits, lambda job: True)
        self.service = Service(store, Home(store.path.parent), Cluster.uniform(8, 8), min_free_bytes=0)

    def settle(self) -> None:
        touched, self.store.touched = self.store.touched, set()
        self.limit_filter.touch(touched)
        self.limit_filter.settle()

    def check_shown(self) -> None:
        """Check that the limits hold whatever the policy does with the jobs it is shown."""
        for owner, queue in self.limit_filter._queues.items():
            limits = self.limits.of(owner)
            running = sum(holds(self.store.runs[n]) for n in queue.running)
            if limits.gpus is not None and any(n in queue.shown for n in queue.keys):
                assert sum(queue.shown.values()) <= max(limits.gpus, running) + 1e-9
            if limits.running is not None and any(n in queue.shown for n in queue.keys):
                assert len(queue.shown) <= limits.running
            assert set(queue.running) <= set(queue.shown)
            assert queue.waiting == sorted(queue.keys.values())

    def start(self, number: int, gpus: float) -> None:
        """Start the job as the daemon would if a policy wanted it."""
        job, run = self.store.jobs[number], self.store.runs.get(number)
        parts = (Part("n0", tuple(range(int(gpus)))),) if gpus >= 1 else (Part("n0", (0,), int(gpus * 1000)),)
        headroom = Headroom(self.limits.of, self.store.jobs, self.store.runs)
        if not headroom.allows(job, parts, run):
            return
        headroom.take(job, parts, run)
        with self.store.transaction() as changes:
            if run is None:
                changes.save(_with(job, state=State.STARTING, generation=job.generation + 1))
                changes.save_run(RunRow(number, job.generation + 1, 1, parts, 0.0, 0.0, 0.0))
            else:
                changes.save(job)
                changes.save_run(_with(run, parts=parts, former=None if random.random() < 0.5 else run.parts))

    def leave(self, number: int, state: State) -> None:
        job, run = self.store.jobs[number], self.store.runs[number]
        with self.store.transaction() as changes:
            changes.save(_with(job, state=state, ended_s=None if state is State.PENDING else 0.0))
            changes.save_run(_with(run, ended_s=0.0))


def _with(row: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(row, **changes)


SIZES = st.sampled_from([0, 0.5, 1, 2, 3, "1..4", "2..6", "1..2..3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(["ann", "bob"]), SIZES, st.integers(0, 3)),
        st.tuples(st.just("run"), st.integers(0, 30), st.sampled_from([0.5, 1, 2, 3, 4, 6]), st.just(0)),
        st.tuples(st.just("preempt"), st.integers(0, 30), st.just(0), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 30), st.just(0), st.just(0)),
        st.tuples(
            st.just("limit"),
            st.sampled_from(["ann", "bob"]),
            st.sampled_from([None, 1, 2.5, 4, 8]),
            st.sampled_from([None, 1, 2, 5]),
        ),
        st.tuples(st.just("priority"), st.integers(0, 30), st.integers(0, 100), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_limits_hold_whatever_is_submitted_started_resized_and_ended(
    steps: list[tuple[str, Any, Any, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = Home(tmp_path_factory.mktemp("limits"))
    home.create()
    box = Sandbox(Store(home.database))
    box.limits.set("ann", {"gpus": 4, "running": 3})
    for what, a, b, c in steps:
        jobs, runs = sorted(box.store.jobs), sorted(box.store.runs)
        held_before = {owner: _held(box.store, owner) for owner in ("ann", "bob")}
        if what == "submit":
            box.service.submit([spec(resources={"gpus": b}, array=c or None)], a)
        elif what == "run" and jobs:
            box.start(jobs[a % len(jobs)], b)
        elif what in ("preempt", "end") and runs:
            box.leave(runs[a % len(runs)], State.PENDING if what == "preempt" else State.FAILED)
        elif what == "limit":
            box.limits.set(a, {"gpus": b, "running": c})
        elif what == "priority" and jobs:
            box.service.set_priority(jobs[a % len(jobs)], float(b))
        box.settle()
        box.check_shown()
        for owner, before in held_before.items():
            limits, (gpus, count) = box.limits.of(owner), _held(box.store, owner)
            assert limits.gpus is None or gpus <= max(limits.gpus, before[0]) + 1e-9  # a lower limit ends nothing
            assert limits.running is None or count <= max(limits.running, before[1])
    box.store.close()


def _held(store: Store, owner: str) -> tuple[float, int]:
    runs = [run for run in store.runs.values() if store.jobs[run.job].owner == owner]
    return sum(map(holds, runs)), len(runs)
