"""A home as a daemon leaves it that has run jobs on one GPU, first come, first served: for commands about the past."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from argosy.cluster.cluster import Cluster
from argosy.live.backends.base import Part
from argosy.live.clock import Clock
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.spec import JobSpec
from argosy.live.states import State
from argosy.live.store import RunRow, Store
from argosy.live.store.schema import NODES, POLICY


def history(home: Path, jobs: int = 40, startup_s: float = 0.0, delay_s: float = 0.0) -> Path:
    """Write the database. Each run starts `delay_s` after the one before it, and works after `startup_s`."""
    place = Home(home)
    place.create()
    store = Store(place.database, Clock(), create=True)
    cluster = Cluster.uniform(1, 1, "gpu")
    service = Service(store, place, cluster)
    free_s = 0.0
    with store.transaction() as changes:
        changes.meta(NODES, [asdict(node) for node in cluster.nodes])
        changes.meta(POLICY, "fifo")
    for number in range(1, jobs + 1):
        service.submit([JobSpec(run="x", name=f"job-{number % 3}")], "ann" if number % 2 else "bob")
        at_s, seconds = 100.0 * number, startup_s + (300.0 if number % 4 == 1 else 20.0)
        start_s = max(at_s, free_s + delay_s)
        free_s = start_s + seconds
        with store.transaction() as changes:
            job = changes.job(number)
            assert job
            job = replace(job, submitted_s=at_s, submitted_at=at_s, started_s=start_s, generation=1)
            for state in (State.STARTING, State.RUNNING, State.SUCCEEDED):
                job = replace(job, state=state)
                changes.save(job)
            changes.save(replace(job, ended_s=free_s, ended_at=free_s, run_s=seconds, gpu_s=seconds))
            parts = (Part(cluster.nodes[0].name, (0,)),)
            times = {"running_s": start_s + startup_s, "ended_s": free_s}
            run = RunRow(number, 1, 1, parts, start_s, start_s, free_s, **times)
            changes.save_run(replace(run, run_s=seconds, gpu_s=seconds))
            changes.execute("UPDATE jobs SET submitted_s = ?, submitted_at = ? WHERE id = ?", (at_s, at_s, number))
    with store.transaction() as changes:
        changes.overhead("", "start", 0.5)
    store.close()
    return home
