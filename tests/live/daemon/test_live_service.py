"""The daemon's service: submitting, listing, cancelling, history, and clear refusals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_cluster import spec
from pydantic import ValidationError

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.errors import InputError, UnknownName
from argosy.live.backends.base import Part
from argosy.live.daemon.past import read_past
from argosy.live.daemon.reconcile import HURRY_S, grace_s
from argosy.live.daemon.service import Service
from argosy.live.errors import Conflict, NoSpace, NotFound
from argosy.live.home import Home
from argosy.live.states import ACTIVE, State
from argosy.live.store import RunRow, Store
from argosy.perf.overhead import Overheads
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

CLUSTER = Cluster(
    (Node("a", "v100", 4, 16, 64), Node("b", "a100", 2, 16, 64)), queues=(Queue("q", 2, 3), Queue("default"))
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    home = Home(tmp_path)
    home.create()
    store = Store(home.database)
    yield Service(store, home, CLUSTER)
    store.close()


def test_numbers_come_in_order_and_arrays_together(service: Service) -> None:
    numbers = service.submit([spec(), spec(array=3, name="many"), spec()], "ann", "/w")
    assert numbers == [1, 2, 3, 4, 5]
    assert [service.job(n).array_index for n in numbers] == [None, 0, 1, 2, None]
    assert {service.job(n).array_id for n in (2, 3, 4)} == {2}
    assert service.job(1).workdir == "/w" and service.job(1).spec["run"] == "fake seconds=0.2"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"resources": {"gpus": 7}}, "the cluster has 6"),
        ({"resources": {"gpus": 3, "gpu_types": ["a100"]}}, "of type a100"),
        ({"resources": {"gpu_types": ["h100"]}}, "h100"),
        ({"resources": {"gpus": 4, "cpus_per_gpu": 16}}, "only 2 have the CPUs and memory"),
        ({"resources": {"gpus": 0, "cpus_per_gpu": 17}}, "no node"),
        ({"queue": "r"}, "queue"),
        ({"queue": "q", "resources": {"gpus": 4}}, "at most 3"),
        ({"after": [99]}, "no job 99"),
    ],
)
def test_what_can_never_run_is_refused_and_nothing_is_written(
    service: Service, wrong: dict[str, object], match: str
) -> None:
    with pytest.raises(InputError, match=match) as caught:
        service.submit([spec(), spec(**wrong)], "ann")
    assert caught.value.hint
    assert service.counts() == dict.fromkeys(State, 0)


def test_a_nearly_full_disk_takes_nothing_in(service: Service, tmp_path: Path) -> None:
    full = Service(service.store, service.home, CLUSTER, min_free_bytes=2**60)
    with pytest.raises(NoSpace, match="nearly full"):
        full.submit([spec()], "ann")
    assert not full.health_summary()["ok"] and service.submit([spec()], "ann") == [1]


def test_what_is_submitted_at_the_same_time_is_written_together(service: Service) -> None:
    commits = []
    service.store._db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)

    async def scene() -> list[object]:
        good = [service.take_in([spec(), spec()], "ann") for _ in range(50)]
        bad = service.take_in([spec(resources={"gpus": 99})], "ann")
        return await asyncio.gather(*good, bad, return_exceptions=True)

    *good, bad = asyncio.run(scene())
    assert isinstance(bad, InputError)
    assert sorted(n for pair in good for n in pair) == list(range(1, 101))  # type: ignore[attr-defined]
    assert len(commits) == 1


def test_pages_and_filters(service: Service) -> None:
    service.submit([spec(name=f"n{i % 3}") for i in range(10)], "ann")
    service.submit([spec(queue="q")], "bob")
    assert [j.id for j in service.jobs(limit=3)] == [11, 10, 9]
    assert [j.id for j in service.jobs(limit=3, before=9)] == [8, 7, 6]
    assert [j.id for j in service.jobs(limit=2, after=9, oldest_first=True)] == [10, 11]
    assert [j.id for j in service.jobs(owner="bob")] == [j.id for j in service.jobs(queue="q")] == [11]
    assert [j.id for j in service.jobs(name="n0")] == [10, 7, 4, 1]
    assert [j.id for j in service.jobs(ids=[3, 99, 5])] == [5, 3]
    service.cancel([1, 2])
    assert [j.id for j in service.jobs(states=[State.CANCELLED])] == [2, 1]
    assert len(service.jobs(states=ACTIVE)) == 9
    assert service.counts("ann") == dict.fromkeys(State, 0) | {"pending": 8, "cancelled": 2}


def test_numbers_that_do_not_exist(service: Service) -> None:
    for number in (0, -1, 7, 10**30):
        with pytest.raises(NotFound):
            service.job(number)
    service.submit([spec()], "ann")
    with pytest.raises(NotFound):
        service.cancel([1, 7])
    assert service.job(1).state is State.PENDING, "all or none"
    with pytest.raises(NotFound, match="no run"):
        service.log_path(1)
    with pytest.raises(NotFound):
        service.drain("nowhere")


def test_a_report_of_a_run_that_is_over_changes_nothing(service: Service) -> None:
    (number,) = service.submit([spec()], "ann")
    with pytest.raises(Conflict):
        service.report(number, 1, {"progress": 0.5})
    begin(service, number)
    service.report(number, 1, {"progress": 0.5, "step": 3})
    service.report(number, 1, {"step": 4})
    assert service.job(number).progress == 0.5 and service.job(number).report["step"] == 4
    with pytest.raises(Conflict):
        service.report(number, 0, {"progress": 0.9})
    with pytest.raises(InputError, match="characters"):
        service.report(number, 1, {"x": "y" * 20_000})
    assert service.job(number).progress == 0.5


def begin(service: Service, number: int) -> None:
    with service.store.transaction() as changes:
        job = changes.job(number)
        assert job is not None
        changes.save(replace(job, state=State.STARTING, generation=1, started_s=1.0, started_at=1.0))
        changes.save_run(RunRow(number, 1, 1, (), 0.0, 0.0, 0.0))


def test_priority(service: Service) -> None:
    service.submit([spec()], "ann")
    assert service.set_priority(1, 80).priority == 80
    for wrong in (101, -1, math.nan):
        with pytest.raises(InputError):
            service.set_priority(1, wrong)
    service.cancel([1])
    with pytest.raises(Conflict):
        service.set_priority(1, 50)


def test_the_story_and_its_end(service: Service) -> None:
    service.submit([spec()], "ann")
    for priority in range(5):
        service.set_priority(1, priority)
    assert [e.kind for e in service.events(1, limit=2)] == ["submitted", "priority"]
    last = service.events(1, limit=2, newest=True)
    assert [e.text for e in last] == ["priority 2 → 3", "priority 3 → 4"]
    assert service.events(1, after=last[0].id) == last[1:]


def test_history_is_a_trace_that_can_be_simulated(service: Service, tmp_path: Path) -> None:
    service.submit([spec(resources={"gpus": "1..2"}, name="a,b".replace(",", "-")), spec(resources={"gpus": 0})], "ann")
    service.submit([spec()], "ann")  # never runs
    for number, state in ((1, State.SUCCEEDED), (2, State.FAILED)):
        begin(service, number)
        with service.store.transaction() as changes:
            job, run = changes.job(number), changes.run(number)
            assert job and run
            changes.save(replace(job, state=state, ended_s=30.0, ended_at=9.0, run_s=10.0, gpu_s=20.0))
            changes.save_run(replace(run, ended_s=30.0, run_s=10.0, gpu_s=20.0))
    entries = service.history()
    assert [e["id"] for e in entries] == [2, 1] and entries[1]["gpu_s"] == 20.0
    path = tmp_path / "trace.csv"
    path.write_text(service.history_csv("ann"))
    frame = Trace.read(path).frame
    assert frame["job_id"].to_list() == ["1", "2"] and frame["gpus"].to_list() == [1.0, 0.0]
    assert frame["duration_s"].to_list() == [20.0, 10.0]  # at the size that it asked for
    assert frame["status"].to_list() == ["completed", "failed"] and frame["max_gpus"].to_list() == [2.0, None]


def test_measured_overheads_are_what_a_simulation_reads(service: Service, tmp_path: Path) -> None:
    with service.store.transaction() as changes:
        for seconds in (0.2, 0.4):
            changes.overhead("bert", "resize", seconds)
        changes.overhead("", "start", 0.7)
        changes.overhead("", "recover", 9.0)  # no simulation charges that
    path = tmp_path / "costs.csv"
    path.write_text(service.overheads_csv())
    assert Overheads.read(path).measured == {"bert": {"resize": 0.3}, "": {"start": 0.7}}
    assert Settings(overheads=str(path)).overheads == str(path)


def test_figures_for_prometheus_name_nobody(service: Service) -> None:
    service.submit([spec(name="secret-project")], "zoe")
    text = service.metrics_text().decode()
    assert 'argosy_jobs{state="pending"} 1.0' in text and 'argosy_gpus{what="total"} 6.0' in text
    assert "zoe" not in text and "secret" not in text


def test_unknown_types_get_a_suggestion(service: Service) -> None:
    with pytest.raises(UnknownName) as caught:
        service.submit([spec(resources={"gpu_types": ["v10"]})], "ann")
    assert caught.value.hint and "v100" in caught.value.hint


def test_cancelled_again_it_has_a_few_seconds_and_at_once_none(service: Service) -> None:
    (number,) = service.submit([spec(grace=500)], "ann")
    store = service.store
    with store.transaction() as changes:
        started = replace(store.jobs[number], state=State.STARTING, generation=1)
        changes.save(started)
        changes.save_run(RunRow(number, 1, 1, (Part("n0", (0,)),), 0.0, 0.0, 0.0))
    left = []
    for at_once in (False, False, False, True, False):
        service.cancel([number], at_once=at_once)
        left.append(grace_s(store.jobs[number], store.runs[number], 100.0))
    assert left == [100.0, HURRY_S, HURRY_S, 0.0, 0.0]
    told = [event.text for event in service.events(number) if event.kind == "cancelling"]
    assert [text.split(":")[0] for text in told] == ["to be cancelled", "cancelled again", "cancelled at once"]


@pytest.mark.parametrize("grace", ["1e308", "601", "2h"])
def test_no_job_may_take_longer_to_leave_than_the_operator_allows(service: Service, grace: str) -> None:
    with pytest.raises(InputError, match="at most 600 s"):
        service.submit([spec(grace=grace)], "ann")
    assert service.submit([spec(grace="10m")], "ann") == [1]


@pytest.mark.parametrize("grace", ["inf", "nan", "-1", float("inf"), float("nan"), "1e309"])
def test_a_grace_is_a_number_of_seconds(grace: object) -> None:
    with pytest.raises(ValidationError, match="not a duration"):
        spec(grace=grace)


def test_work_that_was_done_again_is_no_part_of_the_duration(service: Service, tmp_path: Path) -> None:
    """A plain command is stopped after 54 of its 60 seconds and starts from the beginning; one that saves goes on."""
    service.submit([spec(name="plain"), spec(name="saving", saves="step")], "ann")
    for number in (1, 2):
        for generation, began, seconds in ((1, 10.0, 54.0), (2, 100.0, 61.0)):
            with service.store.transaction() as changes:
                job, last = changes.job(number), generation == 2
                assert job
                ended, state = began + seconds, State.SUCCEEDED if last else State.PENDING
                for step in (State.STARTING, State.RUNNING, State.STOPPING, state):
                    job = replace(job, state=step, generation=generation, started_s=10.0)
                    changes.save(job)
                changes.save(replace(job, ended_s=ended if last else None))
                run = RunRow(number, generation, 1, (), began, began, ended, running_s=began + 1.0, ended_s=ended)
                changes.save_run(replace(run, run_s=seconds, gpu_s=seconds))
    path = tmp_path / "trace.csv"
    path.write_text(service.history_csv("ann"))
    frame = Trace.read(path).frame
    assert frame["saves"].to_list() == ["none", "step"]
    assert frame["duration_s"].to_list() == pytest.approx([60.0, 113.0])
    assert frame["attempts"][0] == "0-54 90-151"
    plain, saving = read_past(service.store.path)
    assert (plain.redone_s, saving.redone_s) == (pytest.approx(53.0), 0.0)
