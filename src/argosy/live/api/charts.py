"""Routes of what the dashboard draws: the map of the cluster, the timeline, usage, curves, and the daemon's figures."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from argosy import __version__
from argosy.errors import ArgosyError
from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Person
from argosy.live.api.display import clean, clean_text
from argosy.live.api.jobs import REFUSALS, JobNumber, service_of, visible
from argosy.live.daemon import spans
from argosy.live.daemon.service import Service
from argosy.live.store import database
from argosy.policies.base import POLICIES, decides

Moment = Annotated[float, Query(ge=0, le=1e12, description="Unix seconds")]
router = APIRouter(prefix="/v1", tags=["dashboard"], responses=REFUSALS, dependencies=[BEARER])
NEAR = 20  # similar jobs that are shown


@router.get("/map", name="map")
async def cluster_map(request: Request, caller: Person) -> dict[str, Any]:
    """Return every node with the jobs on its devices; jobs of others are shown without number and name."""
    service = service_of(request)
    holders: dict[str, list[list[Any]]] = {}
    for number, run in service.store.runs.items():
        job = service.store.jobs[number]
        mine = caller.sees in (None, job.owner)
        who = [number, job.name, job.owner] if mine else [0, "", ""]
        for part in run.parts:
            held = [*who, list(part.devices), part.milli, int(run.paused), int(run.stop is not None)]
            holders.setdefault(part.node, []).append(held)
    nodes = [
        [n.name, n.gpu_type, n.gpus, n.state, clean_text(n.message), n.drained_by, n.rack, holders.get(n.name, [])]
        for n in service.nodes()
    ]
    return {"nodes": nodes}


@router.get("/timeline", name="timeline")
async def timeline(request: Request, caller: Person, since: Moment, until: Moment) -> dict[str, Any]:
    """Return the runs between two moments: where each was, and when."""
    store = service_of(request).store
    return await asyncio.to_thread(spans.timeline, store.path, caller.sees, since, until)


@router.get("/usage", name="usage")
async def usage(
    request: Request,
    caller: Person,
    since: Moment,
    until: Moment,
    by: Literal["owner", "queue"] = "owner",
    bins: Annotated[int, Query(ge=1, le=spans.MOST_BINS)] = 96,
) -> dict[str, Any]:
    """Return GPUs held and jobs waiting over time, and the mean price of a GPU-hour; users see their own."""
    service = service_of(request)
    path = service.store.path
    found = await asyncio.to_thread(spans.usage, path, by, caller.sees, since, max(until, since + 1), bins)
    return found | {"price_per_gpu_hour": _price(service)}


def _price(service: Service) -> float | None:
    """Return the mean price of a GPU for an hour, if the cluster file gives prices."""
    priced = [node for node in service.cluster.nodes if node.price_per_hour is not None and node.gpus]
    gpus = sum(node.gpus for node in priced)
    return round(sum(node.price_per_hour or 0.0 for node in priced) / gpus, 4) if gpus else None


@router.get("/jobs/{number}/curves", name="curves")
async def curves(request: Request, number: JobNumber, caller: Person) -> dict[str, Any]:
    """Return how the figures that a job reports have developed since the daemon started, and its checkpoints."""
    service = service_of(request)
    visible(service, number, caller)
    found = service.curves.of(number)
    saved = [{"step": c.step, "at": c.at, "seconds": c.seconds} for c in service.store.checkpoints(number)]
    return {"at": found.at, "values": clean(found.values), "checkpoints": clean(saved)}


@router.get("/jobs/{number}/similar", name="similar")
async def similar(request: Request, number: JobNumber, caller: Person) -> m.JobPage:
    """List jobs of the same owner and name, or the same model, that have ended."""
    service = service_of(request)
    job = visible(service, number, caller)
    model = job.spec.get("model")
    sql = (
        "SELECT id FROM jobs WHERE owner = ? AND ended_s IS NOT NULL AND id != ?"
        " AND (name = ? OR (? IS NOT NULL AND json_extract(spec, '$.model') = ?)) ORDER BY id DESC LIMIT ?"
    )
    numbers = [row[0] for row in service.store.query(sql, (job.owner, number, job.name, model, model, NEAR))]
    found = service.jobs(ids=numbers, limit=NEAR) if numbers else []
    return m.JobPage(jobs=[m.JobOut.model_validate(one) for one in found], next=None, counts={})


@router.get("/policy", name="policy")
async def policy(request: Request, caller: Person) -> dict[str, Any]:
    """Describe the running policy: what it decides, what it may see, and what it has cost."""
    service = service_of(request)
    name = service.health.policy
    told: dict[str, Any] = {"name": name, "problem": service.health.planner_problem if caller.operates else ""}
    try:
        kind = POLICIES[name.partition(":")[0]]
        told |= {
            "decides": decides(kind),
            "sees": sorted(kind.uses),
            "preemptive": kind.preemptive,
            "summary": kind.summary,
            "reference": kind.reference,
        }
    except (ArgosyError, KeyError):
        told["summary"] = "a policy that this process does not know"
    if caller.operates:
        told["known"] = sorted(POLICIES)  # those that may be compared and promoted
    return told | {"figures": figures(service)}


@router.get("/daemon", name="daemon")
async def daemon(request: Request, caller: Person) -> dict[str, Any]:
    """Return how the daemon itself does: passes, the policy's answers, the backend, the database and the disk."""
    service = service_of(request)
    health: dict[str, Any] = clean(service.health_summary())
    told: dict[str, Any] = {"version": __version__, "figures": figures(service), "health": health}
    if caller.operates:
        told["home"] = str(service.home.folder)
        told["disk"] = await asyncio.to_thread(_disk, service)
        told["streams"] = request.app.state.looking.streams.total()
        told["sessions"] = len(request.app.state.sessions) if request.app.state.sessions is not None else 0
    else:
        health["problems"] = [""] * len(health["problems"])  # they may name paths, and jobs of others
    return told


def figures(service: Service) -> dict[str, Any]:
    """Return counts and times since the daemon started."""
    found: dict[str, float] = {}
    buckets: dict[str, list[tuple[float, float]]] = {}
    for family in service.metrics.registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                buckets.setdefault(family.name, []).append((float(sample.labels["le"]), sample.value))
            elif not sample.labels and not sample.name.endswith("_created"):
                found[sample.name] = sample.value
            elif family.name == "argosy_errors" and sample.name.endswith("_total"):
                found[f"errors_{sample.labels['part']}"] = sample.value
    return {"counts": found, "times": buckets_without_inf(buckets)}


def buckets_without_inf(buckets: dict[str, list[tuple[float, float]]]) -> dict[str, list[tuple[float | None, float]]]:
    """Return cumulative buckets; the limit of the last one is None, because JSON has no infinity."""
    return {
        name: [(None if limit == float("inf") else limit, count) for limit, count in sorted(found)]
        for name, found in buckets.items()
    }


def _disk(service: Service) -> dict[str, Any]:
    files = [service.home.database, service.home.database.with_name("argosy.db-wal")]
    size = sum(file.stat().st_size for file in files if file.exists())
    load = os.getloadavg()[0]
    return {"database_bytes": size, "free_bytes": database.free_bytes(service.home.folder), "load": load}
