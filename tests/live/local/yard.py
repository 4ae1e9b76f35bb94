"""A local backend in a temporary home, for tests: it starts runs, waits for conditions, and cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.live.backends.base import Assignment, Part, Phase, Run, RunKey, Status
from argosy.live.backends.local.backend import LocalBackend
from argosy.live.spec import JobSpec
from argosy.live.supervisor import process_table

PATIENCE_S = 60.0
PYTHON = getattr(sys, "_base_executable", sys.executable)  # mostly without torch: its zygote is warm at once
SDK_WORKER = Path(__file__).with_name("protocol_worker.py")


class Yard:
    def __init__(self, home: Path, zygotes: Path, **settings: Any) -> None:
        self.home, self.zygotes, self.settings = home, zygotes, settings
        self.work = home / "work"
        self.work.mkdir(parents=True)
        self.backend = self.another_backend()
        self.runs: list[Run] = []

    def another_backend(self) -> LocalBackend:
        """Return a new backend on the same home, as a restarted daemon would have."""
        return LocalBackend(self.home, zygotes=self.zygotes, settings=self.settings)

    def script(self, text: str, name: str = "job.py") -> str:
        (self.work / name).write_text(text)
        return f"{PYTHON} {name}"

    def launch(
        self,
        command: str | Sequence[str],
        place: Mapping[str, Sequence[int]] | None = None,
        *,
        job: int = 1,
        generation: int = 1,
        version: int = 1,
        paused: bool = False,
        hot: bool = False,
        restore: tuple[str, ...] = (),
        user: str | None = None,
        **spec: Any,
    ) -> RunKey:
        parts = tuple(Part(node, tuple(devices)) for node, devices in (place or {"n1": [0]}).items())
        job_file = JobSpec(**{"run": command, "workdir": self.work, **spec}).model_dump(mode="json")
        home = self.home / "jobs" / str(job)
        assignment = Assignment(version, parts, paused)
        run = Run(RunKey(job, generation), assignment, job_file, home, restore, user, {}, hot)
        self.runs.append(run)
        asyncio.run(self.backend.launch(run))
        return run.key

    def stop(self, key: RunKey, grace_s: float = 30.0) -> None:
        asyncio.run(self.backend.stop(key, grace_s))

    def poll(self) -> dict[RunKey, Status]:
        return {status.key: status for status in asyncio.run(self.backend.poll())}

    def wait(self, key: RunKey, condition: Callable[[Status], object]) -> Status:
        end = time.monotonic() + PATIENCE_S
        while True:
            status = self.poll()[key]
            if condition(status):
                return status
            if time.monotonic() > end or status.phase is Phase.EXITED:
                raise AssertionError(f"it never came: {status}\n{self.log(key)}\n{self.complaints(key)}")
            time.sleep(0.05)

    def end(self, key: RunKey) -> Status:
        return self.wait(key, lambda status: status.phase is Phase.EXITED)

    def folder(self, key: RunKey) -> Path:
        return self.home / "jobs" / str(key.job) / f"gen-{key.generation}"

    def log(self, key: RunKey) -> str:
        path = self.folder(key) / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def complaints(self, key: RunKey) -> str:
        return (self.folder(key) / "supervisor.log").read_text()

    def wait_log(self, key: RunKey, text: str) -> str:
        self.wait(key, lambda status: text in self.log(key))
        return self.log(key)

    def record(self, key: RunKey, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder(key) / f"{name}.json").read_text())
        return content

    def workers(self, key: RunKey) -> dict[int, int]:
        """Return the process ids of the living workers."""
        if not (self.folder(key) / "status.json").exists():
            return {}
        return {worker["worker"]: worker["pid"] for worker in self.record(key, "status")["workers"]}

    def clear(self) -> None:
        for key in {run.key for run in self.runs}:
            self.stop(key, 0.0)
        end = time.monotonic() + PATIENCE_S
        while any(s.phase is not Phase.EXITED for s in self.poll().values()) and time.monotonic() < end:
            time.sleep(0.05)
        runs, self.runs = self.runs, []
        left = {pid for run in runs for pid in self.marked(run.key)}
        for pid in left:
            kill(pid)
        assert not left, f"processes were left behind: {left}"

    def marked(self, key: RunKey) -> set[int]:
        """Return the processes of any user that carry the run's mark."""
        wanted, found = f"ARGOSY_RUN={self.marker(key)}".encode(), set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if wanted in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
        return found

    def marker(self, key: RunKey) -> str:
        path = self.folder(key) / "run.json"
        return str(json.loads(path.read_text())["marker"]) if path.exists() else "none"


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    return process_table.process(pid) is not None


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
