"""A daemon on Slurm and on Ray to which everything happens: nothing is lost, and no device is used twice at once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_field import HERE
from small_ray import SmallRay
from small_slurm import SmallSlurm
from test_cluster_chaos import EPOCHS, JOB, PACE_S, record, story_of, undisturbed

from argosy.live.client import Client
from argosy.live.demo.host_cluster import ARGOSY, wait_for
from argosy.live.home import Home
from argosy.live.supervisor.records import read_record

pytestmark = pytest.mark.slow(90)
EVENTS = int(os.environ.get("ARGOSY_ENGINE_EVENTS", "5"))
SEED = int(os.environ.get("ARGOSY_ENGINE_SEED", "0"))
ENDED = ("succeeded", "failed", "cancelled")


class EngineCluster:
    """A daemon by the real command, whose agents an engine starts."""

    def __init__(self, folder: Path, where: str) -> None:
        self.folder, self.home = folder, Home(folder / "home")
        self.words = ["serve", "--cluster", where, "--nodes", "3", "--shared", str(folder / "shared"), "--tls"]
        self.words += ["--home", str(self.home.folder), "--host", HERE, "--policy", "tiresias-las", "--stop-jobs"]
        self.port, self.daemon = 0, None
        self.serve()

    def serve(self) -> None:
        with (self.folder / "serve.log").open("ab") as log:
            words = [*ARGOSY, *self.words, "--port", str(self.port)]
            self.daemon: Any = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        wait_for(self._serves, "the daemon to serve")
        self.port = int(self.home.address.read_text().rpartition(":")[2])

    def _serves(self) -> bool:
        assert self.daemon.poll() is None, (self.folder / "serve.log").read_text()
        with contextlib.suppress(Exception):
            return bool(self.get("/v1/health")) and self.home.address.exists()
        return False

    def get(self, path: str) -> Any:
        with Client.find(None, self.home.folder) as client:
            return client.get(path)

    def submit(self, **job: Any) -> int:
        with Client.find(None, self.home.folder) as client:
            return int(client.post("/v1/jobs", {"jobs": [job]})["ids"][0])

    def kill_daemon(self) -> None:
        self.daemon.kill()
        self.daemon.wait()

    def supervisors(self) -> list[int]:
        found = []
        for path in (self.home.folder / "jobs").glob("*/gen-*/supervisor.json"):
            record = read_record(path)
            if record and not (path.parent / "exit.json").exists() and Path(f"/proc/{record['pid']}").exists():
                found.append(int(record["pid"]))
        return found

    def processes(self, *words: str) -> list[int]:
        """Return the processes of this machine with all these words on their command line."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if all(word in line for word in words):
                    found.append(int(path.parent.name))
        return sorted(found)

    def agents(self) -> list[int]:
        return self.processes("argosy.cli.main agent", f"{HERE}:{self.port}")

    def workers(self) -> list[int]:
        """Return the workers of this cluster's jobs, which work in its folder; other tests run at the same time."""
        found = []
        for pid in self.processes("zygote.py"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/cwd") == str(self.folder):
                    found.append(pid)
        return found

    def end(self) -> None:
        if self.daemon.poll() is not None:
            self.serve()
        self.daemon.send_signal(signal.SIGINT)
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            self.kill_daemon()


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def events_of_slurm(slurm: SmallSlurm, chance: random.Random) -> dict[str, Callable[[], None]]:
    def restart(name: str) -> None:
        slurm.kill(name)
        time.sleep(chance.uniform(0.0, 2.0))
        slurm.start(name)

    return {"slurmctld": lambda: restart("slurmctld"), "slurmd": lambda: restart(chance.choice(slurm.names))}


def events_of_ray(ray: SmallRay, chance: random.Random) -> dict[str, Callable[[], None]]:
    def lose() -> None:
        name = chance.choice(sorted(ray.nodes))
        ray.lose(name)
        time.sleep(chance.uniform(0.0, 2.0))
        ray.bring_back(name)

    return {"raylet": lose}


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_nothing_is_lost_on_an_engine(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    request.getfixturevalue(f"{engine}_engine")
    made, chance = request.getfixturevalue("slurm" if engine == "slurm" else "ray_cluster"), random.Random(SEED)
    expected, done, jobs = undisturbed(tmp_path), Counter[str](), list[int]()
    cluster = EngineCluster(tmp_path, "slurm" if engine == "slurm" else f"ray://{made.address}")
    kinds: dict[str, Callable[[], None]] = {
        "agent": lambda: kill(cluster.agents()[:1]),
        "supervisor": lambda: kill(cluster.supervisors()[:1]),
        "worker": lambda: kill(cluster.workers()[-1:]),
        "daemon": lambda: (cluster.kill_daemon(), cluster.serve())[1],
        **(events_of_slurm(made, chance) if engine == "slurm" else events_of_ray(made, chance)),
    }

    def unfinished() -> list[int]:
        return [number for number in jobs if cluster.get(f"/v1/jobs/{number}")["state"] not in ENDED]

    def submit() -> None:
        run = [sys.executable, str(JOB), str(tmp_path), f"job{len(jobs)}", str(EPOCHS), str(PACE_S)]
        spec = {"run": run, "resources": {"gpus": chance.choice([2, 3, 4])}, "checkpoint": {"every": 2}, "grace": 10}
        jobs.append(cluster.submit(**spec, retries=50, retry_wait=0.2, workdir=str(tmp_path)))

    try:
        for number in range(EVENTS):
            while len(unfinished()) < 2:
                submit()
            wait_for(lambda: any(cluster.get(f"/v1/jobs/{n}")["state"] == "running" for n in jobs), "a job to run", 180)
            kind = sorted(kinds)[number % len(kinds)] if number < len(kinds) else chance.choice(sorted(kinds))
            kinds[kind]()
            done[kind] += 1
            time.sleep(chance.uniform(0.2, 3.0))
        wait_for(lambda: not unfinished(), "all jobs to end", 600)
        ends = {n: cluster.get(f"/v1/jobs/{n}") for n in jobs}
    finally:
        cluster.end()
        story = story_of(tmp_path)
        record(record_property, done, len(jobs), len(story))
    assert not [line for line in story if "VIOLATION" in line]
    assert {job["state"] for job in ends.values()} == {"succeeded"}, [job["message"] for job in ends.values()]
    assert {(tmp_path / f"job{i}.result").read_text() for i in range(len(jobs))} == {expected}
    wait_for(lambda: not cluster.agents(), "the agents to end")
    assert not cluster.processes(str(JOB), str(tmp_path))
