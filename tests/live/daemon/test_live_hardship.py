"""Faults around the daemon: a full disk, a clock that jumps, a second daemon, signals, a backend that hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from live_cluster import CLUSTER, Live, live, spec
from test_live_kills import daemon_parent, gone, query, start

from argosy.live.api import create_app
from argosy.live.backends.base import RunKey, Status
from argosy.live.backends.fake import FakeBackend
from argosy.live.clock import Clock
from argosy.live.errors import AlreadyServed, Conflict, NoSpace
from argosy.live.home import Home


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    """A home on a disk of 4 MiB; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True)
    if done.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        for size in (65536, 512):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    if size == 512:
                        raise
                    break
    return filler


@pytest.mark.slow(5)
def test_a_full_disk(small_home: Path) -> None:
    """On a full disk new jobs are refused and running jobs go on; when there is room, everything continues."""

    async def scene() -> None:
        backend = FakeBackend(CLUSTER.nodes, logs=False)
        async with live(small_home, backend=backend, min_free_bytes=256 * 1024) as here:
            numbers = here.submit(*[spec("fake seconds=0.4") for _ in range(6)])
            await here.until(lambda: here.state(numbers[0]) == "running")
            filler = fill(small_home)
            with pytest.raises(NoSpace):
                here.submit(spec())
            await here.until(lambda: not here.service.health_summary()["ok"])
            await here.until(lambda: not any(run.alive for run in backend.runs.values()), "the runs to end")
            assert here.service.job(numbers[5]).state.value in ("pending", "starting", "running", "succeeded")
            filler.unlink()
            assert await here.ended(*numbers) == ["succeeded"] * 6
            assert [here.service.job(n).failures for n in numbers] == [0] * 6
            await here.until(lambda: here.service.health_summary()["ok"])
            here.submit(spec())

    asyncio.run(scene())


def test_the_wall_clock_may_jump(tmp_path: Path) -> None:
    """The clock jumps a year forward and ten years back: durations, limits and retries are not affected."""
    shift = [0.0]

    async def scene(here: Live) -> None:
        (limited,) = here.submit(spec("fake seconds=100", max_duration=1000, time_budget=2000))
        (retried,) = here.submit(spec("fake seconds=0.3 crash_at=0.1", retries=1, retry_wait=0.3))
        await here.until(lambda: here.state(limited) == "running")
        shift[0] = 3e7
        await asyncio.sleep(0.3)
        shift[0] = -3e8
        assert await here.ended(retried) == ["succeeded"]
        assert here.state(limited) == "running"
        for entry in here.service.history():
            assert 0 < entry["run_s"] < 1000 and 0 <= entry["wait_s"] < 1000

    async def whole() -> None:
        clock = Clock(wall=lambda: time.time() + shift[0])
        async with live(tmp_path, clock=clock) as here:
            await scene(here)

    asyncio.run(whole())


def test_a_second_daemon_refuses(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path) as here:
            (number,) = here.submit(spec("fake seconds=0.3"))
            with pytest.raises(AlreadyServed, match=str(os.getpid())):
                async with live(tmp_path):
                    pass
            assert await here.ended(number) == ["succeeded"]

    asyncio.run(scene())


class Deaf(FakeBackend):
    """A backend that does not answer for a while."""

    deaf = False

    async def poll(self) -> list[Status]:
        if self.deaf:
            raise ConnectionError("no answer")
        return list(await super().poll())


def test_a_backend_that_does_not_answer_loses_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        backend = Deaf(CLUSTER.nodes)
        async with live(tmp_path, backend=backend) as here:
            (number,) = here.submit(spec("fake seconds=0.3"))
            await here.until(lambda: here.state(number) == "running")
            backend.deaf = True
            await here.until(lambda: "no answer" in str(here.service.health_summary()["problems"]))
            await asyncio.sleep(0.5)
            assert here.state(number) == "running"
            backend.deaf = False
            assert await here.ended(number) == ["succeeded"] and here.service.job(number).generation == 1
            await here.until(lambda: here.service.health_summary()["ok"])

    asyncio.run(scene())


def test_a_run_that_should_be_over_is_killed(tmp_path: Path) -> None:
    """A run that counted as lost reappears: it is killed, and its device is not given out before that."""

    async def scene(here: Live) -> None:
        numbers = here.submit(*[spec("fake seconds=30") for _ in range(4)])
        await here.until(lambda: all(here.state(n) == "running" for n in numbers))
        key = RunKey(numbers[0], 1)
        here.planner.closed = {"n0", "n1"}  # nothing starts for now
        hidden = here.backend.runs.pop(key)
        await here.until(lambda: here.state(numbers[0]) != "running", "the loss to be noticed")
        here.backend.runs[key] = hidden
        await here.until(lambda: key not in here.backend.runs, "the stray to be killed and forgotten")
        here.planner.closed = set()
        await here.until(lambda: here.state(numbers[0]) == "running")
        assert here.service.job(numbers[0]).generation == 2
        with pytest.raises(Conflict, match="has ended"):
            here.service.report(numbers[0], 1, {"progress": 1.0})

    asyncio.run(_in(tmp_path, scene))


async def _in(home: Path, scene) -> None:  # type: ignore[no-untyped-def]
    async with live(home) as here:
        await scene(here)


def test_sigterm_ends_the_daemon_and_not_the_jobs(tmp_path: Path) -> None:
    with daemon_parent(tmp_path, 6) as process:
        daemon = start(process)
        state = tmp_path / "state"
        end = time.monotonic() + 60
        while not (
            state.exists()
            and query(state, "SELECT name FROM sqlite_master WHERE name = 'runs'")
            and query(state, "SELECT * FROM runs")
        ):
            assert time.monotonic() < end, (tmp_path / "errors").read_text()
            time.sleep(0.05)
        os.kill(daemon, signal.SIGTERM)
        gone(process)
        home = Home(tmp_path / "home")
        home.lock()  # it has let go
        home.unlock()
        assert not (tmp_path / "home" / "address").exists()


def test_the_api_is_served(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path, app=create_app) as here:
            address, token = Home(tmp_path).read(Home(tmp_path).address), Home(tmp_path).read(Home(tmp_path).token)
            assert address == here.daemon.address and address.startswith("http://127.0.0.1:")
            (number,) = here.submit(spec())
            async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get(f"/v1/jobs/{number}")).status_code == 401
                answer = await client.get(f"/v1/jobs/{number}", headers={"Authorization": f"Bearer {token}"})
                assert answer.status_code == 200 and answer.json()["id"] == number
            assert await here.ended(number) == ["succeeded"]
        assert not Home(tmp_path).address.exists()

    asyncio.run(scene())


class Babbling(FakeBackend):
    """A backend whose jobs report values that no job should report."""

    async def poll(self) -> list[Status]:
        metrics = {"loss": 1e400, "x": object()}
        nonsense = {"progress": 10**400, "loss": float("nan"), "\ud800": "\udfff", "metrics": metrics}
        saved = ({"path": "gen-1/\ud800", "step": 10**30}, {"path": "gen-1/ok", "step": 1, "bytes": 10**30})
        deep: dict[str, object] = {}
        for _ in range(50):
            deep = {"in": deep}
        return [
            replace(
                status,
                report={**nonsense, "deep": deep} if status.key.job % 2 else nonsense,
                message="\ud800" * 5000,
                story=({"text": "\udcff"}, {}),
                overheads=({"kind": "\ud800", "seconds": 10**400},),
                checkpoints=saved,
            )
            for status in await super().poll()
        ]


def test_what_jobs_say_can_not_harm(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path, backend=Babbling(CLUSTER.nodes)) as here:
            numbers = here.submit(spec(), spec())
            assert await here.ended(*numbers) == ["succeeded"] * 2
            assert here.service.job(numbers[1]).report == {
                "progress": None,
                "loss": None,
                "?": "?",
                "metrics": {"loss": None, "x": None},
            }
            assert [c.path for c in here.service.store.checkpoints(numbers[0])] == ["gen-1/ok"]

    asyncio.run(scene())
