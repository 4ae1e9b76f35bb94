"""top, exec and attach against real processes; completion as a shell asks for it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Argosy
from live_daemon import LiveDaemon

from argosy.live.backends.local.inspection import boot_id, read_gpus

ARGOSY = [sys.executable, "-m", "argosy.cli.main"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """A daemon that runs real processes on two virtual slots."""
    home = tmp_path_factory.mktemp("inside") / "home"
    running = LiveDaemon(home, "--cluster", "local", "--policy", "fifo", "--nodes", "1", "--slots", "2", "--stop-jobs")
    try:
        running.wait_until_told("argosy serves at")
        yield running
        running.end()
    finally:
        running.clean_up()


@pytest.fixture
def live(daemon: LiveDaemon, argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Argosy]:
    monkeypatch.setenv("ARGOSY_HOME", str(daemon.home))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield argosy
    argosy("cancel", "--now", "--state", "pending,starting,running,stopping")


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + 120
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.1)


def started(live: Argosy, command: str, *options: str) -> str:
    number = live("submit", "--run", command, *options).out.strip()
    until(lambda: json.loads(live("status", number, "-o", "json").out)["state"] == "running")
    return number


def used(live: Argosy, number: str) -> dict[str, Any]:
    jobs = json.loads(live("top", "-o", "json").out)["jobs"]
    return next(job for job in jobs if job["id"] == int(number))


@pytest.mark.slow(12)
def test_top_shows_what_jobs_use(live: Argosy) -> None:
    busy = started(live, "sh -c 'while :; do :; done'", "--name", "busy")
    idle = started(live, "sh -c 'sleep 600; true'", "--name", "idle")
    until(lambda: (used(live, idle)["processes"] or 0) == 2)  # the shell, and what it waits for
    until(lambda: (used(live, busy)["cpus"] or 0) > 0.05)  # a loaded machine leaves it little
    figures = used(live, idle)
    assert figures["cpus"] < 0.05 and 0 < figures["memory_gib"] < 1 and figures["gpu_busy"] is None
    table = live("top").out
    assert table.index("busy") < table.index("idle") and "2 jobs hold 2 GPUs" in table
    assert live("top", "--sort", "size").code == 2
    assert live("top", "-w").code == 2
    live("cancel", "--now", busy, idle)
    until(lambda: "no job runs" in live("top").out)


@pytest.mark.slow(8)
def test_exec_runs_in_the_jobs_environment(live: Argosy, tmp_path: Path) -> None:
    number = started(live, "sleep 600", "--env", "COLOUR=deep blue")
    script = 'echo "$COLOUR|$PWD|$ARGOSY_JOB_ID|$ARGOSY_TOKEN|$ARGOSY_CONTROL|$OMP_NUM_THREADS|$0"'
    done = subprocess.run([*ARGOSY, "exec", number, "--", "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"deep blue|{tmp_path}|{number}|||1|sh\n"
    seen = subprocess.run([*ARGOSY, "exec", number, "--", "cat", "/proc/$PID/cmdline"], capture_output=True, text=True)
    assert seen.stdout.split("\0")[0].endswith("sleep") and seen.stdout.split("\0")[1] == "600"
    assert subprocess.run([*ARGOSY, "exec", number, "--", "sh", "-c", "exit 7"]).returncode == 7
    missing = subprocess.run([*ARGOSY, "exec", number, "--", "no-such-thing"], capture_output=True, text=True)
    assert missing.returncode == 127 and "cannot run no-such-thing" in missing.stderr
    assert f"job {number}" in live("audit", "--action", "enter").out


def test_what_was_entered_ends_with_the_job(live: Argosy) -> None:
    number = started(live, "sleep 600")
    shell = subprocess.Popen([*ARGOSY, "exec", number, "--", "sleep", "500"])
    until(lambda: Path(f"/proc/{shell.pid}/cmdline").read_bytes() == b"sleep\x00500\x00")
    live("cancel", "--now", number)
    assert shell.wait(60) == -9


def test_attach_is_a_shell_in_the_job(live: Argosy) -> None:
    number = started(live, "sleep 600", "--env", "COLOUR=green")
    ours, theirs = pty.openpty()
    env = os.environ | {"SHELL": "/bin/sh", "ENV": ""}
    shell = subprocess.Popen(
        [*ARGOSY, "attach", number], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    os.close(theirs)
    os.write(ours, b'echo "it is $COLOUR"; exit 3\n')
    assert shell.wait(60) == 3
    said = b""
    while b"it is green" not in said:
        said += os.read(ours, 4096)
    os.close(ours)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_the_jobs_user(tmp_path: Path) -> None:
    """What root enters runs with the rights of the job's user, and without root's groups."""
    script = (
        "from argosy.cli.exec_ import _run\n"
        "words = ['sh', '-c', 'id -u; id -G; cat /etc/shadow']\n"
        "_run({'cpus': None, 'cwd': '/'}, 65534, words, {'PATH': '/usr/bin:/bin'})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    uid, groups, *rest = done.stdout.split("\n")
    assert uid == "65534" and "0" not in groups.split() and rest == [""]
    assert done.returncode != 0 and "denied" in done.stderr


def test_what_cannot_be_entered(live: Argosy) -> None:
    number = live("submit", "--run", "sleep 600", "--hold").out.strip()
    waiting = live("exec", number, "--", "true")
    assert waiting.code == 1 and "nothing to enter" in waiting.err
    assert live("exec", "999999", "--", "true").code == 102
    assert live("exec", number).code == 2


def test_a_job_on_another_machine_is_not_entered(live: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    number = started(live, "sleep 600")
    monkeypatch.setattr("argosy.live.backends.local.inspection.boot_id", lambda: "another")
    answer = live("exec", number, "--", "true")
    assert answer.code == 2 and "runs on another machine" in answer.err
    assert boot_id()


def test_what_the_driver_says_about_gpus() -> None:
    text = "0, 87, 20480, 40960\n1, [N/A], 0, 40960\nnonsense\n"
    assert read_gpus(text) == {0: (87.0, 20.0, 40.0), 1: (0.0, 0.0, 40.0)}


def complete(*words: str, **env: str) -> list[str]:
    asked = {"_ARGOSY_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(ARGOSY, env=os.environ | asked | env, capture_output=True, text=True)
    return done.stdout.split("\n")


def test_the_shell_completes_commands_options_and_jobs(live: Argosy, daemon: LiveDaemon) -> None:
    assert complete("argosy", "rel") == ["release", ""]
    assert complete("argosy", "submit", "--time") == ["--time-limit", "--timeout", ""]
    number = live("submit", "--run", "sleep 600", "--hold").out.strip()
    assert number in complete("argosy", "cancel", "")
    assert not any(complete("argosy", "cancel", "", ARGOSY_HOME="/nowhere"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(argosy: Argosy, shell: str) -> None:
    answer = argosy("completion", shell)
    assert answer.code == 0 and "_ARGOSY_COMPLETE" in answer.out
    assert argosy("completion", "cmd").code == 2


def test_bash_takes_the_script(argosy: Argosy) -> None:
    script = argosy("completion", "bash").out
    done = subprocess.run(["bash", "-c", f"{script}\ncomplete -p argosy"], capture_output=True, text=True)
    assert "complete" in done.stdout and "-F" in done.stdout
