"""Routes for operators: tokens, limits, the audit log and backups."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as File
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse

from argosy.cluster.limits import EVERYBODY
from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Operator, Person, actor
from argosy.live.api.jobs import REFUSALS, Before, Filter, Limit, not_json, service_of
from argosy.live.daemon.limit_enforcement import usage, usage_by_type
from argosy.live.daemon.service import Service
from argosy.live.daemon.user_limits import LimitRow
from argosy.live.store import Token

LimitOwner = Annotated[m.Text, Path(description="a user's name, or * for all users")]
TokenNumber = Annotated[int, Path(ge=1, le=m.MAX_NUMBER, description="number of a token")]
BACKUP = not_json("application/vnd.sqlite3", "a copy of the database")
router = APIRouter(prefix="/v1", tags=["administration"], responses=REFUSALS, dependencies=[BEARER])


@router.get("/tokens")
async def tokens(request: Request, caller: Operator) -> m.TokenList:
    """List all tokens, without their secrets, which are not stored."""
    return m.TokenList(tokens=[m.TokenOut.model_validate(token) for token in service_of(request).tokens.list()])


@router.post("/tokens", status_code=201, name="token-add")
async def add_token(request: Request, body: m.TokenIn, caller: Operator) -> m.NewToken:
    """Make a token; its secret is shown only once."""
    return _new(*service_of(request).tokens.add(body.owner, body.role, body.expires_s, actor(request.scope, caller)))


@router.post("/tokens/{number}/rotate", status_code=201, name="token-rotate")
async def rotate_token(request: Request, number: TokenNumber, body: m.RotationIn, caller: Operator) -> m.NewToken:
    """Make a new secret for the same owner; the old one stays valid for a while."""
    return _new(*service_of(request).rotate_token(number, body.keep_old_s, actor(request.scope, caller)))


@router.delete("/tokens/{number}", status_code=204, name="token-revoke")
async def revoke_token(request: Request, number: TokenNumber, caller: Operator) -> None:
    """Revoke a token at once."""
    service_of(request).tokens.revoke(number, actor(request.scope, caller))


@router.get("/limits", name="limits")
async def limits(request: Request, caller: Person, owner: Filter = None) -> m.LimitsList:
    """Show limits and how much of them is in use; users see only their own."""
    service = service_of(request)
    if not caller.operates and owner not in (None, caller.owner):
        raise HTTPException(403, "only operators may see the limits of other users")
    rows, used = service.limits.rows(owner if caller.operates else caller.owner), usage(service.store)
    return m.LimitsList(limits=[_limits(service, row, used) for row in rows])


@router.patch("/limits/{owner}", name="limits-set")
async def set_limits(request: Request, owner: LimitOwner, body: m.LimitsIn, caller: Operator) -> m.LimitsOut:
    """Set limits for a user; they override those of the cluster file."""
    given = body.model_dump(include=body.model_fields_set)
    service = service_of(request)
    return _limits(service, service.set_limits(owner, given, actor(request.scope, caller)), usage(service.store))


@router.delete("/limits/{owner}", status_code=204, name="limits-clear")
async def clear_limits(request: Request, owner: LimitOwner, caller: Operator) -> None:
    """Remove the limits set for a user; those of the cluster file apply again."""
    service_of(request).clear_limits(owner, actor(request.scope, caller))


@router.get("/audit", name="audit")
async def audit(
    request: Request,
    caller: Operator,
    who: Filter = None,
    job: Annotated[int | None, Query(ge=1, le=m.MAX_NUMBER, description="only entries about this job")] = None,
    since: Annotated[float | None, Query(ge=0, le=1e12, description="only entries since then, in Unix seconds")] = None,
    action: Filter = None,
    limit: Limit = 100,
    before: Before = None,
) -> m.AuditPage:
    """Show who did what, newest first, including refusals."""
    entries = service_of(request).audit.entries
    found = await asyncio.to_thread(
        entries, who=who, job=job, since=since, action=action, limit=limit + 1, before=before
    )  # in a thread, because searching a long log takes time
    page = found[:limit]
    return m.AuditPage(entries=page, next=page[-1].id if len(found) > limit else None)


@router.post("/backup", name="backup", responses=BACKUP, response_class=FileResponse)
async def backup(request: Request, caller: Operator) -> FileResponse:
    """Send a copy of the database as it is now. The daemon never writes to a path given by a caller."""
    service = service_of(request)
    folder = tempfile.TemporaryDirectory(prefix="backup-", dir=service.home.folder)
    try:
        copy = File(folder.name) / "argosy.db"
        service.audit.done(actor(request.scope, caller), "backup")
        await asyncio.to_thread(service.backup, copy)
    except BaseException:
        folder.cleanup()
        raise
    return FileResponse(
        copy, media_type="application/vnd.sqlite3", filename="argosy.db", background=BackgroundTask(folder.cleanup)
    )


def _new(token: Token, secret: str) -> m.NewToken:
    return m.NewToken(**m.TokenOut.model_validate(token).model_dump(), secret=secret)


def _limits(service: Service, row: LimitRow, used: Mapping[str, tuple[float, int]]) -> m.LimitsOut:
    queued = service.store.queued
    everybody = sum(gpus for gpus, _ in used.values()), sum(jobs for _, jobs in used.values())
    gpus, jobs = everybody if row.owner == EVERYBODY else used.get(row.owner, (0.0, 0))
    values = asdict(row.limits) | {"queues": None if row.limits.queues is None else list(row.limits.queues)}
    values["types"] = row.limits.of_types
    by_type = usage_by_type(service.store, service.limits.type_of)
    now: dict[str, float] = {}
    for owner, mine in by_type.items():
        for name, some in mine.items() if row.owner in (owner, EVERYBODY) else ():
            now[name] = now.get(name, 0.0) + some
    return m.LimitsOut(
        owner=row.owner,
        **values,
        in_file=list(row.in_file),
        set_here=list(row.set_here),
        set_by=row.set_by,
        set_at=row.set_at,
        queued_now=queued.total() if row.owner == EVERYBODY else queued[row.owner],
        running_now=jobs,
        gpus_now=gpus,
        types_now=now,
    )
