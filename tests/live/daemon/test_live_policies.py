"""Every registered policy can drive the daemon, on the fake backend and a clock that goes on between its steps.

The policy sits in the daemon's own process here; `test_live_real_planner.py` has it where it belongs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from live_cluster import Live, spec

from argosy.cluster.cluster import Cluster, Node
from argosy.live.backends.base import RunKey
from argosy.live.backends.fake import FakeBackend
from argosy.live.clock import Clock
from argosy.live.daemon.daemon import Daemon
from argosy.live.home import Home
from argosy.live.planner.messages import Decision, Setup, Snapshot, Told, Update
from argosy.live.planner.planner import Planner
from argosy.policies.base import POLICIES

CLUSTER = Cluster((Node("n0", "v100", 4, 32.0), Node("n1", "p100", 4, 32.0)))
QUICK = ("fifo", "tiresias-las", "gandiva")


class Inside:
    """The planner and its policy, in this process."""

    def __init__(self, policy: str, snapshot: Callable[[], Snapshot]) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._inner: Planner | None = None

    async def plan(self, update: Update) -> Decision:
        if self._inner is None:
            self._inner = Planner(Setup(CLUSTER, self._policy), self._snapshot())
            update = Update(update.now_s, ask=True)
        return self._inner.update(update)

    async def why(self, jobs: Sequence[int]) -> dict[int, Told]:
        return self._inner.why(jobs) if self._inner is not None else {}

    async def close(self) -> None:
        pass


class Ticking:
    """A clock that goes on by a second whenever the event loop comes round to it, however busy the machine is."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.now_s += 1.0


@pytest.mark.parametrize(
    "policy", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in POLICIES]
)
def test_it_drives_the_daemon(tmp_path: Path, policy: str) -> None:
    async def scene() -> None:
        clock = Ticking()
        ticks = asyncio.create_task(clock.tick())
        backend = FakeBackend(CLUSTER.nodes, clock=clock)
        daemon = Daemon(
            Home(tmp_path),
            CLUSTER,
            policy,
            backend,
            planner=lambda snapshot: Inside(policy, snapshot),
            poll_s=0.004,
            clock=Clock(monotonic=clock),
            switch_users=False,
        )
        task = asyncio.create_task(daemon.run())
        await daemon.ready.wait()
        here = Live(daemon, backend, None)  # type: ignore[arg-type]
        try:
            kinds = [
                spec(
                    "fake seconds=200", resources={"gpus": "1..4"}, expected_duration=250, model="resnet50", retries=3
                ),
                spec("fake seconds=300 hot=false", resources={"gpus": 2}, expected_duration=250, retries=3),
                spec("fake seconds=100", resources={"gpus": 0.5}, retries=3),
                spec("fake seconds=200 crash_at=50", resources={"gpus": 1}, priority=80, retries=3),
            ]
            numbers = here.submit(*(kinds * 4))
            await here.until(lambda: any(here.state(n) == "running" for n in numbers))
            running = next(n for n in numbers if here.state(n) == "running")
            key = RunKey(running, here.service.job(running).generation)
            if key in backend.runs and backend.runs[key].alive:
                backend.kill(key)
            assert set(await here.ended(*numbers)) == {"succeeded"}
            assert here.service.health_summary()["ok"], here.service.health_summary()
        finally:
            daemon.stop()
            await asyncio.wait_for(task, 60)
            ticks.cancel()
        assert not backend.violations and daemon.service.health.faults == 0

    asyncio.run(scene())
