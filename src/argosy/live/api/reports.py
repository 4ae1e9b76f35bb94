"""The route on which a job reports about itself, with a token that allows nothing else."""

from __future__ import annotations

from fastapi import APIRouter, Request

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, JobItself
from argosy.live.api.jobs import REFUSALS, JobNumber, service_of
from argosy.live.errors import NotFound

router = APIRouter(prefix="/v1/jobs", tags=["reports"], responses=REFUSALS, dependencies=[BEARER])


@router.post("/{number}/report", status_code=204)
async def report(request: Request, number: JobNumber, body: m.Report, caller: JobItself) -> None:
    """Report progress of a run, from the run itself; a run that has ended changes nothing."""
    if number != caller.job or caller.generation is None:
        raise NotFound(f"there is no job {number} that this token speaks for", hint="report for your own job")
    service_of(request).report(number, caller.generation, body.model_dump(exclude_unset=True))
