"""Routes of estimates: when a job starts and ends, how good past estimates were, and a job not yet submitted."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from argosy.errors import InputError
from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Person
from argosy.live.api.display import clean
from argosy.live.api.jobs import REFUSALS, JobNumber, service_of, visible
from argosy.live.api.submission_checks import admitted

router = APIRouter(prefix="/v1", tags=["jobs"], responses=REFUSALS, dependencies=[BEARER])


@router.get("/jobs/{number}/eta", name="eta")
async def eta(request: Request, number: JobNumber, caller: Person) -> m.JobEta:
    """Say when a job is expected to start and to end: p10, p50 and p90 over roll-outs of the present state."""
    service = service_of(request)
    visible(service, number, caller)
    return m.JobEta.model_validate(service.eta(number))


@router.get("/eta/calibration", name="eta-calibration")
async def calibration(request: Request, caller: Person) -> m.Calibration:
    """Score the first estimate of each job against what happened: coverage of p10..p90, pinball loss."""
    return m.Calibration.model_validate(await asyncio.to_thread(service_of(request).calibration))


@router.post("/jobs/dry-run", name="dry-run")
async def dry_run(request: Request, body: m.Submission, caller: Person) -> dict[str, Any]:
    """Say when a job would start and end if it were submitted now, and the same for variants of it."""
    if len(body.jobs) != 1 or body.jobs[0].array is not None:
        raise InputError("a dry run takes one job", hint="leave out the other files and `array`")
    from pathlib import Path

    spec = admitted(body.jobs[0], Path(body.workdir) if body.workdir else None)
    answer: dict[str, Any] = clean(await service_of(request).dry_run(spec, caller.owner))
    return answer
