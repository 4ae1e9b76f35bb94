"""The health endpoints: liveness, readiness, and what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from live_cluster import CLUSTER, Live, live

from argosy.live.api import create_app
from argosy.live.backends.base import Status
from argosy.live.backends.fake import FakeBackend
from argosy.live.daemon import health
from argosy.live.daemon.health import PASS_LIMIT_S, DaemonHealth


class Hanging(FakeBackend):
    """A backend that stops answering on request."""

    answering = True

    async def poll(self) -> Sequence[Status]:
        while not self.answering:
            await asyncio.sleep(0.01)
        return await super().poll()


async def probe(running: Live) -> tuple[int, int, dict[str, object]]:
    """Return the statuses of /healthz and /readyz, and the body of /v1/health."""
    token = running.daemon.home.token.read_text().strip()
    async with httpx.AsyncClient(base_url=running.daemon.address, trust_env=False, timeout=60) as client:
        alive, ready = await client.get("/healthz"), await client.get("/readyz")
        told = await client.get("/v1/health", headers={"authorization": f"Bearer {token}"})
    return alive.status_code, ready.status_code, told.json()


def test_health_fails_when_passes_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PASS_LIMIT_S", 1.0)

    async def play() -> None:
        backend = Hanging(CLUSTER.nodes)
        async with live(tmp_path, backend=backend, app=create_app) as running:
            await running.until(lambda: running.service.health.passes > 2)
            assert (await probe(running))[:2] == (200, 200)
            backend.answering = False
            await running.until(lambda: not running.service.health_summary()["ok"], "the passes to be missed")
            alive, ready, told = await probe(running)
            assert (alive, ready) == (200, 503)
            assert told["ok"] is False
            assert "no pass for" in str(told["problems"])
            backend.answering = True
            await running.until(lambda: running.service.health_summary()["ok"], "the passes to go on")
            assert (await probe(running))[1] == 200

    asyncio.run(play())


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    async def play() -> None:
        async with live(tmp_path, app=create_app) as running:
            await running.until(lambda: running.service.health.passes > 2)
            database = running.service.store._db
            database.execute("ALTER TABLE meta RENAME TO gone")  # nothing awaits in between, so no pass sees it
            problems = running.service.health_summary()["problems"]
            database.execute("ALTER TABLE gone RENAME TO meta")
            assert "the database does not answer" in str(problems)
            assert running.service.health_summary()["ok"]

    asyncio.run(play())


@pytest.mark.parametrize("field", ["planner_problem", "backend_problem", "disk_problem", "fault"])
def test_every_problem_counts(field: str) -> None:
    found = DaemonHealth(last_pass_s=100.0)
    assert found.problems(100.0 + PASS_LIMIT_S / 2) == []
    setattr(found, field, "it is broken")
    assert found.problems(100.0) == ["it is broken"]
    assert len(found.problems(101.0 + PASS_LIMIT_S)) == 2
    assert DaemonHealth(began_s=0.0).problems(1.0) == ["no pass has been made yet"]
    assert DaemonHealth().problems(0.0) == [], "without a daemon there are no passes to miss"
