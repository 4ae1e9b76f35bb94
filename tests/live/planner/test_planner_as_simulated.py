"""A planner that is told exactly what a simulation does decides as the simulation did, to the second."""

from __future__ import annotations

import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.live.planner.messages import Active, Decision, JobFacts, Setup, Update
from argosy.live.planner.planner import Planner
from argosy.policies.base import POLICIES
from argosy.sim.result import CLOSING, OPENING, Result
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

CLUSTER = Cluster((Node("a", "v100", 8, 32.0), Node("b", "v100", 4, 16.0), Node("c", "p100", 4, 16.0)))
JOBS = [
    Job(
        f"j{i}",
        37.0 * (i // 2),
        60.0 + 41.0 * (i % 11),
        (1, 2, 4, 1, 8, 1)[i % 6],
        user=f"u{i % 3}",
        model=(None, "resnet50", "vgg16")[i % 3],
        cpus=1.0,
        work=60.0 + 41.0 * (i % 11),  # declared, as an expected duration is in the daemon
        min_gpus=1 if i % 2 else None,
        max_gpus=8 if i % 2 else None,
    )
    for i in range(36)
]
SETTINGS = Settings(min_run_s=20.0, measurement_noise=0.0)
READS_LOSSES = "optimus"  # the simulator makes losses up; a live job reports its own, or none


def facts(id: int, job: Job) -> JobFacts:
    return JobFacts(
        id,
        job.gpus,
        job.submit_s,
        job.job_id,
        job.user or "",
        min_gpus=job.min_gpus,
        max_gpus=job.max_gpus,
        cpus=job.cpus,
        model=job.model,
        expected_s=job.duration_s,
    )


def gpus_held(result: Result) -> dict[float, dict[int, int]]:
    """Return for each instant of a simulation the running jobs, and how many devices each holds."""
    held: dict[int, int] = {}
    moments = {}
    opening = [int(kind) for kind in OPENING]
    for (t,), rows in result.events.group_by("t", maintain_order=True):
        for (_, job, kind), event in rows.group_by("seq", "job", "kind", maintain_order=True):
            if kind in opening:
                held[int(job)] = sum(int(mask).bit_count() for mask in event["devices"])
            elif kind in [int(k) for k in CLOSING]:
                held.pop(int(job), None)
        moments[float(t)] = dict(held)
    return moments


def live(policy: str, result: Result, restart_at: int) -> dict[float, Decision]:
    """Let the same jobs arrive and end at the same times; half-way another planner takes over."""
    setup = Setup(CLUSTER, policy, SETTINGS, by_stake=False)
    planner, decisions = Planner(setup), {}
    ends = dict(enumerate(result.jobs["finish_s"].to_list()))
    moments = sorted({job.submit_s for job in JOBS} | set(ends.values()))
    wake: float | None = None
    while moments:
        now = moments[0] if wake is None else min(moments[0], wake)
        moments = [t for t in moments if t > now]
        arrived = tuple(Active(facts(i, job)) for i, job in enumerate(JOBS) if job.submit_s == now)
        decision = planner.update(Update(now, arrived, {i: "completed" for i, end in ends.items() if end == now}))
        decisions[now], wake = decision, decision.wake_at_s
        if len(decisions) == restart_at:
            planner = Planner(setup, planner.snapshot())
    return decisions


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != READS_LOSSES])
def test_the_same_decisions(policy: str) -> None:
    result = simulate(Trace.of_jobs(JOBS), CLUSTER, policy, SETTINGS)
    decisions = live(policy, result, restart_at=25)
    compared = 0
    for t, held in gpus_held(result).items():
        if t in decisions:
            running = {id: place for id, place in decisions[t].running.items() if not place.paused}
            assert {id: sum(len(p.devices) for p in place.parts) for id, place in running.items()} == held, t
            compared += 1
    starts = result.events.filter(pl.col("kind") == int(OPENING[0]))["t"].unique()
    assert set(starts) <= set(decisions) and compared >= 36
