"""The course of the demonstration: acts with a policy each, jobs that come in time, and the end of it all."""

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
from argosy.live.demo.workload import Cue, Role, opening

LOOK_S = 0.25
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Act:
    """The reign of a policy. The daemon of the one before is killed, not ended."""

    policy: str
    when: Cue = field(default_factory=Cue)


@dataclass(frozen=True, slots=True)
class Repair:
    """The node on which a job runs is to be emptied for a while: whoever is there has to move, or to make do."""

    of: str
    when: Cue
    lasts_s: float = 8.0


ACTS = (
    Act("drf"),  # everybody gets an equal share: elastic jobs shrink as others come
    Act("tiresias-las:limits=15,60", Cue(17)),  # who has had much leaves its place to one in a hurry
    Act("drf", Cue(0, after="urgent")),  # and grow again when there is room
)
REPAIRS = (Repair("exact-twin", Cue(6, after="urgent")),)


def play(home: Path, acts: Sequence[Act], cast: Callable[[Path], Sequence[Role]], say: Callable[[str], None], *,
         repairs: Sequence[Repair] = (), nodes: int = 2, slots: int = 2,
         moving: bool | None = None) -> tuple[Record, list[Outcome]]:
    """All of it, in the folder `home`; no process is left at the end, whatever happens."""
    folder = home / "work"
    folder.mkdir(parents=True)
    names = [f"n{n + 1}:{s}" for n in range(nodes) for s in range(slots)]
    with DemoCluster(home / "home", nodes, slots) as stage:
        say(f"starts a daemon: {nodes} nodes with {slots} slots each, policy {acts[0].policy}")
        stage.serve(acts[0].policy)
        say("warms up an interpreter: later workers are forked from it")
        write_digits(folder / "digits.pt")
        record = Record(ignored={_warm_up(stage, folder)})
        roles = cast(folder)
        record.began = time.time()
        record.mark(_name(acts[0]))
        with screen(names, say, moving) as shown:
            numbers = _run(stage, record, roles, list(acts[1:]), list(repairs), shown)
        return record, [_outcome(stage, record, number, role) for number, role in zip(numbers, roles)]


def _warm_up(stage: DemoCluster, folder: Path) -> int:
    number = stage.submit(opening(folder))
    until = time.monotonic() + LIMIT_S
    while (state := stage.client.get(f"/v1/jobs/{number}")["state"]) not in ENDED:
        if time.monotonic() > until:
            raise DemoError("not even an empty job ends; try argosy serve, and see its log")
        time.sleep(LOOK_S)
    if state != "succeeded":
        raise DemoError(f"an empty job has {state}: {stage.client.get(f'/v1/jobs/{number}')['message']}")
    return number


def _run(stage: DemoCluster, record: Record, roles: Sequence[Role], acts: list[Act], repairs: list[Repair],
         shown: Screen) -> list[int]:
    numbers: list[int] = []
    drained: dict[str, float] = {}  # nodes, and until when
    while len(numbers) < len(roles) or not record.all_ended:
        if record.now_s > LIMIT_S:
            left = [str(job["name"]) for job in record.jobs.values() if job["state"] not in ENDED]
            raise DemoError(f"{', '.join(left)} still run after {LIMIT_S:.0f} s; the demonstration is given up")
        if acts and acts[0].when.is_there(record):
            _change_policy(stage, record, acts.pop(0), shown)
        if repairs and repairs[0].when.is_there(record):
            drained |= _drain(stage, record, repairs.pop(0), shown)
        for node in [node for node, until_s in drained.items() if record.now_s >= until_s]:
            del drained[node]
            stage.client.post(f"/v1/nodes/{node}/undrain")
            shown.tell(record.now_s, f"{node} is in use again")
        while len(numbers) < len(roles) and roles[len(numbers)].when.is_there(record):
            role = roles[len(numbers)]
            shown.tell(record.now_s, f"{role.name} is submitted: {role.about}")
            numbers.append(stage.submit(role.job))
        shown.show(record, record.look(stage.client))
        time.sleep(LOOK_S)
    record.close()
    return numbers


def _change_policy(stage: DemoCluster, record: Record, act: Act, shown: Screen) -> None:
    running = sum(job["state"] == "running" for job in record.jobs.values())
    shown.tell(record.now_s, f"kill -9 of the daemon; {running} jobs go on without it")
    record.mark("killed")
    stage.kill()
    stage.serve(act.policy)
    record.mark(_name(act))
    shown.tell(record.now_s, f"a new daemon, with policy {act.policy}, finds them again")


def _drain(stage: DemoCluster, record: Record, repair: Repair, shown: Screen) -> dict[str, float]:
    running = [job for job in record.jobs.values() if job["state"] == "running" and job["places"]]
    chosen = [job for job in running if job["name"] == repair.of] or running  # on a fast machine it may be done
    if not chosen:
        return {}
    node = str(chosen[0]["places"][0]).partition(":")[0]
    shown.tell(record.now_s, f"{node} is to be repaired: its jobs have to leave")
    record.mark(f"{node} emptied")
    stage.client.post(f"/v1/nodes/{node}/drain", now=True)
    return {node: record.now_s + repair.lasts_s}


def _name(act: Act) -> str:
    return act.policy.partition(":")[0]


def _outcome(stage: DemoCluster, record: Record, number: int, role: Role) -> Outcome:
    try:
        with stage.client.stream(f"/v1/jobs/{number}/log") as (_, content):
            log = b"".join(content).decode("utf-8", "replace")
    except ClientError:
        log = ""
    return outcome(record.jobs[number], role.about, record, log)
