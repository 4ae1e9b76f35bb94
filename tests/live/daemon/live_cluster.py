"""A small live cluster in a test: daemon, fake backend, random or calm planner, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from random_planner import RandomPlanner

from argosy.cluster.cluster import Cluster
from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon.daemon import Daemon
from argosy.live.home import Home
from argosy.live.spec import JobSpec

CLUSTER = Cluster.uniform(2, 2)
LIMIT_S = 60.0


def spec(run: str = "fake seconds=0.2", **more: Any) -> JobSpec:
    return JobSpec.model_validate({"run": run, "retry_wait": 0.05, "checkpoint": {"every": 0.1}, **more})


class Live:
    def __init__(self, daemon: Daemon, backend: FakeBackend, planner: RandomPlanner) -> None:
        self.daemon, self.backend, self.planner = daemon, backend, planner

    @property
    def service(self):  # type: ignore[no-untyped-def]
        return self.daemon.service

    def submit(self, *specs: JobSpec, owner: str = "ann") -> list[int]:
        return self.service.submit(specs, owner, "/tmp")

    def state(self, number: int) -> str:
        return self.service.job(number).state.value

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        """Wait for a condition; a busy machine may take its time."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not true():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            jobs = [(j.id, j.state.value, j.why, j.message) for j in self.service.jobs()]
            health = self.service.health_summary()
            raise AssertionError(f"waited in vain for {what or true}: {jobs}, {health}") from None

    async def ended(self, *numbers: int) -> list[str]:
        await self.until(lambda: all(self.service.job(n).state.ended for n in numbers), f"the end of {numbers}")
        return [self.state(n) for n in numbers]


@asynccontextmanager
async def live(
    home: Path,
    *,
    calm: bool = True,
    seed: int = 0,
    cluster: Cluster = CLUSTER,
    backend: FakeBackend | None = None,
    planner: RandomPlanner | None = None,
    **options: Any,
) -> AsyncIterator[Live]:
    backend = backend or FakeBackend(cluster.nodes)
    planner = planner or RandomPlanner(cluster, seed, calm)
    daemon = Daemon(
        Home(home), cluster, "random", backend, planner=planner.attach, poll_s=0.02, switch_users=False, **options
    )
    task = asyncio.create_task(daemon.run())
    ready = asyncio.create_task(daemon.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
    ready.cancel()
    if task.done():
        task.result()
    try:
        yield Live(daemon, backend, planner)
    finally:
        daemon.stop()
        await asyncio.wait_for(task, LIMIT_S)
        assert not backend.violations, backend.violations
        assert daemon.service.health.faults == 0
