"""The daemon on the fake backend: jobs run, fail, are retried and moved, and no device is given out twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from live_cluster import CLUSTER, Live, live, spec
from random_planner import RandomPlanner

from argosy.live.backends.base import RunKey
from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon.ended_trace import read_ended_jobs, read_nodes
from argosy.live.home import Home


def test_jobs_run_and_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            numbers = here.submit(*[spec() for _ in range(9)])
            assert await here.ended(*numbers) == ["succeeded"] * 9
            kinds = [event.kind for event in here.service.events(numbers[0])]
            assert kinds[:3] == ["submitted", "starting", "running"] and kinds[-1] == "succeeded"
            job = here.service.job(numbers[0])
            assert job.exit_code == 0 and job.progress == 1.0 and job.gpu_s > 0 and job.gpus == 0
            await here.until(lambda: not here.backend.runs, "the backend to be told to forget")

    asyncio.run(scene())
    database = Home(tmp_path).database
    assert read_nodes(database).nodes == CLUSTER.nodes
    assert len(read_ended_jobs(database)) == 9


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_policy_wants_nobody_is_in_two_places(tmp_path: Path, seed: int) -> None:
    """Random starts, stops, resizes, moves and pauses, with slow calls, lost messages and crashes."""

    async def scene() -> None:
        backend = FakeBackend(CLUSTER.nodes, latency_s=0.004, loss=0.1, seed=seed)
        async with live(tmp_path, calm=False, seed=seed, backend=backend) as here:
            some = [
                spec("fake seconds=0.3", resources={"gpus": "1..3"}),
                spec("fake seconds=0.3 hot=false", resources={"gpus": "1..2"}),
                spec("fake seconds=0.2", resources={"gpus": 0.5}),
                spec("fake seconds=0.3 crash_at=0.1 crashes=2", retries=3),
                spec("fake seconds=0.1", resources={"gpus": 0}),
            ]
            numbers = here.submit(*(some * 4))
            await asyncio.sleep(0.5)
            here.backend.node_down("n1")
            await asyncio.sleep(0.3)
            here.backend.node_up("n1")
            here.planner.calm = False
            await asyncio.sleep(1.5)
            here.planner.calm = True  # let them come to an end
            assert await here.ended(*numbers) == ["succeeded"] * 20
            assert all(len(here.service.runs(n)) == here.service.job(n).generation for n in numbers)

    asyncio.run(scene())


def test_a_failing_job_is_tried_again_with_growing_waits(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        (fails,) = here.submit(spec("fake seconds=0.05 exit=3", retries=2))
        (recovers,) = here.submit(spec("fake seconds=0.1 crash_at=0.05 crashes=1", retries=3))
        assert await here.ended(fails, recovers) == ["failed", "succeeded"]
        assert here.service.job(fails).exit_code == 3 and here.service.job(fails).generation == 3
        waits = [e.text for e in here.service.events(fails) if e.kind == "failed"]
        assert "retry 1 follows in 0.05 s" in waits[0] and "retry 2 follows in 0.1 s" in waits[1]
        assert here.service.job(recovers).failures == 1

    asyncio.run(_in(tmp_path, scene))


async def _in(home: Path, scene, **options) -> None:  # type: ignore[no-untyped-def]
    async with live(home, **options) as here:
        await scene(here)


def test_progress_is_kept_over_a_preemption(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        (number,) = here.submit(spec("fake seconds=3 every=0.1"))
        await here.until(lambda: (here.service.job(number).progress or 0) > 0.1)
        here.planner.closed = {"n0", "n1"}
        here.planner.placements.clear()
        await here.until(lambda: here.state(number) == "pending")
        saved = here.service.store.checkpoints(number)[0]
        assert saved.step >= 3 and saved.path.startswith("gen-1/")
        assert here.service.job(number).preemptions == 1
        here.planner.closed = set()
        await here.until(lambda: here.state(number) == "running")
        run = here.backend.runs[RunKey(number, 2)]
        assert run.done >= saved.step / 10

    asyncio.run(_in(tmp_path, scene))


def test_dependencies_and_arrays(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        array = here.submit(spec("fake seconds=0.1", array=3))
        (good,) = here.submit(spec(after=array))
        (bad,) = here.submit(spec("fake seconds=0.05 exit=1", retries=0))
        (never,) = here.submit(spec(after=[bad]))
        (nor_this,) = here.submit(spec(after=[never]))
        assert here.service.explain(good)["category"] == "dependency"
        assert await here.ended(good, never, nor_this) == ["succeeded", "failed", "failed"]
        assert here.service.job(never).generation == 0 and str(bad) in here.service.job(never).message
        ends = max(here.service.job(n).ended_at for n in array)
        assert here.service.job(good).started_at >= ends - 0.01
        assert [here.service.job(n).array_index for n in array] == [0, 1, 2]

    asyncio.run(_in(tmp_path, scene))


def test_cancel_in_every_state(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        runs = here.submit(*[spec("fake seconds=100") for _ in range(4)])
        (waits,) = here.submit(spec("fake seconds=100"))
        here.service.cancel([waits])
        assert here.state(waits) == "cancelled"
        here.service.cancel(runs[:1])  # before it has started, or as it starts
        await here.until(lambda: here.state(runs[1]) == "running")
        here.service.cancel(runs)
        assert await here.ended(*runs) == ["cancelled"] * 4
        assert here.service.cancel([waits])[0].state.value == "cancelled"

    asyncio.run(_in(tmp_path, scene))


def test_limits_of_time(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        (limited,) = here.submit(spec("fake seconds=100", max_duration=0.3))
        (budgeted,) = here.submit(spec("fake seconds=100", time_budget=0.3))
        assert await here.ended(limited, budgeted) == ["failed", "succeeded"]
        assert "max_duration" in here.service.job(limited).message
        assert here.service.store.checkpoints(budgeted)

    asyncio.run(_in(tmp_path, scene))


def test_launches_that_fail(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        here.backend.launch_failures[2] = 2
        (never,) = here.submit(spec("fake fail_launch=no-such-command"))
        (later,) = here.submit(spec())
        assert await here.ended(never, later) == ["failed", "succeeded"]
        assert "no-such-command" in here.service.job(never).message
        (wrong,) = here.submit(spec("fake name=x", retries=0))
        assert await here.ended(wrong) == ["failed"]
        assert here.service.job(wrong).generation == 1 and "has no parameter 'name'" in here.service.job(wrong).message

    asyncio.run(_in(tmp_path, scene))


def test_a_lost_run_is_tried_again_and_not_blamed(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        vanishes, dies = here.submit(spec("fake seconds=0.5"), spec("fake seconds=0.5"))
        await here.until(lambda: here.state(vanishes) == here.state(dies) == "running")
        here.backend.vanish(RunKey(vanishes, 1))
        here.backend.node_down("n0")
        here.backend.node_up("n0")
        assert await here.ended(vanishes, dies) == ["succeeded"] * 2
        assert here.service.job(vanishes).failures == here.service.job(dies).failures == 0
        assert here.service.job(vanishes).generation == 2

    asyncio.run(_in(tmp_path, scene))


def test_a_failing_policy_stops_nobody(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        (runs,) = here.submit(spec("fake seconds=0.6"))
        await here.until(lambda: here.state(runs) == "running")
        here.planner.fails_with = ValueError("division by zero in rank")
        (waits,) = here.submit(spec())
        await here.until(lambda: not here.service.health_summary()["ok"])
        assert "division by zero" in here.service.explain(waits)["text"]
        assert await here.ended(runs) == ["succeeded"]
        assert here.state(waits) == "pending"
        here.planner.fails_with = None
        assert await here.ended(waits) == ["succeeded"]
        assert here.service.health_summary()["ok"]
        assert len(here.planner.snapshots) >= 2

    asyncio.run(_in(tmp_path, scene))


def test_a_second_daemon_adopts(tmp_path: Path) -> None:
    """The first ends while jobs run; they go on, and the second knows what happened meanwhile."""

    async def scene() -> None:
        backend = FakeBackend(CLUSTER.nodes)
        async with live(tmp_path, backend=backend) as here:
            short, long = here.submit(spec("fake seconds=0.3"), spec("fake seconds=2"))
            await here.until(lambda: here.state(long) == here.state(short) == "running")
            before = here.service.store.clock.now()
        await asyncio.sleep(0.5)
        async with live(tmp_path, backend=backend) as here:
            assert here.service.store.clock.now() >= before + 0.4
            assert here.state(short) == "succeeded"
            assert here.state(long) == "running" and here.service.job(long).generation == 1
            assert await here.ended(long) == ["succeeded"]
            assert here.planner.snapshots[0].jobs[0].parts

    asyncio.run(scene())


def test_drained_nodes_take_nothing_new(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        here.service.drain("n0")
        await here.until(lambda: "n0" in here.planner.closed)
        numbers = here.submit(*[spec("fake seconds=0.3") for _ in range(3)])
        await here.until(lambda: sum(here.state(n) == "running" for n in numbers) == 2)
        assert [node.state for node in here.service.nodes()] == ["draining", "up"]
        assert [node.used_gpus for node in here.service.nodes()] == [0.0, 2.0]
        here.service.undrain("n0")
        await here.ended(*numbers)

    asyncio.run(_in(tmp_path, scene))


def test_jobs_are_stopped_with_the_daemon_if_asked(tmp_path: Path) -> None:
    async def scene() -> None:
        from argosy.live.daemon.daemon import Daemon
        from argosy.live.home import Home

        backend = FakeBackend(CLUSTER.nodes)
        planner = RandomPlanner(CLUSTER, calm=True)
        daemon = Daemon(Home(tmp_path), CLUSTER, "x", backend, planner=planner.attach, poll_s=0.02, switch_users=False)
        task = asyncio.create_task(daemon.run(stop_jobs=True))
        await daemon.ready.wait()
        here = Live(daemon, backend, planner)
        (number,) = here.submit(spec("fake seconds=50"))
        await here.until(lambda: here.state(number) == "running")
        daemon.stop()
        await asyncio.wait_for(task, 30)
        assert not any(run.alive for run in backend.runs.values())

    asyncio.run(scene())
