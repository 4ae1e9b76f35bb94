"""Routes that look into running jobs: what they use, and how to run something beside them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Person, actor
from argosy.live.api.jobs import REFUSALS, JobNumber, service_of, visible
from argosy.live.errors import Conflict

router = APIRouter(prefix="/v1", tags=["jobs"], responses=REFUSALS, dependencies=[BEARER])


@router.get("/top")
async def top(request: Request, caller: Person) -> m.Top:
    """Show what your running jobs use now; operators see the jobs of all users."""
    service = service_of(request)
    used = {} if service.inspector is None else await service.inspector.usage()
    jobs = []
    for number in sorted(service.store.runs):
        job = service.store.jobs[number]
        if caller.sees in (None, job.owner):
            view, figures = service.job(number), used.get(number, {})
            facts = {"id": view.id, "name": view.name, "owner": view.owner, "state": view.state, "places": view.places}
            jobs.append(m.TopJob.model_validate(facts | {"gpus": view.gpus, "run_s": view.run_s} | figures))
    return m.Top(jobs=jobs)


@router.get("/jobs/{number}/environment", name="enter")
async def environment(request: Request, number: JobNumber, caller: Person) -> dict[str, Any]:
    """Tell how to run a process in the environment of a running job; the process must be started as the job's user."""
    service = service_of(request)
    visible(service, number, caller)
    job = service.store.jobs.get(number)
    if job is None or service.inspector is None:
        raise Conflict(f"job {number} does not run, so there is nothing to enter", hint="see argosy queue")
    found = await service.inspector.environment(job)
    with service.store.transaction() as changes:
        changes.audit(actor(request.scope, caller), "enter", jobs=[number])
    return found
