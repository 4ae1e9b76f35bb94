"""Users choose the interpreter, so its claims about processes are checked: other users' are never signalled."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from strangers import ANN, BEN, SYSTEM_PYTHON, as_root
from yard import Yard, alive

from argosy.live.backends.base import Phase, RunKey, Status
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.supervisor import process_table
from argosy.live.supervisor.cleanup import clean_up

pytestmark = as_root
HOSTILE = Path(__file__).with_name("hostile_spawner.py")


@pytest.fixture
def shared(make_yard: Callable[..., Yard], place: Path) -> Iterator[Yard]:
    yard = make_yard(place / "home")
    yard.zygotes = yard.home / "zygotes"  # not to be shared with other tests
    yard.backend = yard.another_backend()
    yield yard
    ZygotePool(yard.zygotes).end()
    yard.clear()


def start_as(user: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
    account = pwd.getpwnam(user)
    return subprocess.Popen(
        words,
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        start_new_session=True,
        env={**os.environ, **env},
    )


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of another user, which leads a session."""
    found = start_as(BEN, "sleep", "600")
    yield found
    found.kill()
    found.wait()


def lies(yard: Yard, place: Path, **says: object) -> RunKey:
    python = place / "python3"
    shutil.copy(HOSTILE, place / "hostile.py")
    (place / "says").write_text(json.dumps(says))
    python.write_text(f'#!/bin/sh\nexec {SYSTEM_PYTHON} {place}/hostile.py "$@"\n')
    python.chmod(0o755)
    return yard.launch(f"{python} train.py", user=ANN, workdir=place)


def fails(yard: Yard, key: RunKey) -> Status:
    status = yard.end(key)
    assert status.exit_code == 1 and "python3" in status.message, status
    assert "Traceback" not in yard.complaints(key)
    return status


@pytest.mark.parametrize("role", ["spawner", "worker"])
def test_a_stranger_that_is_called_its_own_lives_on(
    shared: Yard, place: Path, victim: subprocess.Popen[bytes], role: str
) -> None:
    status = fails(shared, lies(shared, place, **{role: victim.pid}))
    assert f"process {victim.pid}" in status.message
    assert victim.poll() is None


@pytest.mark.parametrize("role", ["spawner", "worker"])
def test_neither_is_the_first_process_of_the_machine(shared: Yard, place: Path, role: str) -> None:
    status = fails(shared, lies(shared, place, **{role: 1}))
    assert "process 1" in status.message and alive(1)


@pytest.mark.parametrize(
    "raw",
    [
        "no message\n",
        "[1]\n",
        '{"op": 5}\n',
        '{"op": "started"}\n',
        '{"op": "started", "id": "x", "pid": 1}\n',
        '{"op": "started", "id": 0, "pid": -1}\n',
        '{"op": "started", "id": 0, "pid": 1e9}\n',
        '{"op": "ended", "id": 0}\n',
        '{"op": "ended", "id": 0, "code": "0"}\n',
        '{"op": "unheard of"}\n',
        "[" * 50_000 + "\n",
        "\xff\xfe\n",
    ],
)
def test_what_is_no_message_fails_the_job_and_nothing_else(shared: Yard, place: Path, raw: str) -> None:
    message = fails(shared, lies(shared, place, raw=raw)).message
    assert "sent an invalid message" in message or "sent a line that is too long" in message


def test_a_line_without_end_and_a_flood_of_descriptors_exhaust_nobody(shared: Yard, place: Path) -> None:
    key = lies(shared, place, raw="x" * 60_000, times=1000)
    assert "a line that is too long" in fails(shared, key).message


@pytest.mark.slow
def test_one_that_tells_no_end_can_be_cancelled(shared: Yard, place: Path) -> None:
    key = lies(shared, place, worker=2**30)  # no such process: it may have died already
    shared.wait(key, lambda status: status.phase is Phase.RUNNING)
    shared.stop(key, 0.0)
    status = shared.end(key)
    assert status.exit_code == -signal.SIGKILL and "did not stop" in status.message


def test_a_job_that_calls_itself_like_another_run_is_not_taken_for_it(victim: subprocess.Popen[bytes]) -> None:
    other = start_as(BEN, "sleep", "600", ARGOSY_RUN="ours-1-1")
    found = process_table.process(victim.pid)
    assert found is not None
    try:
        mine = start_as(ANN, "sleep", "600", ARGOSY_RUN="ours-1-1")
        leaders = [{"pid": victim.pid, "started": found.started}]
        clean_up({}, leaders, "ours-1-1", pwd.getpwnam(ANN).pw_uid)
        assert mine.wait(10) == -signal.SIGKILL
        assert other.poll() is None and victim.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_thousand_connections_do_not_end_the_run(shared: Yard, place: Path) -> None:
    script = place / "flood.py"
    script.write_text(
        "import os, socket, resource, time\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
        "lines = []\n"
        "for _ in range(3000):\n"
        "    lines.append(socket.socket(socket.AF_UNIX)); lines[-1].connect(os.environ['ARGOSY_CONTROL'])\n"
        "    try: lines[-1].sendall(b'x' * 1000)\n"
        "    except OSError: pass\n"
        "print('flooded', flush=True)\n"
    )
    key = shared.launch(["/bin/sh", "-c", f"{SYSTEM_PYTHON} {script}"], user=ANN, workdir="/")
    status = shared.end(key)
    assert status.phase is Phase.EXITED and status.exit_code == 0, shared.log(key)
