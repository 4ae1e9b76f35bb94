"""A demonstration: a daemon with the fake backend, a history, and a busy day that passes sixty times as fast."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.cluster.limits import EVERYBODY, UserLimits
from argosy.dashboard import PAGES, demo_history
from argosy.dashboard.workload import QUEUES, request
from argosy.errors import ArgosyError
from argosy.live.api import create_app
from argosy.live.backends.fake import FakeBackend
from argosy.live.clock import Clock
from argosy.live.daemon.daemon import Daemon
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.store import Store

SPEED = 60.0
EVERY_S = 0.5  # how often something happens, in real seconds
LOAD = 0.8  # work that arrives, of what the cluster can do
FIRST = 88  # jobs that are there when it begins
MOST_WAITING = 90
KINDS = (("a", "a100", 22.0), ("b", "a100", 22.0), ("c", "v100", 9.6))  # first letter, GPUs, price of a node-hour
MOST_LOGS = 400  # jobs that write a log


@dataclass(frozen=True, slots=True)
class Demo:
    """How the demonstration is run."""

    home: Path
    nodes: int = 24
    ended: int = 600  # jobs in its history
    speed: float = SPEED
    port: int = 0
    policy: str = "drf"
    seed: int = 0
    first: int = FIRST
    studies: Path | None = None
    arrivals: bool = True
    clock: Clock = field(init=False)

    _began: list[float] = field(default_factory=list, init=False)  # the moment from which on time passes

    def __post_init__(self) -> None:
        began, speed, wall = self._began, self.speed, time.time()

        def passed() -> float:
            return (time.monotonic() - began[0]) * speed if began else 0.0

        object.__setattr__(self, "clock", Clock(passed, lambda: wall + passed(), _offset=2 * demo_history.DAY_S))

    def daemon(self) -> Daemon:
        """Write the history, and make the daemon."""
        home, cluster = Home(self.home), self.cluster()
        home.create()
        store = Store(home.database, self.clock)
        demo_history.write(store, cluster, self.ended, self.seed)
        store.close()
        backend = FakeBackend(cluster.nodes, clock=self.clock.now)
        app = partial(create_app, pages=PAGES, speed=self.speed, study_folder=self.studies)
        return Daemon(
            home, cluster, self.policy, backend, app=app, port=self.port, clock=self.clock, switch_users=False
        )

    def cluster(self) -> Cluster:
        nodes = tuple(
            Node(f"{row}{i // 3 + 1:02d}", kind, 8, rack=f"rack{i // 8 + 1}", price_per_hour=price)
            for i in range(self.nodes)
            for row, kind, price in [KINDS[i % 3]]
        )
        total = 8.0 * self.nodes
        queues = tuple(Queue(name, total * share) for name, share in zip(QUEUES, (0.5, 0.3, 0.2), strict=True))
        limits = UserLimits(EVERYBODY, (("gpus", 64.0),)), UserLimits("dana", (("gpus", 12.0),))
        return Cluster(nodes, "demo", queues=queues, limits=limits)

    async def run(self, ready: Callable[[Daemon], None] = lambda daemon: None) -> None:
        """Serve until Ctrl-C, while jobs arrive, fail and write logs."""
        daemon = self.daemon()
        serving = asyncio.create_task(daemon.run())
        waiting = asyncio.create_task(daemon.ready.wait())
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not serving.done():
            daemon.service.health.pass_limit_s *= self.speed
            if daemon.service.forecasts is not None:
                daemon.service.forecasts.speed = self.speed
            day = asyncio.create_task(self._day(daemon, ready))
            await asyncio.wait((serving, day), return_when=asyncio.FIRST_COMPLETED)
            daemon.stop()
            day.cancel()
            with suppress(asyncio.CancelledError):
                await day
        await serving

    async def _day(self, daemon: Daemon, ready: Callable[[Daemon], None]) -> None:
        """Submit the first jobs, and let time pass once the policy, which has to be loaded first, has placed them."""
        day = Day(self, daemon)
        day.begin()
        while self.first and daemon.service.health.decided_s is None:
            await asyncio.sleep(0.05)
        self._began.append(time.monotonic())
        ready(daemon)
        await day.run()


class Day:
    """What happens while the demonstration runs."""

    def __init__(self, demo: Demo, daemon: Daemon) -> None:
        self._demo, self._daemon, self._chance = demo, daemon, random.Random(demo.seed + 1)
        self._due_s = daemon.service.store.clock.now()
        self._down_s = self._due_s + 1500.0

    def begin(self) -> None:
        for _ in range(self._demo.first):
            self._submit()
        if self._demo.first:
            self._sweep()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            now = self._daemon.service.store.clock.now()
            if self._demo.arrivals:
                self._arrive(now)
                self._break(now)
            self._log()

    def _arrive(self, now: float) -> None:
        per_job_s = 9000.0 / (LOAD * max(self._demo.cluster().total_gpus, 1))
        while self._due_s < now:
            daytime = 1.0 + 0.6 * math.sin(self._due_s / demo_history.DAY_S * 2 * math.pi)
            self._due_s += self._chance.expovariate(daytime / per_job_s)
            if self._daemon.service.store.queued.total() < MOST_WAITING:
                self._submit()

    def _submit(self) -> None:
        wanted = request(self._chance)
        with suppress(ArgosyError):
            self._daemon.service.submit([JobSpec.model_validate(wanted.spec)], wanted.owner, "/")

    def _sweep(self) -> None:
        """Submit an array, a job that waits for another, and one that is held back."""
        service = self._daemon.service
        run = "fake seconds=2400 figures=true start_s=25"
        array = JobSpec.model_validate({"name": "lr-sweep", "run": run, "array": 24, "queue": "research"})
        first = service.submit([array], "chen", "/")[0]
        after = JobSpec.model_validate({"name": "export-best", "run": run, "after": [first], "queue": "product"})
        service.submit([after], "chen", "/")
        held = service.submit([JobSpec.model_validate({"name": "rerun-later", "run": run})], "ann", "/")
        service.control.hold(held)

    def _break(self, now: float) -> None:
        """Let a node fail for half an hour now and then, and be drained before it is trusted again."""
        backend, name = self._daemon.backend, self._demo.cluster().nodes[-1].name
        assert isinstance(backend, FakeBackend)
        if now > self._down_s + 1800.0:
            backend.node_up(name)
            self._down_s = now + 7200.0
        elif now > self._down_s:
            backend.node_down(name, "no answer for 60 s")

    def _log(self) -> None:
        """Write a line for some of the jobs that run."""
        service = self._daemon.service
        for number, run in list(service.store.runs.items())[:MOST_LOGS]:
            report = service.store.reports.get(number)
            path = service.home.log(number, run.generation)
            if report and path.exists():
                figures = " ".join(f"{name} {value:.4g}" for name, value in report.get("metrics", {}).items())
                with path.open("a") as file:
                    file.write(f"step {report.get('step', 0)} {figures}\n")
