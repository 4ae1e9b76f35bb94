"""Results written down by hand, for tests of everything that reads them: no engine involved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.sim.result import EVENT_COLUMNS, JOB_COLUMNS, EventKind, Result

ENDINGS = {"completed": EventKind.FINISH, "failed": EventKind.FAIL, "killed": EventKind.KILL}


@dataclass(frozen=True)
class Stint:
    """A period on devices: `on` maps a node's index to the devices used there."""

    start_s: float
    end_s: float
    on: Mapping[int, Sequence[int]]
    milli: int = 1000

    @property
    def gpu_s(self) -> float:
        devices = sum(len(devices) for devices in self.on.values())
        return devices * self.milli / 1000 * (self.end_s - self.start_s)


@dataclass(frozen=True)
class HandJob:
    """A job and its stints. Where two stints touch it was moved, where they leave a gap it was preempted."""

    job_id: str
    submit_s: float
    stints: Sequence[Stint] = ()
    gpus: float = 1.0
    alone_s: float = 10.0
    status: str = "completed"
    more: Mapping[str, Any] = field(default_factory=dict)  # any other column of JOB_COLUMNS


def by_hand(
    jobs: Sequence[HandJob],
    cluster: Cluster,
    *,
    end_s: float | None = None,
    policy: str = "fifo",
    seed: int = 0,
    uses: tuple[str, ...] = ("demand",),
    node_events: Sequence[tuple[float, EventKind, int]] = (),
    decision_ns: Sequence[int] = (1000,),
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """A Result with a consistent event log and job table."""
    last = max((stint.end_s for job in jobs for stint in job.stints), default=0.0)
    end = max([last, *(job.submit_s for job in jobs)]) if end_s is None else end_s
    log: list[tuple[float, EventKind, int, Mapping[int, Sequence[int]], int]] = [
        (t, kind, -1, {node: ()}, 0) for t, kind, node in node_events
    ]
    rows = []
    for index, job in enumerate(jobs):
        log.append((job.submit_s, EventKind.SUBMIT, index, {-1: ()}, 0))
        for place, stint in enumerate(job.stints):
            touches = place > 0 and job.stints[place - 1].end_s == stint.start_s
            opening = EventKind.START if place == 0 else EventKind.MIGRATE if touches else EventKind.RESUME
            log.append((stint.start_s, opening, index, stint.on, stint.milli))
            if place + 1 < len(job.stints):
                if job.stints[place + 1].start_s > stint.end_s:
                    log.append((stint.end_s, EventKind.PREEMPT, index, stint.on, stint.milli))
            elif job.status in ENDINGS:
                log.append((stint.end_s, ENDINGS[job.status], index, stint.on, stint.milli))
        held = sum(stint.gpu_s for stint in job.stints)
        rows.append(
            dict.fromkeys(JOB_COLUMNS)
            | {"job_id": job.job_id, "gpus": job.gpus, "submit_s": job.submit_s, "alone_s": job.alone_s}
            | {"first_start_s": job.stints[0].start_s if job.stints else None, "status": job.status}
            | {"finish_s": job.stints[-1].end_s if job.status in ENDINGS else None}
            | {"held_gpu_s": held, "useful_gpu_s": held}
            | dict.fromkeys(("overhead_gpu_s", "interference_gpu_s", "lost_gpu_s"), 0.0)
            | dict.fromkeys(("preemptions", "migrations", "resizes", "faults"), 0)
            | dict(job.more)
        )
    log.sort(key=lambda entry: entry[0])  # stable: a job's own events keep their order
    events = [
        (seq, t, int(kind), job_row, node, 48 * word, sum(1 << d % 48 for d in devices if d // 48 == word), milli, 0.0)
        for seq, (t, kind, job_row, on, milli) in enumerate(log)
        for node, devices in on.items()
        for word in sorted({d // 48 for d in devices}) or [0]
    ]
    return Result(
        policy=policy,
        seed=seed,
        trace="by hand",
        cluster=cluster,
        uses=uses,
        jobs=pl.DataFrame(rows, schema=JOB_COLUMNS),
        events=pl.DataFrame(events, schema=EVENT_COLUMNS, orient="row"),
        end_s=end,
        decision_ns=np.array(decision_ns, dtype=np.int64),
        settings=dict(settings or {}),
    )


def list_scheduled(
    policy: str,
    seed: int,
    *,
    jobs: int = 80,
    nodes: int = 4,
    gpus: int = 4,
    shortest_first: bool = False,
    load: float = 1.0,
) -> Result:
    """A random workload, list-scheduled: in some order, each job takes the devices that are free first.
    Equal seeds give equal jobs whatever the order, as in a real comparison."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 1, 1, 2, 4, min(8, nodes * gpus)], jobs)
    lengths = np.round(rng.lognormal(5.0, 1.2, jobs) + 1.0, 1)
    submits = np.sort(rng.uniform(0.0, float((sizes * lengths).sum()) / (nodes * gpus) / load, jobs))
    queues = rng.choice(["vision", "speech", "research"], jobs)
    free_at = np.zeros(nodes * gpus)
    stints: dict[int, Stint] = {}
    hour = submits // 600.0
    order = np.lexsort((lengths, hour)) if shortest_first else np.arange(jobs)
    for job in order:
        devices = np.argsort(free_at, kind="stable")[: sizes[job]]
        start = max(float(submits[job]), float(free_at[devices].max()))
        end = start + float(lengths[job])
        free_at[devices] = end
        on: dict[int, list[int]] = {}
        for device in sorted(devices.tolist()):
            on.setdefault(device // gpus, []).append(device % gpus)
        stints[int(job)] = Stint(start, end, on)
    hand = [
        HandJob(
            f"job-{i}",
            float(submits[i]),
            [stints[i]],
            float(sizes[i]),
            float(lengths[i]),
            more={"queue": str(queues[i])},
        )
        for i in range(jobs)
    ]
    uses = ("demand", "duration") if shortest_first else ("demand",)
    cluster = Cluster.uniform(nodes, gpus)
    return by_hand(hand, cluster, policy=policy, seed=seed, uses=uses, settings={"placer": "first-fit"})
