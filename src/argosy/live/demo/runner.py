"""Runs the demonstration: one policy after the other, jobs that are submitted at their times, and the cleanup."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from argosy.live.client import ClientError
from argosy.live.demo.cluster import ENDED, DemoCluster, DemoError
from argosy.live.demo.display import Screen, screen
from argosy.live.demo.outcome import Outcome, outcome
from argosy.live.demo.record import Record
from argosy.live.demo.scripts.digits import write_digits
from argosy.live.demo.workload import DemoJob, Moment, warm_up_job

LOOK_S = 0.25
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class PolicyPeriod:
    """A period with one policy. The daemon of the period before is killed, not ended in order."""

    policy: str
    when: Moment = field(default_factory=Moment)


@dataclass(frozen=True, slots=True)
class NodeRepair:
    """A repair of the node on which a job runs: it is emptied for a while, and its jobs move away or wait."""

    of: str
    when: Moment
    lasts_s: float = 8.0


PERIODS = (
    PolicyPeriod("drf"),  # equal shares: elastic jobs shrink as others come
    PolicyPeriod("tiresias-las:limits=15,60", Moment(17)),  # jobs that have had much service make room for a short one
    PolicyPeriod("drf", Moment(0, after="urgent")),  # and grow again when there is room
)
REPAIRS = (NodeRepair("exact-twin", Moment(6, after="urgent")),)


def run_demo(
    home: Path,
    periods: Sequence[PolicyPeriod],
    make_jobs: Callable[[Path], Sequence[DemoJob]],
    say: Callable[[str], None],
    *,
    repairs: Sequence[NodeRepair] = (),
    nodes: int = 2,
    slots: int = 2,
    moving: bool | None = None,
) -> tuple[Record, list[Outcome]]:
    """Run the whole demonstration in the folder `home`; no process is left at the end, whatever happens."""
    folder = home / "work"
    folder.mkdir(parents=True)
    names = [f"n{n + 1}:{s}" for n in range(nodes) for s in range(slots)]
    with DemoCluster(home / "home", nodes, slots) as cluster:
        say(f"starts a daemon: {nodes} nodes with {slots} slots each, policy {periods[0].policy}")
        cluster.serve(periods[0].policy)
        say(f"watch it in a browser, by a link that works once within two minutes:\n  {cluster.link()}")
        say("warms up an interpreter: later workers are forked from it")
        write_digits(folder / "digits.pt")
        record = Record(ignored={_warm_up(cluster, folder)})
        jobs = make_jobs(folder)
        record.began = time.time()
        record.mark(_name(periods[0]))
        with screen(names, say, moving) as shown:
            numbers = _run(cluster, record, jobs, list(periods[1:]), list(repairs), shown)
        return record, [_outcome(cluster, record, number, job) for number, job in zip(numbers, jobs)]


def _warm_up(cluster: DemoCluster, folder: Path) -> int:
    number = cluster.submit(warm_up_job(folder))
    until = time.monotonic() + LIMIT_S
    while (state := cluster.client.get(f"/v1/jobs/{number}")["state"]) not in ENDED:
        if time.monotonic() > until:
            raise DemoError("an empty job does not end; try argosy serve, and see its log")
        time.sleep(LOOK_S)
    if state != "succeeded":
        raise DemoError(f"an empty job has {state}: {cluster.client.get(f'/v1/jobs/{number}')['message']}")
    return number


def _run(
    cluster: DemoCluster,
    record: Record,
    jobs: Sequence[DemoJob],
    periods: list[PolicyPeriod],
    repairs: list[NodeRepair],
    shown: Screen,
) -> list[int]:
    numbers: list[int] = []
    drained: dict[str, float] = {}  # nodes, and until when
    while len(numbers) < len(jobs) or not record.all_ended:
        if record.now_s > LIMIT_S:
            left = [str(job["name"]) for job in record.jobs.values() if job["state"] not in ENDED]
            raise DemoError(f"{', '.join(left)} still run after {LIMIT_S:.0f} s; the demonstration is given up")
        if periods and periods[0].when.has_come(record):
            _change_policy(cluster, record, periods.pop(0), shown)
        if repairs and repairs[0].when.has_come(record):
            drained |= _drain(cluster, record, repairs.pop(0), shown)
        for node in [node for node, until_s in drained.items() if record.now_s >= until_s]:
            del drained[node]
            cluster.client.post(f"/v1/nodes/{node}/undrain")
            shown.tell(record.now_s, f"{node} is in use again")
        while len(numbers) < len(jobs) and jobs[len(numbers)].when.has_come(record):
            job = jobs[len(numbers)]
            shown.tell(record.now_s, f"{job.name} is submitted: {job.about}")
            numbers.append(cluster.submit(job.job))
        shown.show(record, record.look(cluster.client))
        time.sleep(LOOK_S)
    record.close()
    return numbers


def _change_policy(cluster: DemoCluster, record: Record, period: PolicyPeriod, shown: Screen) -> None:
    running = sum(job["state"] == "running" for job in record.jobs.values())
    shown.tell(record.now_s, f"kill -9 of the daemon; {running} jobs go on without it")
    record.mark("killed")
    cluster.kill()
    cluster.serve(period.policy)
    record.mark(_name(period))
    shown.tell(record.now_s, f"a new daemon, with policy {period.policy}, finds them again")


def _drain(cluster: DemoCluster, record: Record, repair: NodeRepair, shown: Screen) -> dict[str, float]:
    running = [job for job in record.jobs.values() if job["state"] == "running" and job["places"]]
    chosen = [job for job in running if job["name"] == repair.of] or running  # on a fast machine it may be done
    if not chosen:
        return {}
    node = str(chosen[0]["places"][0]).partition(":")[0]
    shown.tell(record.now_s, f"{node} is to be repaired: its jobs have to leave")
    record.mark(f"{node} emptied")
    cluster.client.post(f"/v1/nodes/{node}/drain", now=True)
    return {node: record.now_s + repair.lasts_s}


def _name(period: PolicyPeriod) -> str:
    return period.policy.partition(":")[0]


def _outcome(cluster: DemoCluster, record: Record, number: int, job: DemoJob) -> Outcome:
    try:
        with cluster.client.stream(f"/v1/jobs/{number}/log") as (_, content):
            log = b"".join(content).decode("utf-8", "replace")
    except ClientError:
        log = ""
    return outcome(record.jobs[number], job.about, record, log)
