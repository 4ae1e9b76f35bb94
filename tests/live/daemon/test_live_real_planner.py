"""The daemon with the real planner process: a registered policy drives it, and its reasons reach people."""

from __future__ import annotations

import asyncio
from pathlib import Path

from live_cluster import CLUSTER, LIMIT_S, Live, spec

from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon import Daemon
from argosy.live.home import Home


def test_a_real_policy_drives_the_daemon(tmp_path: Path) -> None:
    async def scene() -> None:
        backend = FakeBackend(CLUSTER.nodes)
        daemon = Daemon(Home(tmp_path), CLUSTER, "fifo", backend, poll_s=0.05, switch_users=False)
        task = asyncio.create_task(daemon.run())
        await asyncio.wait_for(daemon.ready.wait(), LIMIT_S)
        here = Live(daemon, backend, None)  # type: ignore[arg-type]
        try:
            first = here.submit(*[spec("fake seconds=6", resources={"gpus": 2}) for _ in range(2)])
            await here.until(lambda: all(here.state(n) == "running" for n in first))
            (waits,) = here.submit(spec("fake seconds=0.2"))
            await here.until(lambda: waits in daemon.keeper.tidings.known)
            told = await here.service.explain_now(waits)
            assert told["category"] not in ("new", "policy-failed") and told["text"], told
            here.service.cancel(first[:1])
            assert await here.ended(waits) == ["succeeded"]
            assert await here.ended(first[1]) == ["succeeded"]
        finally:
            daemon.stop()
            await asyncio.wait_for(task, LIMIT_S)
        assert not backend.violations

    asyncio.run(scene())
