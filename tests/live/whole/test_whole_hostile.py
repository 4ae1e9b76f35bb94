"""Hostile jobs and a real daemon: interpreters that hang, programs that ignore signals."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_stage import Stage

from argosy.live.client import ClientError
from argosy.live.unix_sockets import short_path

pytestmark = pytest.mark.slow(12)
POLICY = "fifo"
STUBBORN = """trap "" TERM; echo ready; while true; do sleep 0.2; done"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, seed=7)
    yield made
    if made.daemon:
        made.end(signal.SIGKILL)
    made.clear()


def submit(stage: Stage, run: str | list[str], gpus: str = "1", **more: Any) -> list[int]:
    job = {"run": run, "resources": {"gpus": gpus, "cpus_per_gpu": 0}, "retries": 0, **more}
    answer = stage.client.post("/v1/jobs", {"jobs": [job], "workdir": str(stage.work)})
    return [int(number) for number in answer["ids"]]


def states(stage: Stage, numbers: list[int]) -> set[str]:
    chosen = ", ".join(map(str, numbers))
    return {row[0] for row in stage.rows(f"SELECT state FROM jobs WHERE id IN ({chosen})")}


def says(stage: Stage, number: int, text: str) -> bool:
    path = stage.home / "jobs" / str(number) / "gen-1" / "log"
    return path.exists() and text in path.read_text()


def hung_interpreter(stage: Stage) -> Path:
    """A file named python that never gets warm."""
    path = stage.work / "python"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    return path


def fill_up(path: Path) -> list[socket.socket]:
    """Connect until no further connection is possible, as seventy jobs at once would."""
    made = []
    for _ in range(500):
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        made.append(connection)
        try:
            with short_path(path) as short:
                connection.connect(short)
        except BlockingIOError:
            break
    return made


def test_an_interpreter_that_hangs_stops_nobody_else(stage: Stage) -> None:
    """Its jobs wait for it and then start cold; passes, logs and everybody else's jobs go on meanwhile."""
    stage.serve(POLICY)
    python = hung_interpreter(stage)
    hung = submit(stage, f"{python} train.py", "0")
    sockets = stage.home / "local" / "zygotes"
    stage.until(lambda: list(sockets.glob("*.sock")), "its interpreter is being warmed")
    with contextlib.ExitStack() as stack:
        for path in sockets.glob("*.sock"):
            for connection in fill_up(path):
                stack.callback(connection.close)
        hung += submit(stage, f"{python} train.py", "0", array=12)
        stage.until(lambda: "pending" not in states(stage, hung), "they start")
        well = submit(stage, "echo well")
        stage.until(lambda: states(stage, well) == {"succeeded"}, "somebody else's job ends", 45.0)
        with stage.client.stream(f"/v1/jobs/{well[0]}/log") as log:
            assert b"well" in b"".join(log[1])
        before = stage.client.get("/v1/health")
        time.sleep(2.0)
        after = stage.client.get("/v1/health")
        assert after["passes"] > before["passes"] and after["last_pass_age_s"] < 5, (before, after)
    stage.client.post("/v1/jobs/cancel", {"ids": hung, "now": True})
    stage.until(lambda: states(stage, hung) == {"cancelled"}, "they are cancelled", 90.0)


def test_nothing_outlasts_the_limit_of_the_operator(stage: Stage) -> None:
    """Jobs that ignore SIGTERM: one that must leave because its nodes are emptied, and one when the daemon ends."""
    stage.serve(POLICY)
    with pytest.raises(ClientError, match="grace"):
        submit(stage, STUBBORN, grace=1e308)
    (number,) = submit(stage, STUBBORN, grace=500)
    stage.until(lambda: says(stage, number, "ready"), "it runs")
    stage.kill()
    stage.serve(f"{POLICY} 1s")  # the limit holds for those too that were taken in under another
    for name in ("n1", "n2"):
        stage.client.post(f"/v1/nodes/{name}/drain", now=True)
    stage.until(lambda: states(stage, [number]) == {"pending"}, "it has left", 60.0)


def test_a_job_that_will_not_leave_is_killed_at_once_by_cancel_now(stage: Stage) -> None:
    stage.serve(POLICY)
    numbers = submit(stage, STUBBORN, array=2, grace=600)
    stage.until(lambda: all(says(stage, number, "ready") for number in numbers), "they run")
    stage.client.post("/v1/jobs/cancel", {"ids": numbers})
    stage.until(lambda: states(stage, numbers) == {"stopping"}, "they are asked to leave")
    first, second = numbers
    stage.client.post("/v1/jobs/cancel", {"ids": [first], "now": True})
    stage.until(lambda: states(stage, [first]) == {"cancelled"}, "the first is gone", 30.0)
    assert states(stage, [second]) == {"stopping"}
    stage.client.post("/v1/jobs/cancel", {"ids": [second]})  # a second time: it gets a few seconds more
    stage.until(lambda: states(stage, [second]) == {"cancelled"}, "the second is gone", 60.0)
