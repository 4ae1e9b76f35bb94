"""A small cluster on a clock of its own whose policy is switched: `python guarded_cluster.py HOME` is killed in it.

The policy `test-idle` starts nothing, so that a guard must notice it. The planner is in the same process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.shadow import Inline, settle

from argosy.cluster.cluster import Cluster
from argosy.live.backends.fake import FakeBackend
from argosy.live.clock import Clock
from argosy.live.daemon.audit import DAEMON
from argosy.live.daemon.daemon import Daemon
from argosy.live.daemon.promotion import Promotion
from argosy.live.home import Home
from argosy.live.planner.messages import Setup
from argosy.live.spec import JobSpec
from argosy.policies.base import POLICIES, Policy, Sizes, register

CLUSTER = Cluster.uniform(1, 2)
IDLE, FORMER, GUARD, FOR_S = "test-idle", "srsf", 0.1, 1800.0
JOB = {"run": "fake seconds=60", "resources": {"gpus": 1}, "expected_duration": 60, "saves": "step"}


class Idle(Policy):
    """Gives no job a GPU."""

    uses = frozenset({"demand"})
    preemptive = True

    def rank(self, view: Any) -> Any:
        return view.jobs.gpus

    def size(self, view: Any) -> Any:
        return Sizes(np.zeros(len(view.jobs.gpus), np.int64))


@contextmanager
def idle_exists() -> Iterator[None]:
    """Register the policy in this context only: other tests run through all policies."""
    register(IDLE, "starts nothing")(Idle)
    try:
        yield
    finally:
        POLICIES._things.pop(IDLE)


class Guarded:
    """A daemon that makes its passes when the test says so."""

    def __init__(self, daemon: Daemon, now: list[float]) -> None:
        self.daemon, self._now = daemon, now

    @property
    def promotion(self) -> Promotion:
        found = self.daemon.service.promotion
        assert found is not None
        return found

    async def promote(self, policy: str) -> None:
        await self.promotion.promote(policy, GUARD, FOR_S, DAEMON)

    async def run(self, seconds: float) -> str:
        """Let time pass until the guard has ended, or for so long; return the phase."""
        until = self._now[0] + seconds
        while self._now[0] < until and self.phase in ("", "guarded"):
            await self.rest(10.0)
        return self.phase

    async def rest(self, seconds: float) -> None:
        """Let so much time pass, whatever happens."""
        until = self._now[0] + seconds
        while self._now[0] < until:
            self._now[0] += 10.0
            await settle(self.daemon)

    @property
    def phase(self) -> str:
        return "" if self.promotion.now is None else self.promotion.now.phase


@asynccontextmanager
async def guarded(home: Path, begin_s: float = 0.0) -> AsyncIterator[Guarded]:
    now = [begin_s]
    clock = Clock(lambda: now[0], lambda: 1.7e9 + now[0], "one boot")
    backend = FakeBackend(CLUSTER.nodes, clock=lambda: now[0], logs=False)
    daemon = Daemon(
        Home(home),
        CLUSTER,
        FORMER,
        backend,
        planner=lambda snapshot: Inline(Setup(CLUSTER, daemon.policy), snapshot),
        clock=clock,
        switch_users=False,
        min_free_bytes=0,
        poll_s=0.0,
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(idle_exists())
        await daemon._open(stack)
        yield Guarded(daemon, now)


async def die_while_it_falls_back(home: Path) -> None:
    """Be killed when the fall-back is in the database, and the former policy has not taken over yet."""

    async def die(policy: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async with guarded(home) as one:
        one.daemon.service.submit([JobSpec.model_validate(JOB)] * 8, "ann", "/tmp")
        await settle(one.daemon)
        await one.promote(IDLE)
        one.promotion.switch = die
        await one.run(FOR_S)


if __name__ == "__main__":
    asyncio.run(die_while_it_falls_back(Path(sys.argv[1])))
