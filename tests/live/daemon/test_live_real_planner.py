"""The daemon with the real planner process: a registered policy drives it, and its reasons reach people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from live_cluster import CLUSTER, LIMIT_S, Live, spec

from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon import Daemon
from argosy.live.home import Home


async def play(folder: Path, scene: Callable[[Live], Awaitable[None]]) -> None:
    """A scene with a daemon that really asks a policy."""
    backend = FakeBackend(CLUSTER.nodes)
    daemon = Daemon(Home(folder), CLUSTER, "fifo", backend, poll_s=0.05, switch_users=False)
    task = asyncio.create_task(daemon.run())
    await asyncio.wait_for(daemon.ready.wait(), LIMIT_S)
    try:
        await scene(Live(daemon, backend, None))  # type: ignore[arg-type]
    finally:
        daemon.stop()
        await asyncio.wait_for(task, LIMIT_S)
    assert not backend.violations


def test_a_real_policy_drives_the_daemon(tmp_path: Path) -> None:
    async def scene(here: Live) -> None:
        first = here.submit(*[spec("fake seconds=6", resources={"gpus": 2}) for _ in range(2)])
        await here.until(lambda: all(here.state(n) == "running" for n in first))
        (waits,) = here.submit(spec("fake seconds=0.2"))
        await here.until(lambda: waits in here.daemon.keeper.tidings.known)
        told = await here.service.explain_now(waits)
        assert told["category"] not in ("new", "policy-failed") and told["text"], told
        here.service.cancel(first[:1])
        assert await here.ended(waits) == ["succeeded"]
        assert await here.ended(first[1]) == ["succeeded"]

    asyncio.run(play(tmp_path, scene))


def test_an_emptied_node_is_left_at_once(tmp_path: Path) -> None:
    """Who uses the SDK moves while it runs, who does not is stopped and starts elsewhere; without room one waits."""

    async def scene(here: Live) -> None:
        numbers = here.submit(spec("fake seconds=6"), spec("fake seconds=6 hot=no"), spec("fake seconds=6"))
        await here.until(lambda: all(here.state(n) == "running" for n in numbers))
        full = next(node for node in here.service.nodes() if len(node.jobs) == 2)
        here.service.drain(full.name, "op", emptied=True)
        await here.until(lambda: not next(n for n in here.service.nodes() if n.name == full.name).jobs)
        await here.until(lambda: sorted(here.state(n) for n in numbers) == ["pending", "running", "running"])
        moved = [here.service.job(n) for n in full.jobs if here.state(n) == "running"]
        assert len(moved) == 1 and moved[0].places[0].partition(":")[0] != full.name
        assert (moved[0].moves, moved[0].generation) in ((1, 1), (0, 2))  # while it runs, or by a new start
        here.service.undrain(full.name)
        assert await here.ended(*numbers) == ["succeeded"] * 3

    asyncio.run(play(tmp_path, scene))
