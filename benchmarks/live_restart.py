"""How soon the daemon is back: `argosy serve` on a home in which very many jobs have ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from sys import executable
from typing import Any

from argosy.errors import ArgosyError
from argosy.live.client import Client, ClientError, find_address
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.store import Store
from benchmarks.harness import Json, Options

PATIENCE_S = 180.0
KINDS = 50  # job files that differ
EVENTS = (("submitted", 0), ("starting", 1), ("running", 1), ("saved", 1), ("saved", 1), ("succeeded", 1))
TIMES = 5  # starts of each kind


def restart(options: Options) -> Json:
    """Seconds from the start of the process to the first answer and to the first pass, after an end and a kill."""
    jobs, times = (2_000, 1) if options.quick else (100_000, TIMES)
    figures: Json = {}
    for name, count in (("empty", 0), ("ended", jobs)):
        with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
            fill(Path(folder), count)
            starts = [_start(Path(folder), how) for how in (signal.SIGTERM, signal.SIGKILL) for _ in range(times)]
            figures[name] = {"jobs": count, "starts": starts, "database_mib": _size_mib(Path(folder))}
    return figures


def fill(folder: Path, count: int) -> None:
    """Make a home in which so many jobs have run and ended, each with its story, checkpoints and folder."""
    home = Home(folder)
    home.create()
    store = Store(home.database)
    store.clock.resume({**store.clock.mark(), "now": count + 86_400.0})  # the last of them ended a day ago
    store.close()
    with closing(sqlite3.connect(home.database)) as database:
        database.execute("PRAGMA synchronous = OFF")
        for table, rows in (
            ("jobs", _jobs),
            ("runs", _runs),
            ("events", _events),
            ("checkpoints", _checkpoints),
            ("audit", _audit),
        ):
            _insert(database, table, rows, count)
        database.commit()
    for number in range(1, count + 1):
        run = home.run(number, 1)
        run.mkdir(parents=True)
        home.checkpoints(number).mkdir()
        (run / "log").touch()


def _insert(database: sqlite3.Connection, table: str, rows: Callable[[int], Iterator[Json]], count: int) -> None:
    columns: Sequence[str] = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    made: Iterator[dict[str, Any]] = (row for number in range(1, count + 1) for row in rows(number))
    first = next(made, None)
    if first is None:
        return
    used = [name for name in columns if name in first]
    sql = f"INSERT INTO {table} ({', '.join(used)}) VALUES ({', '.join('?' * len(used))})"
    database.execute(sql, [first[name] for name in used])
    database.executemany(sql, ([row[name] for name in used] for row in made))


def _jobs(number: int) -> Iterator[Json]:
    kind, began = number % KINDS, float(number)
    spec = JobSpec.model_validate(
        {"name": f"train-{kind}", "run": f"python train.py --kind {kind}", "resources": {"gpus": "1..4"}}
    )
    yield {
        "id": number,
        "name": spec.name,
        "owner": f"user{kind % 7}",
        "queue": "default",
        "priority": 50.0,
        "spec": spec.model_dump_json(),
        "workdir": "/tmp",
        "after": "[]",
        "gpus_low": 1.0,
        "gpus_high": 4.0,
        "submitted_s": began,
        "submitted_at": 1.7e9 + began,
        "state": "succeeded",
        "generation": 1,
        "started_s": began + 1,
        "started_at": 1.7e9 + began + 1,
        "ended_s": began + 60,
        "ended_at": 1.7e9 + began + 60,
        "exit_code": 0,
        "run_s": 59.0,
        "gpu_s": 118.0,
        "hot": 1,
        "report": '{"step":600,"progress":1.0}',
    }


def _runs(number: int) -> Iterator[Json]:
    began = float(number) + 1
    yield {
        "job": number,
        "generation": 1,
        "version": 3,
        "parts": '[["n1",[0,1],1000,0]]',
        "launched_s": began,
        "running_s": began + 1,
        "settled_s": began + 59,
        "ended_s": began + 59,
        "run_s": 59.0,
        "gpu_s": 118.0,
        "exit_code": 0,
        "launched_at": 1.7e9 + began,
        "ended_at": 1.7e9 + began + 59,
    }


def _events(number: int) -> Iterator[Json]:
    for kind, generation in EVENTS:
        yield {
            "job": number,
            "generation": generation,
            "t_s": float(number),
            "at": 1.7e9 + number,
            "kind": kind,
            "text": f"{kind}, as a line of the story of a job",
        }


def _checkpoints(number: int) -> Iterator[Json]:
    for step in (300, 600):
        yield {
            "job": number,
            "generation": 1,
            "path": f"gen-1/step-{step}",
            "step": step,
            "seconds": 0.5,
            "bytes": 10**8,
            "t_s": float(number),
            "at": 1.7e9 + number,
        }


def _audit(number: int) -> Iterator[Json]:
    yield {
        "at": 1.7e9 + number,
        "who": f"user{number % 7}",
        "role": "user",
        "address": "127.0.0.1",
        "action": "submit",
        "object": f"job {number}",
        "first_job": number,
        "last_job": number,
        "result": "done",
        "detail": "train",
    }


def _start(folder: Path, end_by: signal.Signals) -> Json:
    home = Home(folder)
    home.address.unlink(missing_ok=True)
    home.socket.unlink(missing_ok=True)
    began = time.perf_counter()
    words = [executable, "-m", "argosy.cli.main", "serve", "--home", str(folder)]
    process = Popen(words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    try:
        client = _until(lambda: _client(folder), process)
        answered_s, cpu_s = time.perf_counter() - began, _cpu_s(process.pid)
        with client:
            _until(lambda: client.get("/v1/health")["passes"] or None, process)
            passed_s = time.perf_counter() - began
            _until(lambda: client.get("/v1/health")["last_decision_age_s"], process)
            decided_s = time.perf_counter() - began
            counted = sum(client.get("/v1/jobs", limit=100)["counts"].values())
        return {
            "answered_s": answered_s,
            "cpu_s": cpu_s,
            "pass_s": passed_s,
            "decision_s": decided_s,
            "jobs": counted,
            "ended_by": end_by.name,
        }
    finally:
        process.send_signal(end_by)
        try:
            process.wait(30)
        except TimeoutExpired:
            process.kill()
            process.wait()


def _cpu_s(pid: int) -> float:
    """What a process has computed so far: on a busy machine it tells more than the time that has passed."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _client(folder: Path) -> Client | None:
    try:
        client = Client(find_address(home=folder))
        client.get("/v1/health")
    except ClientError:
        return None
    return client


def _until(true: Callable[[], Any], process: Popen[bytes]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while (found := true()) is None:
        if time.monotonic() > until or process.poll() is not None:
            raise ArgosyError("the daemon does not start")
        time.sleep(0.01)
    return found


def _size_mib(folder: Path) -> float:
    return (folder / "argosy.db").stat().st_size / 2**20
