"""Kill -9 at random moments: no job is lost, none runs twice at once, every result is kept.

A benchmark runs the same with 1,000 kills.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KILLS = int(os.environ.get("ARGOSY_KILLS", "12"))
JOBS = 20 + 2 * KILLS  # enough that there is always something to do
LIMIT_S = 120.0


@contextmanager
def daemon_parent(folder: Path, jobs: int) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("daemon_parent.py")
    words = [sys.executable, str(script), str(folder / "home"), str(folder / "state"), str(folder / "acks"), str(jobs)]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.close()


def start(process: subprocess.Popen[str]) -> int:
    assert process.stdin and process.stdout
    process.stdin.write("go\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def gone(process: subprocess.Popen[str]) -> None:
    assert process.stdout and process.stdout.readline() == "gone\n"


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return database.execute(sql).fetchall()
    finally:
        database.close()


def test_kill_the_daemon_at_random_moments(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    dice = random.Random(KILLS)
    with daemon_parent(tmp_path, JOBS) as process:
        for _ in range(KILLS):
            daemon = start(process)
            time.sleep(dice.expovariate(1 / 0.12))
            os.kill(daemon, signal.SIGKILL)
            gone(process)
        daemon = start(process)
        home = tmp_path / "home" / "argosy.db"
        end = time.monotonic() + LIMIT_S
        over = "SELECT count(*) FROM jobs WHERE state IN ('succeeded', 'failed', 'cancelled')"
        while query(home, over)[0][0] < JOBS:  # type: ignore[operator]
            left = query(home, "SELECT id, state, message, spec FROM jobs WHERE ended_s IS NULL")
            assert time.monotonic() < end, (left, (tmp_path / "errors").read_text()[-3000:])
            time.sleep(0.1)
        time.sleep(0.3)
        os.kill(daemon, signal.SIGTERM)
        gone(process)
    assert query(tmp_path / "state", "SELECT text FROM violations") == []
    check(tmp_path)
    runs = query(tmp_path / "home" / "argosy.db", "SELECT count(*) FROM runs")[0][0]
    for name, value in {"kills": KILLS, "jobs": JOBS, "runs": runs}.items():
        record_property(name, value)


def check(folder: Path) -> None:
    """Check that everything acknowledged is true, and that all jobs ended as their scripts say."""
    home = folder / "home" / "argosy.db"
    jobs = {row[0]: row for row in query(home, "SELECT id, state, exit_code, generation, name FROM jobs")}
    for line in (folder / "acks").read_text().splitlines():
        what, number, *rest = line.split()
        assert int(number) in jobs, line
        if what == "ended":
            assert [jobs[int(number)][1], str(jobs[int(number)][2])] == rest, line
    for _, state, code, _, name in jobs.values():
        assert (state, code) == (("failed", 7) if name == "fails" else ("succeeded", 0))
    starts = dict(query(home, "SELECT job, count(*) FROM events WHERE kind = 'starting' GROUP BY job"))
    assert starts == {number: row[3] for number, row in jobs.items()}
    ended = query(home, "SELECT count(*) FROM runs WHERE ended_s IS NULL")
    assert ended == [(0,)]
