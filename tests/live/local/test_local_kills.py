"""Tests that really kill: supervisors, spawners, escaped children; and daemons that come back and find their runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from yard import PYTHON, SDK_WORKER, Yard, alive, kill, wait_until

from argosy.live.backends.base import Phase, RunKey
from argosy.live.backends.local.supervisor_client import call
from argosy.live.supervisor import process_table
from argosy.live.supervisor.cgroups import Cgroup
from argosy.live.supervisor.records import RunFolder, write_record

# Leaves a grandchild in a session of its own, with its output closed, whose parent is gone: as far away as one can get.
ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        open('escaped', 'w').write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists('escaped') or not open('escaped').read(): time.sleep(0.01)
print('escaped', flush=True)
"""


def escaped(yard: Yard) -> int:
    return int((yard.work / "escaped").read_text())


@pytest.mark.parametrize("warm", [True, False])
def test_an_escaped_grandchild_ends_with_its_run(yard: Yard, warm: bool) -> None:
    command = yard.script(ESCAPE)
    key = yard.launch(command if warm else f"{command} ; exit 0")
    assert yard.end(key).exit_code == 0
    wait_until(lambda: not alive(escaped(yard)))


@pytest.mark.parametrize("grace_s", [0.0, 0.3])
def test_a_stop_reaches_it_too(yard: Yard, grace_s: float) -> None:
    key = yard.launch(yard.script(ESCAPE + "import signal\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)"))
    yard.wait_log(key, "escaped")
    assert alive(escaped(yard))
    yard.stop(key, grace_s)
    assert yard.end(key).exit_code == -signal.SIGKILL
    wait_until(lambda: not alive(escaped(yard)))


@pytest.mark.parametrize("warm", [True, False])
def test_a_killed_supervisor_leaves_nobody_behind_and_its_end_is_told(yard: Yard, warm: bool) -> None:
    command = yard.script(ESCAPE + "print('step 5', flush=True)\ntime.sleep(600)")
    key = yard.launch(command if warm else f"exec {command}", progress={"pattern": r"step (\d+)"})
    yard.wait(key, lambda status: status.report.get("step") == 5)
    worker = yard.workers(key)[0]
    kill(yard.record(key, "supervisor")["pid"])
    status = yard.end(key)
    assert (status.exit_code, status.message) == (None, "its supervisor was killed")
    assert status.report["step"] == 5
    wait_until(lambda: not alive(worker) and not alive(escaped(yard)))
    yard.launch(command)  # the same generation is never started twice
    assert yard.poll()[key].phase is Phase.EXITED


def test_a_killed_spawner_ends_the_run(yard: Yard) -> None:
    key = yard.launch(yard.script(ESCAPE + "time.sleep(600)"))
    yard.wait_log(key, "escaped")
    worker = yard.workers(key)[0]
    kill(yard.record(key, "supervisor")["spawner"])
    assert yard.end(key).exit_code is None
    wait_until(lambda: not alive(worker) and not alive(escaped(yard)))


def test_without_control_groups_everything_is_found_all_the_same(yard: Yard) -> None:
    key = yard.launch(yard.script(ESCAPE + "time.sleep(600)"))
    yard.wait_log(key, "escaped")
    path = yard.folder(key) / "supervisor.json"
    content = yard.record(key, "supervisor")
    write_record(path, {**content, "cgroup": {}}, durable=False)
    kill(content["pid"])
    assert yard.end(key).exit_code is None
    wait_until(lambda: not alive(escaped(yard)))
    Cgroup(content["cgroup"]).remove()


def test_another_daemon_adopts_what_runs_and_kills_what_it_does_not_know(yard: Yard) -> None:
    command = f"{PYTHON} {SDK_WORKER} 1000000"
    known, unknown = yard.launch(command, job=1), yard.launch(["sleep", "600"], job=2)
    yard.wait(known, lambda status: status.report)
    yard.wait(unknown, lambda status: status.phase is Phase.RUNNING)
    kept, doomed = yard.workers(known)[0], yard.workers(unknown)[0]
    yard.backend = yard.another_backend()
    statuses = asyncio.run(yard.backend.adopt([run for run in yard.runs if run.key == known]))
    assert [status.key for status in statuses] == [known] and statuses[0].report
    assert alive(kept) and not alive(doomed)
    assert set(yard.poll()) == {known}
    yard.launch(command, {"n1": [0, 1]}, version=2)
    yard.wait(known, lambda status: status.version == 2 and len(yard.workers(known)) == 2)
    assert yard.workers(known)[0] == kept


def test_a_run_that_ended_while_no_daemon_looked_is_told_until_it_is_forgotten(yard: Yard) -> None:
    key = yard.launch("exit 3")
    wait_until((yard.folder(key) / "exit.json").exists)
    yard.backend = yard.another_backend()
    statuses = asyncio.run(yard.backend.adopt(yard.runs))
    assert [status.exit_code for status in statuses] == [3]
    asyncio.run(yard.backend.forget(key))
    asyncio.run(yard.backend.forget(key))
    assert yard.poll() == {}
    assert (yard.folder(key) / "log").exists()


def test_a_new_generation_ends_an_older_one_first(yard: Yard) -> None:
    old = yard.launch(["sleep", "600"])
    yard.wait(old, lambda status: status.phase is Phase.RUNNING)
    pid = yard.workers(old)[0]
    new = yard.launch(["sleep", "600"], generation=2)
    assert not alive(pid) and yard.poll()[old].phase is Phase.EXITED
    yard.wait(new, lambda status: status.phase is Phase.RUNNING)


def test_a_number_that_was_given_to_another_process_is_not_killed(yard: Yard) -> None:
    key = yard.launch(["sleep", "600"])
    yard.wait(key, lambda status: status.phase is Phase.RUNNING)
    content, status = yard.record(key, "supervisor"), yard.record(key, "status")
    kill(content["pid"])
    wait_until(lambda: not alive(content["pid"]))
    ours = {"pid": os.getpid(), "started": 1}  # this test has the numbers of the dead now
    write_record(yard.folder(key) / "supervisor.json", {**content, **ours}, durable=False)
    write_record(yard.folder(key) / "status.json", {**status, "workers": [ours]}, durable=False)
    assert yard.end(key).exit_code is None
    assert not process_table.is_same(os.getpid(), 1)


def test_a_supervisor_that_hangs_is_killed_when_it_must_stop(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.live.backends.local.supervisor_client.WAIT_S", 0.5)
    key = yard.launch(["sleep", "600"])
    yard.wait(key, lambda status: status.phase is Phase.RUNNING)
    worker = yard.workers(key)[0]
    kill(yard.record(key, "supervisor")["pid"], signal.SIGSTOP)
    yard.stop(key, 0.0)
    assert yard.end(key).exit_code is None
    wait_until(lambda: not alive(worker))


def test_a_supervisor_asked_to_end_stops_its_run_in_order(yard: Yard) -> None:
    key = yard.launch(f"{PYTHON} {SDK_WORKER} 1000000")
    yard.wait(key, lambda status: status.report)
    kill(yard.record(key, "supervisor")["pid"], signal.SIGTERM)
    status = yard.end(key)
    assert status.exit_code == -signal.SIGTERM and status.checkpoints


def test_sockets_work_in_a_home_with_a_very_long_name(make_yard: Callable[..., Yard], tmp_path: Path) -> None:
    yard = make_yard(tmp_path / ("long-" * 30) / "home")
    key = yard.launch(f"{PYTHON} {SDK_WORKER} 1000000")
    yard.wait(key, lambda status: status.report)
    sockets = Path(yard.record(key, "supervisor")["sockets"])
    assert len(str(sockets)) < 100
    yard.launch(f"{PYTHON} {SDK_WORKER} 1000000", {"n1": [0, 1]}, version=2)
    yard.wait(key, lambda status: status.version == 2)
    kill(yard.record(key, "supervisor")["pid"])
    yard.end(key)
    assert not sockets.exists()


def test_a_flood_of_output_stays_within_its_bounds(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(log_bytes=100_000)
    text = "import os\nfor i in range(400): os.write(1, b'%d ' % i + b'\\x00\\xff' * 2000 + b'\\n')\n"
    key = yard.launch(yard.script(text + "print('y' * 300_000)"))
    assert yard.end(key).exit_code == 0
    sizes = [path.stat().st_size for path in yard.folder(key).glob("log*")]
    assert len(sizes) == 2 and max(sizes) <= 100_000
    assert yard.log(key).endswith("y\n")


def test_a_pattern_that_takes_for_ever_holds_nobody_up(yard: Yard) -> None:
    text = "import time\nfor i in range(6): print('a' * 60 + '!', flush=True); time.sleep(0.2)\n"
    key = yard.launch(yard.script(text), progress={"pattern": r"(a+)+$".replace("(a+)+", "(?:a+)+(b)")})
    status = yard.end(key)
    assert status.exit_code == 0
    assert any("takes too long" in part["text"] for part in status.story)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs an interpreter that everybody may run")
def test_a_job_of_another_user_runs_as_that_user_and_sees_nothing_of_ours(make_yard: Callable[..., Yard]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yard = make_yard(Path(folder) / "home")
        (yard.home / "token").write_text("secret")
        os.chmod(yard.home, 0o700)
        script = Path(folder) / "who.py"
        script.write_text(
            "import os, pathlib\n"
            "print(os.getuid(), os.environ['USER'], os.getgroups() != [0])\n"
            "pathlib.Path(os.environ['ARGOSY_CHECKPOINTS'], 'x').write_text('mine')\n"
            "import socket; socket.socket(socket.AF_UNIX).connect(os.environ['ARGOSY_CONTROL'])\n"
            f"try: print(open({str(yard.home / 'token')!r}).read())\n"
            "except PermissionError: print('closed')\n"
        )
        for job, command in enumerate((f"exec /usr/bin/python3 {script}", f"/usr/bin/python3 {script}")):
            key = yard.launch(command, user="nobody", workdir=folder, job=job)
            assert yard.end(key).exit_code == 0, yard.log(key)
            assert yard.log(key) == "65534 nobody True\nclosed\n"
        yard.clear()


def test_the_run_key_is_the_fence(yard: Yard) -> None:
    key = yard.launch(["sleep", "600"], generation=2)
    yard.wait(key, lambda status: status.phase is Phase.RUNNING)
    assert call(RunFolder(yard.folder(key)), {"op": "stop", "generation": 1, "grace_s": 0})
    yard.stop(RunKey(1, 1), 0.0)
    written = yard.record(key, "status")["t"]
    wait_until(lambda: yard.record(key, "status")["t"] > written + 1.0)
    assert yard.poll()[key].phase is Phase.RUNNING


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_on_a_full_disk_the_end_is_kept_until_there_is_room(make_yard: Callable[..., Yard], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yard = make_yard(disk / "home")
    try:
        text = (
            "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
            "try:\n    while True: open('filler', 'ab', buffering=0).write(b'x' * 4096)\n"
            "except OSError: os._exit(3)\n"
        )
        key = yard.launch(yard.script(text))
        yard.wait(key, lambda status: yard.workers(key))
        worker, supervisor = yard.workers(key)[0], yard.record(key, "supervisor")["pid"]
        (yard.work / "go").touch()
        wait_until(lambda: not alive(worker))
        assert alive(supervisor) or (yard.folder(key) / "exit.json").exists()  # it waits with the end in its hands
        (yard.work / "filler").unlink()
        assert yard.end(key).exit_code == 3
        wait_until(lambda: not alive(supervisor))
    finally:
        (disk / "home" / "work" / "filler").unlink(missing_ok=True)
        yard.clear()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_look_while_a_run_is_being_launched_does_not_end_it(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    register = yard.backend._registry.add

    def register_and_look(key: RunKey, folder: RunFolder) -> None:
        register(key, folder)
        (status,) = yard.backend._poll()
        assert status.phase is Phase.STARTING

    monkeypatch.setattr(yard.backend._registry, "add", register_and_look)
    assert yard.end(yard.launch("exit 4")).exit_code == 4


def test_a_daemon_that_dies_in_the_middle_of_a_launch_is_not_the_jobs_fault(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yard.backend, "_supervise", lambda folder, lock: None)
    key = yard.launch("exit 0")
    yard.backend = yard.another_backend()
    (status,) = asyncio.run(yard.backend.adopt(yard.runs))
    assert (status.key, status.phase, status.exit_code) == (key, Phase.EXITED, None)
    assert "did not start" in status.message
