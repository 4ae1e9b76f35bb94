"""The route on which a running job reports its progress, with a token that allows nothing else."""

from __future__ import annotations

from fastapi import APIRouter, Request

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, JobItself
from argosy.live.api.jobs import REFUSALS, JobNumber, service_of
from argosy.live.errors import NotFound

router = APIRouter(prefix="/v1/jobs", tags=["reports"], responses=REFUSALS, dependencies=[BEARER])


@router.post("/{number}/report", status_code=204)
async def report(request: Request, number: JobNumber, body: m.Report, caller: JobItself) -> None:
    """Record the progress that a run reports about itself; reports of a run that has ended are ignored."""
    if number != caller.job or caller.generation is None:
        raise NotFound(f"this token does not belong to job {number}", hint="report only the progress of the job itself")
    service_of(request).report(number, caller.generation, body.model_dump(exclude_unset=True))
