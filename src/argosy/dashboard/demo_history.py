"""Invents the history of a demonstration: jobs that have ended, with their runs, written into an empty database.

Jobs choose their GPUs in the order in which they were submitted, those that are free first. Nothing has run, and nobody
should draw conclusions from it.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from argosy.dashboard.workload import Request, request
from argosy.live.backends.base import Part
from argosy.live.spec import JobSpec
from argosy.live.states import State
from argosy.live.store import Job, RunRow, Store

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster

DAY_S = 86_400.0
ENDS = ((State.SUCCEEDED, "", 0), (State.FAILED, "", 1), (State.CANCELLED, "cancelled", None))
FAILURES = (
    ("RuntimeError: CUDA out of memory", 1),
    ("it was killed by signal 9", -9),
    ("FileNotFoundError: train.parquet", 1),
    ("node a03 is down: no answer", None),
    ("loss is NaN after 812 steps", 1),
)


def write(store: Store, cluster: Cluster, jobs: int, seed: int = 0) -> None:
    """Write the jobs of the day before now that have ended, of this many that were submitted."""
    chance, clock = random.Random(seed), store.clock
    now_s, wall = clock.now(), clock.wall()
    free = {(node.name, device): -math.inf for node in cluster.nodes for device in range(node.gpus)}  # since when
    ending: list[tuple[float, int, list[tuple[str, int]]]] = []
    rows: list[tuple[Job, RunRow]] = []
    scale = min(1.0, 0.75 * cluster.total_gpus * DAY_S / max(1, jobs) / 20_000.0)  # so that the day is busy, not full
    for i, submitted_s in enumerate(sorted(now_s - DAY_S + chance.random() * 0.99 * DAY_S for _ in range(jobs))):
        wanted, starts_s = _short_enough(chance, (now_s - submitted_s - 60.0) / scale), submitted_s + 5.0
        need = int(wanted.high)
        while len(free) < need or (ending and ending[0][0] <= starts_s):
            ended_s, _, devices = heapq.heappop(ending)
            free.update(dict.fromkeys(devices, ended_s))
        starts_s = max(starts_s, sorted(free.values())[need - 1])
        devices = sorted(device for device, since_s in free.items() if since_s <= starts_s)[:need]
        for device in devices:
            del free[device]
        lasts = max(20.0, wanted.seconds * scale)
        heapq.heappush(ending, (starts_s + lasts, i, devices))
        if starts_s + lasts < now_s:
            rows.append(_rows(chance, wanted, devices, (submitted_s, starts_s, starts_s + lasts), wall - now_s))
    with store.transaction() as changes:
        for job, run in rows:
            added = changes.add(replace(job, state=State.PENDING))
            for state in (State.STARTING, State.RUNNING, State.STOPPING):
                changes.save(replace(added, state=state))
            changes.save(replace(job, id=added.id))
            changes.save_run(replace(run, job=added.id))


def _short_enough(chance: random.Random, seconds: float) -> Request:
    """Draw a job that has probably ended by now, so that the history does not break off where the live jobs begin."""
    drawn = [request(chance)]
    while drawn[-1].seconds > seconds and len(drawn) < 30:
        drawn.append(request(chance))
    return min(drawn, key=lambda one: one.seconds) if drawn[-1].seconds > seconds else drawn[-1]


def _rows(
    chance: random.Random,
    wanted: Request,
    devices: list[tuple[str, int]],
    times: tuple[float, float, float],
    to_wall: float,
) -> tuple[Job, RunRow]:
    submitted_s, starts_s, ended_s = times
    state, message, code = chance.choices(ENDS, (86, 9, 5))[0]
    if state is State.FAILED:
        message, code = chance.choice(FAILURES)
    spec = JobSpec.model_validate(wanted.spec)
    nodes = sorted({node for node, _ in devices})
    parts = tuple(Part(node, tuple(d for n, d in devices if n == node)) for node in nodes)
    lasted, gpus = ended_s - starts_s, len(devices)
    report: dict[str, Any] = {"progress": 1.0 if state is State.SUCCEEDED else round(chance.random(), 3)}
    job = Job(
        id=0,
        name=spec.name,
        owner=wanted.owner,
        queue=spec.queue,
        priority=spec.priority,
        spec_json=json.dumps(spec.model_dump(mode="json")),
        workdir="/",
        array_id=None,
        array_index=None,
        after=(),
        gpus_low=spec.resources.gpus.low,
        gpus_high=spec.resources.gpus.high,
        submitted_s=submitted_s,
        submitted_at=submitted_s + to_wall,
        state=state,
        generation=1,
        started_s=starts_s,
        started_at=starts_s + to_wall,
        ended_s=ended_s,
        ended_at=ended_s + to_wall,
        exit_code=code,
        message=message,
        run_s=lasted,
        gpu_s=lasted * gpus,
        failures=int(state is State.FAILED),
        report=report,
    )
    run = RunRow(
        0,
        1,
        1,
        parts,
        starts_s,
        starts_s + to_wall,
        ended_s,
        running_s=starts_s + 5.0,
        ended_s=ended_s,
        ended_at=ended_s + to_wall,
        run_s=lasted,
        gpu_s=lasted * gpus,
        exit_code=code,
        message=message,
    )
    return job, run
