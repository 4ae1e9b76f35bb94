"""Routes of the cluster: nodes, queues, history, and the daemon's health."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Caller, Operator, Person, actor
from argosy.live.api.display import clean
from argosy.live.api.jobs import REFUSALS, Before, Filter, Limit, not_json, service_of
from argosy.live.daemon.service import Service

NodeName = Annotated[m.Text, Path(description="name of a node")]
METRICS, TRACE = not_json("text/plain", "metrics in the format of Prometheus"), not_json("text/csv", "a trace")


class Csv(Response):
    media_type = "text/csv"


router = APIRouter(tags=["cluster"])
guarded = APIRouter(prefix="/v1", responses=REFUSALS, dependencies=[BEARER])


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """Say that the daemon is alive. This needs no token, so it says nothing else."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"model": m.Readiness, "description": "jobs are not being scheduled"}})
async def ready(request: Request, response: Response) -> m.Readiness:
    """Say whether jobs are being scheduled, with status 503 if not; `/v1/health`, which needs a token, says why."""
    ok = service_of(request).health_summary()["ok"]
    response.status_code = 200 if ok else 503
    return m.Readiness(status="ok" if ok else "not ready")


@router.get("/metrics", responses=METRICS, response_class=PlainTextResponse, dependencies=[BEARER])
async def metrics(request: Request, caller: Person) -> Response:
    """Return metrics of the whole cluster for Prometheus; they do not name single jobs."""
    return Response(service_of(request).metrics_text(), media_type=CONTENT_TYPE_LATEST)


@guarded.get("/health")
async def health(request: Request, caller: Person) -> dict[str, Any]:
    """Return the health of the policy, the planner and the backend."""
    summary: dict[str, Any] = clean(service_of(request).health_summary())
    return summary


@guarded.get("/nodes")
async def nodes(request: Request, caller: Person) -> m.NodeList:
    return _nodes(service_of(request), caller)


@guarded.post("/nodes/{name}/drain", name="drain")
async def drain(request: Request, name: NodeName, caller: Operator, now: bool = False) -> m.NodeList:
    """Let no more jobs start on a node. Jobs that run there go on; with `now` they are moved or suspended."""
    service_of(request).drain(name, actor(request.scope, caller), emptied=now)
    return _nodes(service_of(request), caller)


@guarded.post("/nodes/{name}/undrain", name="undrain")
async def undrain(request: Request, name: NodeName, caller: Operator) -> m.NodeList:
    """Let jobs start on a node again."""
    service_of(request).undrain(name, actor(request.scope, caller))
    return _nodes(service_of(request), caller)


@guarded.get("/queues")
async def queues(request: Request, caller: Person) -> m.QueueList:
    return m.QueueList(queues=[m.QueueOut.model_validate(queue) for queue in service_of(request).queues()])


@guarded.get("/history")
async def history(
    request: Request, caller: Person, owner: Filter = None, limit: Limit = 100, before: Before = None
) -> dict[str, Any]:
    """List jobs that have ended, newest first: how long they took and what they used."""
    whose = owner if caller.operates else caller.owner
    if owner not in (None, whose):
        return {"jobs": [], "next": None}
    found = service_of(request).history(owner=whose, limit=limit + 1, before=before)
    return {"jobs": clean(found[:limit]), "next": found[limit - 1]["id"] if len(found) > limit else None}


@guarded.get("/history.csv", responses=TRACE, response_class=Csv)
async def trace(request: Request, caller: Person) -> Response:
    """Return jobs that have ended as a trace for `argosy simulate`."""
    return Csv(await asyncio.to_thread(service_of(request).history_csv, caller.sees))


@guarded.get("/overheads.csv", responses=TRACE, response_class=Csv)
async def overheads(request: Request, caller: Person) -> Response:
    """Return how long each start, stop, move and resize of your jobs took; operators see those of all jobs."""
    return Csv(service_of(request).overheads_csv(caller.sees))


def _nodes(service: Service, caller: Caller) -> m.NodeList:
    found = service.nodes()
    if not caller.operates:
        mine = {job.id for job in service.store.jobs.values() if job.owner == caller.owner}
        found = [replace(node, jobs=tuple(job for job in node.jobs if job in mine), agent={}) for node in found]
    return m.NodeList(nodes=found)


router.include_router(guarded)
