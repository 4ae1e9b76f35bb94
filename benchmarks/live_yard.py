"""A local backend in a folder of its own for the live benchmarks, and what its workers wrote about their steps."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from argosy.cluster.cluster import Node
from argosy.errors import ArgosyError
from argosy.live.backends.base import Assignment, Part, Phase, Run, RunKey, Status
from argosy.live.backends.local.backend import LocalBackend
from argosy.live.spec import JobSpec
from benchmarks.harness import HERE, Json

SLOTS = (("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))
PATIENCE_S = 180.0
SCRIPT = str(HERE / "live_train.py")


class Step(NamedTuple):
    t: float
    number: int
    world: int
    rank: int
    cpu_s: float  # of the worker, since it began


class Yard:
    """Use it as a context: at its end no process is left."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="argosy-bench-"))
        nodes = [Node(name, "cpu", 2, 2.0, 4.0) for name in ("n1", "n2")]
        self.backend = LocalBackend(self.folder / "home", nodes, cuda=False)
        self._version = 1
        self._last: Run | None = None

    def __enter__(self) -> Yard:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run(self._end())
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _end(self) -> None:
        await self.backend.adopt([])
        await self.backend.close()

    def launch(
        self,
        slots: int,
        *arguments: object,
        job: int = 1,
        generation: int = 1,
        restore: Sequence[str] = (),
        cold: bool = False,
    ) -> RunKey:
        work = self.work(job)
        work.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, SCRIPT, *map(str, arguments)]
        spec = JobSpec.model_validate({"run": ["/usr/bin/env", *words] if cold else words, "workdir": work})
        self._version = 1
        self._last = Run(
            RunKey(job, generation),
            place(1, slots),
            spec.model_dump(mode="json"),
            self.folder / "home" / "jobs" / str(job),
            tuple(restore),
            hot=generation > 1,
        )
        asyncio.run(self.backend.launch(self._last))
        return self._last.key

    def resize(self, slots: int) -> None:
        """Ask for another size, and do not wait for it."""
        assert self._last is not None
        run, self._version = self._last, self._version + 1
        asyncio.run(self.backend.launch(Run(run.key, place(self._version, slots), run.spec, run.home)))

    def stop(self, key: RunKey) -> None:
        asyncio.run(self.backend.stop(key, 30.0))

    def status(self, key: RunKey) -> Status:
        return next(status for status in asyncio.run(self.backend.poll()) if status.key == key)

    def wait(self, true: Callable[[], object], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not true():
            ended = self._last is not None and self.status(self._last.key).phase is Phase.EXITED
            if (ended and not true()) or time.monotonic() > until:
                raise ArgosyError(f"waited in vain for {what}\n{self._complaints()}")
            time.sleep(0.02)

    def wait_end(self, key: RunKey) -> Status:
        self.wait(lambda: self.status(key).phase is Phase.EXITED, "the end of a run")
        return self.status(key)

    def steps(self, job: int = 1) -> list[Step]:
        """What all workers have done, in order of time."""
        found = []
        for path in self.work(job).glob("steps-*"):
            for line in path.read_text().splitlines():
                words = line.split()
                if len(words) == len(Step._fields):  # the last line may not be complete yet
                    t, number, world, rank, cpu_s = words
                    found.append(Step(float(t), int(number), int(world), int(rank), float(cpu_s)))
        return sorted(found)

    def workers(self, key: RunKey) -> dict[int, int]:
        """Process numbers of the living workers."""
        path = self.folder / "home" / "jobs" / str(key.job) / f"gen-{key.generation}" / "status.json"
        return {worker["worker"]: worker["pid"] for worker in json.loads(path.read_text())["workers"]}

    def supervisor(self, key: RunKey) -> int:
        path = self.folder / "home" / "jobs" / str(key.job) / f"gen-{key.generation}" / "supervisor.json"
        return int(json.loads(path.read_text())["pid"])

    def work(self, job: int) -> Path:
        return self.folder / f"work-{job}"

    def _complaints(self) -> str:
        logs = sorted(self.folder.glob("home/jobs/*/gen-*/log"))
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in logs)


def place(version: int, slots: int) -> Assignment:
    chosen: dict[str, list[int]] = {}
    for node, device in SLOTS[:slots]:
        chosen.setdefault(node, []).append(device)
    return Assignment(version, tuple(Part(node, tuple(devices)) for node, devices in chosen.items()))


def footprint(pid: int) -> Json:
    """Open descriptors, threads and memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    words = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(words["Threads"][0]),
        "rss_mib": int(words["VmRSS"][0]) / 1024,
    }


def typical(values: Sequence[float]) -> float:
    """The median; 0 of nothing."""
    return statistics.median(values) if values else 0.0
