"""Worker processes do not outlive the one they work for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
