"""Routes of notices: what was sent to you about your jobs, and the secret that signs it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Person
from argosy.live.api.jobs import REFUSALS, Limit, service_of

router = APIRouter(prefix="/v1/notices", tags=["jobs"], responses=REFUSALS, dependencies=[BEARER])


@router.get("")
async def notices(request: Request, caller: Person, limit: Limit = 100) -> m.NoticeList:
    """List your newest notices; operators see those of all users."""
    service = service_of(request)
    found = [m.NoticeOut.model_validate(notice) for notice in service.notices(caller.sees, limit)]
    return m.NoticeList(notices=found, sends_mail=service.sends_mail)


@router.get("/secret")
async def secret(request: Request, caller: Person) -> m.NoticeSecret:
    """Show the secret with which your notices to web addresses are signed."""
    return m.NoticeSecret(secret=service_of(request).notice_secret(caller.owner))
