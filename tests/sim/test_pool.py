"""Tasks run in worker processes, which do not outlive their parent; a few small ones run in the parent itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.sim import pool
from argosy.sim.pool import run_tasks

PROGRAM = """
import os, sys, time
from pathlib import Path
from argosy.sim.pool import run_tasks

def work(folder):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    run_tasks(work, [sys.argv[1]] * 2, lambda task, problem: None, workers=2)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script, folder = tmp_path / "program.py", tmp_path / "here"
    script.write_text(PROGRAM)
    folder.mkdir()
    program = subprocess.Popen([sys.executable, script, folder])
    try:
        wait_until(lambda: len(list(folder.iterdir())) == 2)
    finally:
        program.kill()
        program.wait()
    workers = [int(path.name) for path in folder.iterdir()]
    wait_until(lambda: not any(is_alive(pid) for pid in workers))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def work(task: float) -> tuple[int, float]:
    time.sleep(task)
    return os.getpid(), task


def test_small_tasks_are_run_in_this_process() -> None:
    heard: list[tuple[int, float]] = []
    outcomes = run_tasks(work, [0.0] * 5, pytest.fail, done=heard.append, small=True)
    assert outcomes == heard == [(os.getpid(), 0.0)] * 5


def test_tasks_that_turn_out_long_go_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "cores", lambda: 2)
    monkeypatch.setattr(pool, "SEQUENTIAL_S", 0.01)
    todo = [0.0, 0.02, 0.001, 0.002]
    outcomes = run_tasks(work, todo, pytest.fail, small=True)
    assert [task for _, task in outcomes] == todo
    assert [where == os.getpid() for where, _ in outcomes] == [True, True, False, False]


def test_workers_that_are_asked_for_are_started() -> None:
    outcomes = run_tasks(work, [0.0, 0.0], pytest.fail, workers=2, small=True)
    assert os.getpid() not in {where for where, _ in outcomes}
