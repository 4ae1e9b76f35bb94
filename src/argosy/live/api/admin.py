"""For operators: tokens and backups."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path as File
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Operator
from argosy.live.api.jobs import REFUSALS, not_json, service_of

BACKUP = not_json("application/vnd.sqlite3", "the database")
router = APIRouter(prefix="/v1", tags=["administration"], responses=REFUSALS, dependencies=[BEARER])


@router.get("/tokens")
async def tokens(request: Request, caller: Operator) -> m.TokenList:
    """Whose tokens there are; their secrets are kept nowhere."""
    return m.TokenList(tokens=[m.TokenOut.model_validate(token) for token in service_of(request).tokens.list()])


@router.post("/tokens", status_code=201)
async def add_token(request: Request, body: m.TokenIn, caller: Operator) -> m.NewToken:
    """A new token; its secret is shown this once."""
    token, secret = service_of(request).tokens.add(body.owner, body.role)
    shown = m.TokenOut.model_validate(token)
    return m.NewToken(**shown.model_dump(), secret=secret)


@router.delete("/tokens/{number}", status_code=204)
async def revoke_token(
    request: Request, number: Annotated[int, Path(ge=1, le=m.MAX_NUMBER)], caller: Operator
) -> None:
    """From now on it opens nothing."""
    service_of(request).tokens.revoke(number)


@router.post("/backup", responses=BACKUP, response_class=FileResponse)
async def backup(request: Request, caller: Operator) -> FileResponse:
    """The database, whole, as it is at this moment. The daemon never writes where somebody tells it to."""
    service = service_of(request)
    folder = tempfile.TemporaryDirectory(prefix="backup-", dir=service.home.folder)
    try:
        copy = File(folder.name) / "argosy.db"
        await asyncio.to_thread(service.backup, copy)
    except BaseException:
        folder.cleanup()
        raise
    return FileResponse(
        copy, media_type="application/vnd.sqlite3", filename="argosy.db", background=BackgroundTask(folder.cleanup)
    )
