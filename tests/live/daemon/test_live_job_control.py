"""What people do to jobs: changes survive the daemon, are checked against limits, and reach the policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from sqlite3 import ProgrammingError

import pytest
from live_cluster import live, spec

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.errors import ArgosyError, InputError, UnknownName
from argosy.live.daemon.service import Service
from argosy.live.errors import Conflict, OverLimit
from argosy.live.home import Home
from argosy.live.states import State
from argosy.live.store import Actor, Store

CLUSTER = Cluster((Node("a", "v100", 4, 16, 64),), queues=(Queue("q", 2, 3), Queue("default")))
ANN, OPERATOR = Actor("ann", "user"), Actor("op", "operator")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    yield Service(store, home, CLUSTER)
    with suppress(ProgrammingError, OSError):  # a test has closed it
        store.close()


def test_changes_are_on_the_disk(service: Service, tmp_path: Path) -> None:
    (number,) = service.submit([spec(resources={"gpus": 4})], "ann", "/w")
    given = {"gpus": {"low": 1, "high": 3}, "queue": "q", "name": "new", "max_duration": 60.0, "priority": 70.0}
    service.control.update([number], given, ANN)
    service.control.hold([number], ANN)
    service.store.close()
    again = Store(Home(tmp_path).database)
    job = again.jobs[number]
    assert (job.name, job.queue, job.priority, job.gpus_low, job.gpus_high) == ("new", "q", 70.0, 1.0, 3.0)
    assert job.parsed.max_duration == 60.0 and job.held
    assert job.parsed.resources.gpus.high == 3 and job.parsed.run == "fake seconds=0.2"
    again.close()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"queue": "nowhere"}, UnknownName, "nowhere"),
        ({"gpus": {"low": 9, "high": 9}}, InputError, "has 4"),
        ({"queue": "q", "gpus": {"low": 4, "high": 4}}, InputError, "at most 3"),
        ({"priority": 90.0}, OverLimit, "above 60"),
        ({"gpus": {"low": 3, "high": 3}}, OverLimit, "may hold only 2"),
    ],
)
def test_what_may_not_be_submitted_cannot_be_reached_by_a_change(
    service: Service, given: dict[str, object], error: type[ArgosyError], text: str
) -> None:
    service.set_limits("ann", {"priority": 60, "gpus": 2})
    first, second = service.submit([spec(), spec()], "ann", "/w")
    with pytest.raises(error, match=text):
        service.control.update([first, second], given, ANN)
    assert all(service.job(n).spec["resources"]["gpus"]["low"] == 1 for n in (first, second))
    service.control.update([first], {"name": "other"}, ANN)  # its default priority is not a change
    if error is OverLimit:
        service.control.update([first], given, OPERATOR)


def test_all_jobs_change_or_none(service: Service) -> None:
    first, ended = service.submit([spec(), spec()], "ann", "/w")
    service.cancel([ended])
    with pytest.raises(Conflict, match="has ended"):
        service.control.update([first, ended], {"name": "new"}, ANN)
    assert service.job(first).name == "job"


def test_submitting_again_keeps_owner_folder_and_index_and_drops_what_is_over(service: Service) -> None:
    done, open_, *array = service.submit([spec(), spec(), spec(array=2, env={"A": "1"})], "ann", "/w")
    (waits,) = service.submit([spec(after={"any": done, "succeeded": open_}, priority=60)], "bob", "/b")
    service.cancel([done])
    new = service.control.resubmit([array[1], waits], OPERATOR)
    copy, follower = (service.job(number) for number in new)
    assert (copy.owner, copy.workdir, copy.array_index) == ("ann", "/w", None)
    assert copy.spec["env"] == {"A": "1", "ARGOSY_ARRAY_INDEX": "1"} and copy.spec["array"] is None
    assert (follower.owner, follower.workdir, follower.priority) == ("bob", "/b", 60.0)
    assert follower.after == (open_,)
    service.set_limits("bob", {"queued": 2})
    with pytest.raises(OverLimit, match="2 jobs waiting of 2"):
        service.control.resubmit([array[0], waits], OPERATOR)
    assert service.counts()["pending"] == 6


def test_the_policy_sees_a_changed_job_as_it_is_now(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            blocker, job = here.submit(
                spec("fake seconds=600", resources={"gpus": 3}), spec("fake seconds=0.1", resources={"gpus": 4})
            )
            await here.until(lambda: here.state(blocker) == "running")
            here.service.control.update([job], {"gpus": {"low": 1, "high": 1}})
            assert await here.ended(job) == ["succeeded"]
            assert here.service.runs(job)[0].parts[0].devices
            assert sum(len(part.devices) for part in here.service.runs(job)[0].parts) == 1
            here.service.cancel([blocker], at_once=True)

    asyncio.run(scene())


def test_a_job_that_is_requeued_and_held_stays_where_it_is(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            job, other = here.submit(spec("fake seconds=600"), spec("fake seconds=0.2", resources={"gpus": 4}))
            await here.until(lambda: here.state(job) == "running")
            here.service.control.requeue([job], hold=True)
            await here.ended(other)
            assert here.service.job(job).state is State.PENDING and "held back" in here.service.job(job).why
            here.service.control.release([job])
            await here.until(lambda: here.state(job) == "running")
            here.service.cancel([job], at_once=True)

    asyncio.run(scene())


def test_explain_says_what_a_stop_would_cost_a_running_job(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            plain, kept, regular = here.submit(
                spec("fake seconds=600 hot=false", min_runtime=1000),
                spec("fake seconds=600"),
                spec("fake seconds=600 hot=false", saves="interval"),
            )
            await here.until(lambda: all(here.state(n) == "running" for n in (plain, kept, regular)))
            await here.until(lambda: here.service.store.jobs[kept].hot)
            told = [here.service.explain(n)["text"] for n in (plain, kept, regular)]
            assert "it saves nothing: a stop would cost its work of " in told[0]
            assert "not preempted for another " in told[0] and "its minimum run time" in told[0]
            assert "cost" not in told[1] and "minimum" not in told[1]
            assert "a stop would cost what it has done since it saved last" in told[2]
            here.service.cancel([plain, kept, regular], at_once=True)

    asyncio.run(scene())
