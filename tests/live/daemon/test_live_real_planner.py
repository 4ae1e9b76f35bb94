"""The daemon with the real planner process: a registered policy drives it, and its reasons reach people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from live_cluster import CLUSTER, LIMIT_S, Live, spec

from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon.daemon import Daemon
from argosy.live.home import Home


async def play(folder: Path, scene: Callable[[Live], Awaitable[None]], policy: str = "fifo") -> None:
    """Run a scene with a daemon that asks a real policy."""
    backend = FakeBackend(CLUSTER.nodes)
    daemon = Daemon(Home(folder), CLUSTER, policy, backend, poll_s=0.05, switch_users=False)
    task = asyncio.create_task(daemon.run())
    await asyncio.wait_for(daemon.ready.wait(), LIMIT_S)
    try:
        await scene(Live(daemon, backend, None))  # type: ignore[arg-type]
    finally:
        daemon.stop()
        await asyncio.wait_for(task, LIMIT_S)
    assert not backend.violations


@pytest.mark.slow(7)
def test_a_real_policy_drives_the_daemon(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        first = here.submit(*[spec("fake seconds=6", resources={"gpus": 2}) for _ in range(2)])
        await here.until(lambda: all(here.state(n) == "running" for n in first))
        (waits,) = here.submit(spec("fake seconds=0.2"))
        await here.until(lambda: waits in here.daemon.bookkeeper.feed.known)
        told = await here.service.explain_now(waits)
        assert told["category"] not in ("new", "policy-failed") and told["text"], told
        here.service.cancel(first[:1])
        assert await here.ended(waits) == ["succeeded"]
        assert await here.ended(first[1]) == ["succeeded"]

    asyncio.run(play(tmp_path, scene))


@pytest.mark.slow(9)
def test_an_emptied_node_is_left_at_once(tmp_path: Path) -> None:
    """On a drained node, jobs with the SDK move while they run, others restart elsewhere; without room they wait."""

    async def scene(here: Live) -> None:
        numbers = here.submit(spec("fake seconds=6"), spec("fake seconds=6 hot=no"), spec("fake seconds=6"))
        await here.until(lambda: all(here.state(n) == "running" for n in numbers))
        full = next(node for node in here.service.nodes() if len(node.jobs) == 2)
        here.service.drain(full.name, emptied=True)
        await here.until(lambda: not next(n for n in here.service.nodes() if n.name == full.name).jobs)
        await here.until(lambda: sorted(here.state(n) for n in numbers) == ["pending", "running", "running"])
        moved = [here.service.job(n) for n in full.jobs if here.state(n) == "running"]
        assert len(moved) == 1 and moved[0].places[0].partition(":")[0] != full.name
        assert (moved[0].moves, moved[0].generation) in ((1, 1), (0, 2))  # while it runs, or by a new start
        here.service.undrain(full.name)
        assert await here.ended(*numbers) == ["succeeded"] * 3

    asyncio.run(play(tmp_path, scene))


def test_an_elastic_policy_grows_a_job_only_as_far_as_its_owner_may(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        def gpus(number: int) -> float:
            return float(here.service.job(number).gpus)

        here.service.set_limits("ann", {"gpus": 2})
        (first,) = here.submit(spec("fake seconds=600", resources={"gpus": "1..4"}))
        await here.until(lambda: gpus(first) == 2)
        here.service.set_limits("ann", {"gpus": 3})
        await here.until(lambda: gpus(first) == 3)
        (second,) = here.submit(spec("fake seconds=600", resources={"gpus": "1..4"}), owner="bob")
        await here.until(lambda: gpus(second) >= 1)
        here.service.clear_limits("ann")
        here.service.cancel([second])
        await here.until(lambda: gpus(first) == 4)
        here.service.cancel([first])

    asyncio.run(play(tmp_path, scene, "drf"))


def test_nobody_waits_for_one_who_does_not_leave_while_another_place_is_free(tmp_path: Path) -> None:
    """Neither later jobs nor the job that was to get these devices wait, once other devices are free."""

    async def scene(here: Live) -> None:
        (stubborn,) = here.submit(spec("fake seconds=600 stop_s=300", grace=500))
        await here.until(lambda: here.state(stubborn) == "running")
        here.service.cancel([stubborn])
        others = here.submit(*[spec("fake seconds=600 stop_s=0.05") for _ in range(4)])
        await here.until(lambda: sum(here.state(n) == "running" for n in others) == 3)
        (waits,) = [n for n in others if here.state(n) == "pending"]
        told = await here.service.explain_now(waits)
        assert "-" not in str(told["evidence"].get("behind", [])), told
        here.service.cancel([next(n for n in others if n != waits)])
        await here.until(lambda: here.state(waits) == "running")
        assert here.state(stubborn) == "stopping"
        await here.daemon._planner_client._planner.close()  # its successor hears of it, too
        here.service.cancel([waits])
        (last,) = here.submit(spec("fake seconds=600"))
        await here.until(lambda: here.state(last) == "running")
        here.service.cancel([stubborn], at_once=True)
        assert await here.ended(stubborn) == ["cancelled"]
        (after,) = here.submit(spec("fake seconds=600"))
        await here.until(lambda: here.state(after) == "running")

    asyncio.run(play(tmp_path, scene))


def test_a_date_that_no_clock_can_count_to_holds_up_nobody(tmp_path: Path) -> None:
    """This includes dates already in the database, and a restart, when the policy is told of all jobs again."""

    async def begin(here: Live) -> None:
        here.submit(spec("fake seconds=600", resources={"gpus": 4}), spec(deadline="0001-01-01T00:00:00"))
        await here.until(lambda: here.state(1) == "running")

    async def go_on(here: Live) -> None:
        here.service.cancel([1])
        (other,) = here.submit(spec(), owner="ben")
        assert await here.ended(2, other) == ["succeeded"] * 2
        assert here.service.health_summary()["ok"]

    asyncio.run(play(tmp_path, begin))
    asyncio.run(play(tmp_path, go_on))
