"""`argosy serve` itself: what it prints, how it ends, how clients find it again."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Argosy
from live_daemon import LIMIT_S, LiveDaemon, live_daemon


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("ARGOSY_HOME", str(folder))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


def wait_until_running(argosy: Argosy, number: int) -> None:
    limit = time.monotonic() + LIMIT_S
    while json.loads(argosy("status", str(number), "-o", "json").out)["state"] != "running":
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_a_life(argosy: Argosy, home: Path) -> None:
    """It greets, runs a job, refuses a second daemon, ends on Ctrl-C while a job goes on, and finds it again."""
    with live_daemon(home) as daemon:
        told = daemon.told()
        for text in ("http://127.0.0.1:", "2 nodes, 8 GPUs, fifo", str(home / "token"), "argosy submit", "Ctrl-C"):
            assert text in told
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
        second = LiveDaemon(home, "--cluster", "fake", "--policy", "fifo")
        try:
            assert second.process.wait(300) == 2
            assert f"a daemon already works on {home}" in second.told()
        finally:
            second.clean_up()
        assert argosy("submit", "--run", "fake seconds=0.1", "--wait", "--timeout", "5m").code == 0
        assert argosy("submit", "--run", "fake seconds=100000", "--name", "long").code == 0
        wait_until_running(argosy, 2)
        assert daemon.end() == 0
        assert "the daemon has ended; 1 job goes on" in daemon.told()
    gone = argosy("queue")
    assert gone.code == 1
    assert "argosy serve" in gone.err
    with live_daemon(home, "--stop-jobs") as daemon:
        found = json.loads(argosy("status", "2", "-o", "json").out)
        assert (found["name"], found["generation"]) == ("long", 1)
        assert [job["id"] for job in json.loads(argosy("history", "-o", "json").out)] == [1]
        assert daemon.end() == 0
        assert daemon.told().endswith("the daemon has ended\n")


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--policy", "fifoo"], ["unknown policy 'fifoo'", "did you mean fifo"]),
        (["--cluster", "missing.yaml"], ["missing.yaml"]),
        (["--cluster", "small", "--nodes", "3"], ["--nodes and --slots do not go with --cluster small"]),
        (["--backend", "slurn"], ["unknown backend 'slurn'"]),
        (["--nodes", "0"], ["--nodes 0 is too small"]),
    ],
)
def test_what_people_get_wrong(argosy: Argosy, home: Path, arguments: list[str], texts: list[str]) -> None:
    answer = argosy("serve", *arguments)
    assert (answer.code, answer.out) == (2, "")
    for text in texts:
        assert text in answer.err
    assert not home.exists()


@pytest.mark.slow
def test_those_who_wait_bear_a_restart(argosy: Argosy, home: Path) -> None:
    """`logs -f` and `wait` go on when the daemon is killed and started again, on another port."""
    with live_daemon(home) as daemon:
        assert argosy("submit", "--run", "fake seconds=8").code == 0
        wait_until_running(argosy, 1)
        followers = [
            subprocess.Popen(
                [sys.executable, "-m", "argosy.cli.main", *words, "--home", str(home)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for words in (["logs", "-f", "1"], ["wait", "1", "--timeout", "5m"])
        ]
        try:
            time.sleep(1)
            daemon.end(signal.SIGKILL)
            with live_daemon(home):
                outputs = [follower.communicate(timeout=LIMIT_S) for follower in followers]
        finally:
            for follower in followers:
                follower.kill()
                follower.wait()
                for stream in (follower.stdout, follower.stderr):
                    assert stream is not None
                    stream.close()
    assert [follower.returncode for follower in followers] == [0, 0], outputs
    assert "job 1 succeeded" in outputs[1][1]


def test_the_queue_stays_on_the_screen(argosy: Argosy, home: Path) -> None:
    """On a terminal the queue is redrawn until Ctrl-C."""
    with live_daemon(home):
        assert argosy("submit", "--run", "fake seconds=100000", "--name", "on-screen").code == 0
        ours, theirs = os.openpty()
        command = [sys.executable, "-m", "argosy.cli.main", "queue", "-w", "--home", str(home)]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
        watching = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        try:
            seen, limit = b"", time.monotonic() + LIMIT_S
            while seen.count(b"on-screen") < 2 and time.monotonic() < limit:
                seen += os.read(ours, 65536)
            assert seen.count(b"on-screen") >= 2
            watching.send_signal(signal.SIGINT)
            while watching.poll() is None and time.monotonic() < limit:  # a terminal that nobody reads holds it up
                if select.select([ours], [], [], 0.1)[0]:
                    with contextlib.suppress(OSError):  # that is how a terminal ends
                        os.read(ours, 65536)
            assert watching.wait(1.0) == 130
        finally:
            watching.kill()
            watching.wait()
            os.close(ours)
