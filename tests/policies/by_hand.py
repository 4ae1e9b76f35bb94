"""Small runs and hand-made views for the tests of policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import JOB_COLUMNS, NODE_COLUMNS, Columns, Context, Losses, Part, Profile, View
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


def simulate(jobs: Sequence[Job], cluster: Cluster, policy: str | Policy, **settings: Any) -> Result:
    """Simulate without overheads, at the speeds of the trace."""
    chosen = create(policy) if isinstance(policy, str) else policy
    return Engine(Trace.of_jobs(jobs), cluster, chosen, Settings.ideal(**settings)).run()


def finish(result: Result) -> list[float]:
    """Return finish times in order of submission, rounded as far as sums of quanta are exact."""
    return [round(t, 6) for t in result.jobs["finish_s"].to_list()]


def jct(result: Result) -> list[float]:
    times = result.jobs["finish_s"] - result.jobs["submit_s"]
    return [round(t, 6) for t in times.to_list()]


def starts(result: Result) -> list[float]:
    return [round(t, 6) for t in result.jobs["first_start_s"].to_list()]


def first_places(result: Result) -> dict[str, dict[int, tuple[int, int]]]:
    """Return where each job first ran: {job: {node: (bit set of devices, thousandths of each)}}."""
    names = result.jobs["job_id"]
    places: dict[str, dict[int, tuple[int, int]]] = {}
    for row in result.events.filter(result.events["kind"] == EventKind.START).iter_rows(named=True):
        places.setdefault(names[row["job"]], {})[row["node"]] = (row["devices"], row["milli"])
    return places


def gpus_by_node(result: Result) -> dict[str, dict[int, int]]:
    return {
        job: {node: devices.bit_count() for node, (devices, _) in sorted(parts.items())}
        for job, parts in first_places(result).items()
    }


def view_of(
    policy: Policy,
    cluster: Cluster,
    columns: dict[str, Any],
    *,
    nodes: dict[str, Any] | None = None,
    profile: Profile | None = None,
    losses: dict[int, Losses] | None = None,
    parts: dict[int, list[Part]] | None = None,
    **context: Any,
) -> View:
    """A view with these job columns, for asking a policy directly; resets the policy."""
    count = len(next(iter(columns.values())))
    usual: dict[str, Any] = {
        "index": np.arange(count),
        "state": np.zeros(count, np.int64),
        "held": np.zeros(count),
        "submitted": np.zeros(count),
        "queue": np.zeros(count, np.int64),
        "user": np.zeros(count, np.int64),
        "weight": np.ones(count),
        "ps": np.zeros(count, np.int64),
        "types": np.ones(count, np.int64),
    }
    rows = {name: np.asarray(values) for name, values in (usual | columns).items()}
    jobs = Columns(rows, JOB_COLUMNS, policy.uses, policy.name)
    jobs.refresh(count)
    gpus = np.array([n.gpus for n in cluster.nodes])
    cpus, memory = (
        np.array([n.cpus for n in cluster.nodes]),
        np.array([n.memory_gib for n in cluster.nodes]),
    )
    none = np.zeros(len(gpus), np.int64)
    full: dict[str, NDArray[Any]] = {
        "gpus": gpus,
        "free": gpus,
        "cpus": cpus,
        "free_cpus": cpus,
        "memory_gib": memory,
        "free_memory_gib": memory,
        "state": none,
        "type": none,
        "owner": none - 1,
    }
    there = Columns(full | (nodes or {}), NODE_COLUMNS, policy.uses, policy.name)
    there.refresh(len(gpus))
    fixed: dict[str, Any] = {
        "gpu_types": cluster.gpu_types,
        "queues": ("default",),
        "queue_weights": np.ones(1),
        "queue_limits": np.full(1, np.inf),
        "node_gpus": gpus,
        "node_types": none,
        "total_cpus": float(cpus.sum()),
        "total_memory_gib": float(memory.sum()),
        "seed": 0,
    }
    policy.reset(Context(**(fixed | context)))
    placed, reported = parts or {}, losses or {}
    return View(jobs, there, policy.uses, profile, lambda row: placed.get(row, []), reported.__getitem__)
