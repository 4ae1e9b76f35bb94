"""Detached programs: none of our helpers is started with a user's variables, or waits for a user's program."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from strangers import ANN, as_root

from argosy.live.backends.base import LaunchError
from argosy.live.backends.local import users
from argosy.live.supervisor import process_table
from argosy.live.supervisor.detach import start_detached


def wait_for(true: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def start(words: list[str], env: dict[str, str], printed: Path, user: str | None = None) -> tuple[int, int]:
    keep, written = os.open(os.devnull, os.O_RDONLY), os.open(printed, os.O_CREAT | os.O_WRONLY)
    try:
        return start_detached(words, env, keep, written, user)
    finally:
        os.close(keep)
        os.close(written)


def test_it_runs_alone_in_its_session_with_one_descriptor_of_ours(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    pid, session = start(["/bin/sh", "-c", "ls /proc/$$/fd; pwd; exec sleep 100"], {}, printed)
    try:
        wait_for(lambda: printed.read_text().endswith("/\n"))
        found = process_table.process(pid)
        assert found is not None and found.session == session != pid and found.parent != os.getpid()
        assert len(printed.read_text().split()) == 3 + 1 + 1  # streams, what it was given, and where it is
    finally:
        os.kill(pid, signal.SIGKILL)


def test_only_the_program_itself_gets_its_variables(tmp_path: Path) -> None:
    """Some variables make a program print and exit, others make it run any code; our helpers never get them."""
    printed = tmp_path / "printed"
    pid, _ = start(["/bin/sleep", "100"], {"LD_TRACE_LOADED_OBJECTS": "1"}, printed)
    assert pid > 0
    wait_for(lambda: "libc" in printed.read_text())  # what it does itself is its own business
    wait_for(lambda: process_table.process(pid) is None)


def test_what_cannot_be_executed_is_only_gone(tmp_path: Path) -> None:
    pid, _ = start([str(tmp_path / "none")], {}, tmp_path / "printed")
    wait_for(lambda: process_table.process(pid) is None)


@as_root
def test_whoever_stops_the_child_that_looks_for_him_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds in the middle of an answer."""
    monkeypatch.setattr(users, "LOOK_S", 1.0)

    def look() -> dict[str, str]:
        return {"long": "x" * 1_000_000}

    assert users.look_as(ANN, look) == look()

    before = os.listdir("/proc/self/fd")

    def begin_to_answer_and_stop() -> dict[str, str]:
        for name in sorted(set(os.listdir("/proc/self/fd")).difference(before)):
            with contextlib.suppress(OSError):  # one of the two ends of the pipe, or what this list was read from
                os.write(int(name), b"{")
        os.kill(os.getpid(), signal.SIGSTOP)
        return {}

    with pytest.raises(LaunchError, match="could not be read"):
        users.look_as(ANN, begin_to_answer_and_stop)
