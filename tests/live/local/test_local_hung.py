"""Interpreters that hang, unexpected files and programs that ignore signals delay no other job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from yard import PATIENCE_S, PYTHON, Yard, alive, wait_until

from argosy.live.backends.base import LaunchError, Phase, RunKey
from argosy.live.backends.local import zygote_pool
from argosy.live.backends.local.backend import LocalBackend
from argosy.live.backends.local.bounded_threads import BoundedThreads, TooSlow
from argosy.live.backends.local.run_registry import RunRegistry
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.daemon_log import LOGGER
from argosy.live.supervisor import process_table


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[ZygotePool]:
    made = ZygotePool(tmp_path / "zygotes", warm_limit_s=5.0)
    yield made
    made.end()


@pytest.fixture
def hung(tmp_path: Path) -> Path:
    """A file named python that never gets warm, and has a child of its own."""
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nsleep 1000 &\nsleep 1000\n")
    path.chmod(0o755)
    return path


def of(zygotes: ZygotePool) -> set[int]:
    """Return all processes of the interpreter's zygotes."""
    sessions = {record["session"] for record in warm_records(zygotes.folder)}
    return {found.pid for found in process_table.all_processes() if found.session in sessions}


@pytest.mark.slow(5)
def test_nobody_waits_for_an_interpreter_that_hangs_and_it_is_killed(warm: ZygotePool, hung: Path) -> None:
    paths = {warm.ensure(str(hung), {}, {}, None) for _ in range(100)}  # the first is still hung at the last call
    assert len(paths) == 1 and None not in paths
    wait_until(lambda: len(of(warm)) == 3)
    left = of(warm)
    wait_until(lambda: warm.tend() or not list(warm.folder.glob("*.sock")))
    wait_until(lambda: not any(map(alive, left)))
    assert warm.ensure(str(hung), {}, {}, None) is None, "it is tried again at once"
    other = warm.ensure(PYTHON, {}, dict(os.environ), None)
    assert other is not None
    wait_until(lambda: warm.tend() or '"warm": true' in other.with_suffix(".json").read_text())


@pytest.mark.slow(5)
def test_an_interpreter_that_stops_answering_later_is_killed_too(warm: ZygotePool) -> None:
    path = warm.ensure(PYTHON, {}, dict(os.environ), None)
    assert path is not None
    wait_until(lambda: warm.tend() or '"warm": true' in path.with_suffix(".json").read_text())
    (pid,) = of(warm)
    os.kill(pid, signal.SIGSTOP)
    warm.ensure(PYTHON, {}, dict(os.environ), None)
    wait_until(lambda: warm.tend() or not alive(pid))


def test_one_user_cannot_have_all_the_warm_interpreters(warm: ZygotePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_pool, "MOST", 5)
    mine = [warm.ensure(PYTHON, {"OMP_NUM_THREADS": str(n)}, dict(os.environ), None) for n in range(6)]
    assert [path is not None for path in mine] == [True] * 4 + [False] * 2
    some = {Path(str(n)): {"user": user} for n, user in enumerate(("ann", "ann", "bob"))}  # 5 among 2: 2 each
    assert [warm._has_room(user, some) for user in ("ann", "bob", "eve")] == [False, True, True]
    full = {Path(str(n)): {"user": f"user{n}"} for n in range(20)}
    assert warm._has_room("eve", full), "whoever comes late gets one, too"


def test_a_job_of_an_interpreter_that_hangs_starts_cold(make_yard: Callable[..., Yard], hung: Path) -> None:
    hung.write_text(f'#!/bin/sh\ncase "$1" in */zygote.py) sleep 1000;; esac\nexec {PYTHON} "$@"\n')
    yard = make_yard(warm_limit_s=1.0)
    yard.script("print('cold', flush=True)")
    key = yard.launch([str(hung), "job.py"])
    status = yard.end(key)
    assert status.exit_code == 0 and yard.log(key) == "cold\n"
    assert any("starts cold" in line["text"] for line in status.story), status.story


def test_polls_and_stops_go_on_while_launches_hang(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    key = yard.launch("sleep 1000", job=99)
    (run,) = yard.runs
    release = threading.Event()
    monkeypatch.setattr(yard.backend, "_launch", lambda run: release.wait())

    async def flood() -> None:
        launches = [yard.backend.launch(replace(run, key=RunKey(job, 1))) for job in range(100, 150)]
        tasks = [asyncio.create_task(launch) for launch in launches]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE_S):
            await yard.backend.stop(key, 0.0)
            while (await yard.backend.poll())[0].phase is not Phase.EXITED:
                await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        release.set()
        await asyncio.gather(*tasks)

    asyncio.run(flood())


def test_who_hangs_holds_up_only_his_own() -> None:
    async def try_it() -> list[str]:
        lanes = BoundedThreads(2, 0.5)
        outcomes: list[str] = []

        async def call(user: str, seconds: float) -> None:
            try:
                await lanes.run(user, time.sleep, seconds)
                outcomes.append(f"{user} done")
            except TooSlow:
                outcomes.append(f"{user} too slow")

        await asyncio.gather(*(call("eve", 2.0) for _ in range(4)), call("ann", 0.01))
        assert lanes.busy("eve") and not lanes.busy("ann")
        return outcomes

    assert asyncio.run(try_it()) == ["ann done", *["eve too slow"] * 4]


def test_what_is_no_run_is_ignored_and_told_once(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    names = (".nfs0001", "1-2-3", "x-1", "7")
    for name in names:
        (yard.home / "local" / "runs" / name).touch()
    LOGGER.propagate, before = True, LOGGER.propagate
    try:
        with caplog.at_level(logging.WARNING):
            registry = RunRegistry(yard.home / "local" / "runs")
            assert registry.runs() == registry.runs() == []
    finally:
        LOGGER.propagate = before
    told = {id(record): record.fields["path"] for record in caplog.records if "ignored" in record.message}
    assert sorted(told.values()) == sorted(str(registry.path / name) for name in names)
    key = yard.launch("true")
    assert yard.end(key).exit_code == 0
    assert all((registry.path / name).exists() for name in names)


STUBBORN = """trap '' TERM
setsid sh -c 'trap "" TERM HUP; while true; do sleep 0.2; done' &
echo $! ready
while true; do sleep 0.2; done"""


@pytest.mark.parametrize("stopped", [False, True])
def test_after_the_grace_all_are_killed(yard: Yard, stopped: bool) -> None:
    """These are processes that ignore SIGTERM, that have left the session, and that were stopped."""
    key = yard.launch(STUBBORN)
    runaway = int(yard.wait_log(key, "ready").split()[0])
    worker = yard.workers(key)[0]
    if stopped:
        for pid in (runaway, worker):
            os.kill(pid, signal.SIGSTOP)
    yard.stop(key, 600.0)
    yard.wait(key, lambda status: status.phase is Phase.STOPPING)
    yard.stop(key, 1.0)  # a later call can only shorten it
    yard.stop(key, 600.0)
    assert yard.end(key).exit_code is not None
    assert not alive(worker) and not alive(runaway)


@pytest.mark.slow(10)
def test_a_supervisor_that_hangs_is_killed_with_all_it_has(yard: Yard) -> None:
    key = yard.launch(STUBBORN)
    runaway = int(yard.wait_log(key, "ready").split()[0])
    os.kill(yard.record(key, "supervisor")["pid"], signal.SIGSTOP)
    yard.stop(key, 0.0)
    yard.end(key)
    wait_until(lambda: not alive(runaway))


@pytest.mark.slow(10)
def test_a_run_ends_although_nobody_reports_the_ends_of_its_workers(yard: Yard) -> None:
    key = yard.launch(STUBBORN)
    runaway = int(yard.wait_log(key, "ready").split()[0])
    os.kill(yard.record(key, "supervisor")["spawner"], signal.SIGSTOP)
    yard.stop(key, 0.0)
    assert "did not stop in time" in yard.end(key).message
    assert not alive(runaway)


def warm_records(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def test_the_interpreter_of_a_waiting_job_gets_warm_before_it_is_launched(yard: Yard, tmp_path: Path) -> None:
    backend = LocalBackend(yard.home, zygotes=tmp_path / "zygotes")
    folder = backend.zygotes.folder
    spec = {"run": yard.script("pass"), "workdir": str(yard.work)}
    for other in ({**spec, "run": "sh x.sh"}, {**spec, "run": "no-such-command"}, {**spec, "workdir": "/x"}):
        with contextlib.suppress(LaunchError):  # what is wrong with a job is told when it starts
            asyncio.run(backend.prepare(other, None))
    assert warm_records(folder) == []
    asyncio.run(backend.prepare(spec, None))
    (record,) = warm_records(folder)
    assert record["interpreter"] == PYTHON
    wait_until(lambda: backend.zygotes.tend() or all(one["warm"] for one in warm_records(folder)))
    asyncio.run(backend.close())
    wait_until(lambda: not process_table.is_same(int(str(record["pid"])), int(str(record["started"]))))
    again = LocalBackend(yard.home, zygotes=folder)  # the next daemon begins where this one ended
    asyncio.run(again.prepare(None, None))
    assert {one["interpreter"] for one in warm_records(folder)} == {PYTHON, sys.executable}
    asyncio.run(again.close())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_an_interpreter_is_warmed_as_the_user_of_the_job(yard: Yard, tmp_path: Path) -> None:
    user = pwd.getpwnam("nobody")
    backend = LocalBackend(yard.home, zygotes=tmp_path / "zygotes")
    script = Path("/tmp") / f"argosy-test-{os.getpid()}" / "python"
    script.parent.mkdir()
    try:
        script.write_text("#!/bin/sh\nexec sleep 1000\n")
        script.chmod(0o755)
        script.parent.chmod(0o755)
        asyncio.run(backend.prepare({"run": f"{script} x.py", "workdir": "/"}, user.pw_name))
        (record,) = warm_records(backend.zygotes.folder)
        assert record["user"] == "nobody" and process_table.owner(int(str(record["pid"]))) == user.pw_uid
        asyncio.run(backend.close())
        wait_until(lambda: not process_table.is_same(int(str(record["pid"])), int(str(record["started"]))))
    finally:
        shutil.rmtree(script.parent)
