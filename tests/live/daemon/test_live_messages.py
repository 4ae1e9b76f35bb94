"""An error without a message is reported by its type."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from live_cluster import CLUSTER, live, spec

from argosy.live.backends.base import Run, Status
from argosy.live.backends.fake import FakeBackend


class Mute(FakeBackend):
    """A backend that fails with an empty message."""

    polls_fail = launches_fail = False

    async def poll(self) -> Sequence[Status]:
        if self.polls_fail:
            raise TimeoutError
        return await super().poll()

    async def launch(self, run: Run) -> None:
        if self.launches_fail:
            raise ConnectionResetError
        await super().launch(run)


def test_a_backend_that_fails_without_a_message_is_told_by_its_kind(tmp_path: Path) -> None:
    async def play() -> None:
        backend = Mute(CLUSTER.nodes)
        async with live(tmp_path, backend=backend) as running:
            backend.polls_fail = True
            problem = running.service.health
            await running.until(lambda: problem.backend_problem == "fake: TimeoutError")
            backend.polls_fail, backend.launches_fail = False, True
            (number,) = running.submit(spec())
            await running.until(lambda: problem.backend_problem == f"launch of job {number}: ConnectionResetError")
            await running.until(lambda: "ConnectionResetError" in running.service.job(number).message)

    asyncio.run(play())
