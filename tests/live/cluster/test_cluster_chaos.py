"""A whole cluster on pseudo-hosts to which everything happens: nothing is lost, and no device is used twice at once."""

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

import pytest

from argosy.live.demo.host_cluster import HostCluster, host_cluster, wait_for
from argosy.live.demo.pseudo_hosts import PseudoHost, not_possible, one_way_not_possible

pytestmark = pytest.mark.slow

JOB = Path(__file__).with_name("cluster_job.py")
EVENTS = int(os.environ.get("ARGOSY_HOST_EVENTS", "8"))
SEED = int(os.environ.get("ARGOSY_HOST_SEED", "0"))
EPOCHS, PACE_S = 30, 0.05  # of a job: 180 steps


class Chaos:
    """Does random things to a cluster, and undoes them."""

    def __init__(self, cluster: HostCluster, seed: int) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        self.hosts, self.done = cluster.network.hosts, Counter[str]()
        self.undo: list[tuple[float, Callable[[], None]]] = []
        self.hurt: set[str] = set()  # hosts that something is done to

    def event(self) -> None:
        kinds = ["daemon", "supervisor", "agent", "zygote", "worker", "cut", "host", "head"]
        kind = self.random.choice(kinds if one_way_not_possible() else [*kinds, "deafen", "silence"])
        whole = [host for host in self.hosts if host.name not in self.hurt]
        if kind == "daemon":
            self.cluster.kill_daemon()
            self.cluster.serve()
        elif kind == "head":  # rebooted: the daemon and all supervisors are killed together
            pids = self.cluster.supervisors()
            self.cluster.kill_daemon()
            self.kill(pids)
            self.cluster.serve()
        elif kind == "supervisor":
            self.kill(self.cluster.supervisors()[:1])
        elif not whole:
            return
        else:
            self.hurt_host(kind, self.random.choice(whole))
        self.done[kind] += 1

    def hurt_host(self, kind: str, host: PseudoHost) -> None:
        if kind == "agent":
            self.kill([self.cluster.agent(host)])
            self.cluster.agents[host.name].wait()
            self.cluster.start_agent(host)
        elif kind == "zygote":
            self.kill(host.processes("zygote.py")[:1])
        elif kind == "worker":
            self.kill(host.processes("zygote.py")[-1:])
        elif kind == "host":
            host.kill()
            self.later(host.name, lambda: self.boot(host))
        else:
            getattr(host, kind)()
            self.later(host.name, host.heal)

    def boot(self, host: PseudoHost) -> None:
        self.cluster.agents[host.name].wait()
        host.boot()
        self.cluster.start_agent(host)

    def kill(self, pids: list[int]) -> None:
        for pid in filter(None, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def later(self, name: str, undo: Callable[[], None]) -> None:
        self.hurt.add(name)

        def call() -> None:
            undo()
            self.hurt.discard(name)

        self.undo.append((time.monotonic() + self.random.uniform(1.0, 12.0), call))

    def tick(self, *, all_of_it: bool = False) -> None:
        due = [one for one in self.undo if all_of_it or one[0] <= time.monotonic()]
        for one in due:
            self.undo.remove(one)
            one[1]()


def state_of(cluster: HostCluster, jobs: list[int], chaos: Chaos) -> str:
    """Return what somebody needs to know who has to find out why nothing goes on."""
    found = [cluster.job(number) for number in jobs]
    waiting = [(job["id"], job["state"], job["message"], job.get("reason"), job["places"]) for job in found]
    nodes = {name: (node["state"], node["message"]) for name, node in cluster.nodes().items()}
    log = (cluster.home.folder / "daemon.log").read_text().splitlines()[-15:]
    serve = (cluster.network.folder / "serve.log").read_text().splitlines()[-5:]
    return "\n".join(map(str, [dict(chaos.done), chaos.hurt, waiting, nodes, *log, *serve]))


def undisturbed(folder: Path) -> str:
    words = [sys.executable, str(JOB), str(folder), "alone", str(EPOCHS), "0"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ARGOSY_")}
    subprocess.run(words, check=True, env=env, capture_output=True)
    return (folder / "alone.result").read_text()


def story_of(folder: Path) -> list[str]:
    """Return what the workers wrote: a line for each start, and one for each violation."""
    path = folder / "story"
    return path.read_text().splitlines() if path.exists() else []


def record(record_property: Callable[[str, object], None], done: Counter[str], jobs: int, started: int) -> None:
    """Put what was done into the report of the tests, also if it did not hold."""
    for name, times in done.items():
        record_property(f"event {name}", times)
    record_property("jobs", jobs)
    record_property("workers_started", started)


def test_nothing_is_lost_and_no_device_is_used_twice(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if why := not_possible():
        pytest.skip(why)
    expected = undisturbed(tmp_path)
    with host_cluster(4, silence="1.5s", lease="4s", policy="tiresias-las") as cluster:
        folder = cluster.network.shared / "work"
        folder.mkdir()
        chaos, jobs = Chaos(cluster, SEED), list[int]()

        def submit() -> None:
            gpus = chaos.random.choice([2, 3, 4, 6])
            run = [sys.executable, str(JOB), str(folder), f"job{len(jobs)}", str(EPOCHS), str(PACE_S)]
            spec = {"run": run, "resources": {"gpus": gpus}, "checkpoint": {"every": 2}, "grace": 10}
            jobs.append(cluster.submit(**spec, retries=50, retry_wait=0.2))

        def unfinished() -> list[int]:
            return [n for n in jobs if cluster.job(n)["state"] not in ("succeeded", "failed", "cancelled")]

        def a_job_runs() -> bool:
            chaos.tick()  # all hosts may be down, until they are healed
            return any(cluster.job(number)["state"] == "running" for number in jobs)

        try:
            for _ in range(EVENTS):
                while len(unfinished()) < 3:
                    submit()
                try:
                    wait_for(a_job_runs, "a job to run")
                except TimeoutError as problem:
                    raise AssertionError(f"{problem}; {state_of(cluster, unfinished(), chaos)}") from None
                chaos.event()
                until = time.monotonic() + chaos.random.uniform(0.2, 3.0)
                while time.monotonic() < until:
                    chaos.tick()
                    time.sleep(0.1)
            chaos.tick(all_of_it=True)
            cluster.wait_up()
            wait_for(lambda: not unfinished(), "all jobs to end", 600)
            ends = {n: cluster.job(n) for n in jobs}
        finally:
            story = story_of(folder)
            record(record_property, chaos.done, len(jobs), len(story))
        assert not [line for line in story if "VIOLATION" in line]
        assert {job["state"] for job in ends.values()} == {"succeeded"}, [job["message"] for job in ends.values()]
        results = {number: (folder / f"job{i}.result").read_text() for i, number in enumerate(jobs)}
        assert set(results.values()) == {expected}
        left = [pid for host in cluster.network.hosts for pid in host.processes(str(JOB))]
        assert not left
    assert story and sum(chaos.done.values())
