"""The demonstration on several pseudo-hosts: a gang over all of them, a cut, a healed host, and a host that dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.live.client import Client, ClientError
from argosy.live.demo.cluster import ENDED, DemoError
from argosy.live.demo.display import Screen, screen
from argosy.live.demo.host_cluster import HostCluster, host_cluster, wait_for
from argosy.live.demo.outcome import Outcome, outcome
from argosy.live.demo.pseudo_hosts import PseudoHost
from argosy.live.demo.record import Record, slots
from argosy.live.demo.scripts.digits import write_digits
from argosy.live.demo.workload import DemoJob, Moment, job
from argosy.sim.warm import warm_up

LOOK_S, LIMIT_S = 0.25, 600.0
SLOTS = 2
CUT_S, DEAD_S = 8.0, 10.0  # how long a host is cut off, and how long one is dead
POLICY = "drf"


class HostsDemo:
    """Runs the jobs, and does to the hosts what is planned."""

    def __init__(self, cluster: HostCluster, daemon: Client, record: Record, shown: Screen) -> None:
        self.cluster, self.daemon, self.record, self.shown = cluster, daemon, record, shown
        self.hurt: PseudoHost | None = None

    def run(self, jobs: list[DemoJob]) -> list[int]:
        numbers = [self.cluster.submit(**one.job) for one in jobs]
        for one in jobs:
            self.shown.tell(self.record.now_s, f"{one.name} is submitted: {one.about}")
        gang, twin = numbers
        plan: list[tuple[str, Callable[[], None], float]] = [
            ("cut", lambda: self.cut(self.host_of(gang, twin)), CUT_S),
            ("heal", self.heal, CUT_S),
            ("kill", lambda: self.kill(self.host_of(gang, twin)), DEAD_S),
            ("boot", self.boot, 0.0),
        ]
        self.watch(lambda: self.trains_everywhere(gang), "the gang trains on all hosts")
        self.rest(CUT_S / 2)
        for _, act, pause_s in plan:
            if self.record.all_ended:
                break
            act()
            self.rest(pause_s)
        self.watch(lambda: self.record.all_ended, "all jobs have ended")
        self.record.close()
        return numbers

    # -- what happens

    def cut(self, host: PseudoHost) -> None:
        self.hurt = host
        self.tell(f"{host.name} cut off", f"the cable of {host.name} is pulled out: no word gets in or out")
        host.cut()

    def heal(self) -> None:
        assert self.hurt is not None
        self.hurt.heal()
        self.tell(f"{self.hurt.name} back", f"the cable of {self.hurt.name} is in again")

    def kill(self, host: PseudoHost) -> None:
        self.hurt = host
        self.tell(f"{host.name} dies", f"{host.name} dies with everything on it")
        host.kill()

    def boot(self) -> None:
        host = self.hurt
        assert host is not None
        self.cluster.agents[host.name].wait()
        host.boot()
        self.cluster.start_agent(host)
        self.tell(f"{host.name} boots", f"{host.name} is started again, with a new agent")

    def tell(self, mark: str, text: str) -> None:
        self.record.mark(mark)
        self.shown.tell(self.record.now_s, text)

    # -- looking

    def look(self) -> None:
        self.shown.show(self.record, self.record.look(self.daemon))

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(LOOK_S)

    def watch(self, condition: Callable[[], bool], what: str) -> None:
        while True:
            self.look()
            if condition() or self.record.all_ended:
                return
            if self.record.now_s > LIMIT_S:
                raise DemoError(f"after {LIMIT_S:.0f} s it is not yet so that {what}; the demonstration is given up")
            time.sleep(LOOK_S)

    def trains_everywhere(self, number: int) -> bool:
        steps = (self.record.jobs.get(number, {}).get("report") or {}).get("step") or 0
        return steps > 0 and len(self.hosts_of(number)) == len(self.cluster.network.hosts)

    def hosts_of(self, number: int) -> set[str]:
        places = self.record.jobs.get(number, {}).get("places") or []
        return {slot.partition(":")[0] for place in places for slot in slots(place)}

    def host_of(self, gang: int, twin: int) -> PseudoHost:
        """Return a host that has workers of the gang, and not the twin."""
        chosen = sorted(self.hosts_of(gang) - self.hosts_of(twin)) or sorted(self.hosts_of(gang)) or ["h1"]
        return next(host for host in self.cluster.network.hosts if host.name == chosen[-1])


def run_hosts_demo(
    count: int, say: Callable[[str], None], *, folder: Path | None = None, moving: bool | None = None
) -> tuple[Record, list[Outcome]]:
    """Run the demonstration on this many pseudo-hosts; nothing of them is left at the end, whatever happens."""
    warm_up(say)  # or the daemon would compile kernels while we wait for it
    try:
        return _run(count, say, folder, moving)
    except TimeoutError as problem:
        raise DemoError(f"the demonstration is given up: {problem}") from None


def _run(
    count: int, say: Callable[[str], None], folder: Path | None, moving: bool | None
) -> tuple[Record, list[Outcome]]:
    say(f"makes {count} pseudo-hosts, and starts a daemon and an agent on each")
    with host_cluster(count, folder, slots=SLOTS, policy=POLICY, silence="1.5s", lease="4s") as cluster:
        work = cluster.network.shared / "work"
        work.mkdir()
        write_digits(work / "digits.pt")
        jobs = _jobs(work, count)
        names = [f"{host.name}:{slot}" for host in cluster.network.hosts for slot in range(SLOTS)]
        with cluster.client() as daemon, screen(names, say, moving) as shown:
            record = Record()
            numbers = HostsDemo(cluster, daemon, record, shown).run(jobs)
            wait_for(lambda: all(record.jobs[n]["state"] in ENDED for n in numbers), "the jobs' ends to be recorded")
            return record, [_outcome(daemon, record, n, one) for n, one in zip(numbers, jobs, strict=True)]


def _jobs(folder: Path, count: int) -> list[DemoJob]:
    exact: tuple[Any, ...] = ("--exact", "--epochs", 20)
    most = SLOTS * count - 1  # one is for the twin
    more = {"checkpoint": {"every": 3}, "retries": 20}
    gang = job("exact", "elastic", *exact, gpus=f"1..{most}", folder=folder, **more)
    twin = job("exact-twin", "elastic", *exact, gpus="1", folder=folder, **more)
    return [
        DemoJob(Moment(0), gang, f"elastic, over all {count} hosts, in exact mode"),
        DemoJob(Moment(0), twin, "exact's twin, on one slot"),
    ]


def _outcome(daemon: Client, record: Record, number: int, one: DemoJob) -> Outcome:
    try:
        with daemon.stream(f"/v1/jobs/{number}/log") as (_, content):
            log = b"".join(content).decode("utf-8", "replace")
    except ClientError:
        log = ""
    return outcome(record.jobs[number], one.about, record, log)
