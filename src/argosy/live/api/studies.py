"""Routes of studies: the pages and training curves in a folder of the operator's choice.

A report is a page with scripts of its own, so it never runs as part of the dashboard: it is shown in a frame without an
origin, from an address that is hard to guess and ends soon, and its headers take away everything else.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Operator
from argosy.live.api.display import clean
from argosy.live.api.jobs import REFUSALS
from argosy.live.untrusted_files import open_below

VIEW = "/studies/view/"
TICKET_S, MOST_TICKETS = 300.0, 200
MOST_BYTES, MOST_FILES, DEEPEST = 40 * 2**20, 500, 4
SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
)
router = APIRouter(prefix="/v1/studies", tags=["dashboard"], responses=REFUSALS, dependencies=[BEARER])
frames = APIRouter(include_in_schema=False)


class StudyPath(m.In):
    path: m.Text


class Studies:
    """The folder, and the tickets with which its pages are shown."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._tickets: dict[str, tuple[str, float]] = {}

    def list(self) -> list[dict[str, Any]]:
        """Return pages and training logs, newest first; links are not followed."""
        found: list[dict[str, Any]] = []
        for top, folders, files in os.walk(self.folder or "/nonexistent", followlinks=False):
            below = Path(top).relative_to(self.folder or "/")
            folders[:] = sorted(f for f in folders if not f.startswith(".")) if len(below.parts) < DEEPEST else []
            for name in files:
                kind = "report" if name.endswith(".html") else "curves" if name.endswith(".jsonl") else ""
                about = (Path(top) / name).lstat() if kind else None
                if about is not None:
                    path = str(below / name)
                    found.append({"path": path, "kind": kind, "at": about.st_mtime, "bytes": about.st_size})
        return sorted(found, key=lambda one: -one["at"])[:MOST_FILES]

    def read(self, path: str) -> bytes:
        if self.folder is None:
            raise HTTPException(404, "this daemon shows no studies; start it with --studies FOLDER")
        handle = open_below(self.folder, self.folder / path)
        with open(handle, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise HTTPException(413, f"the file is larger than {MOST_BYTES // 2**20} MiB; open it in the folder itself")
        return content

    def ticket(self, path: str) -> str:
        now, ticket = time.monotonic(), secrets.token_urlsafe(24)
        self._tickets = {name: given for name, given in self._tickets.items() if given[1] > now}
        while len(self._tickets) >= MOST_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        self._tickets[ticket] = path, now + TICKET_S
        return ticket

    def path_of(self, ticket: str) -> str:
        path, ends = self._tickets.get(ticket, ("", 0.0))
        if time.monotonic() > ends:
            raise HTTPException(404, "this address has ended; open the study from its list again")
        return path


def _studies(request: Request) -> Studies:
    found = request.app.state.studies
    assert isinstance(found, Studies)
    return found


@router.get("", name="studies")
async def listing(request: Request, caller: Operator) -> dict[str, Any]:
    """List the reports and the training curves in the folder of studies."""
    studies = _studies(request)
    folder = None if studies.folder is None else str(studies.folder)
    return {"folder": folder, "files": clean(await asyncio.to_thread(studies.list))}


@router.post("/open", name="open-study")
async def open_study(request: Request, body: StudyPath, caller: Operator) -> dict[str, str]:
    """Return an address at which a report can be shown for some minutes."""
    studies = _studies(request)
    await asyncio.to_thread(studies.read, body.path)
    return {"address": VIEW + studies.ticket(body.path)}


@router.get("/curves", name="study-curves")
async def curves(request: Request, caller: Operator, path: Annotated[m.Text, Query()]) -> dict[str, Any]:
    """Return the numbers in a log with one JSON object a line, by name; the last two thousand lines."""
    content = await asyncio.to_thread(_studies(request).read, path)
    rows: list[dict[str, float]] = []
    for line in content.splitlines()[-2000:]:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            rows.append({str(k)[:60]: v for k, v in found.items() if isinstance(v, int | float)})
    names = sorted({name for row in rows for name in row})[:40]
    return {"rows": len(rows), "values": clean({name: [row.get(name) for row in rows][-900:] for name in names})}


@frames.get(VIEW + "{ticket}")
async def view(request: Request, ticket: str) -> Response:
    """Send a report for a frame without an origin."""
    studies = _studies(request)
    content = await asyncio.to_thread(studies.read, studies.path_of(ticket[:100]))
    told = {
        "content-security-policy": SANDBOX,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
    return Response(content, media_type="text/html; charset=utf-8", headers=told)
