"""Routes of logs: they send the output of a run from any position, and follow it while it is written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Person
from argosy.live.api.jobs import JobNumber, not_json, service_of, visible
from argosy.live.api.log_reader import LogFile
from argosy.live.daemon.service import Service
from argosy.live.errors import NotFound

LOOK_EVERY_S = 0.2
MAX_FOLLOWERS = 50  # for each owner, because each follower keeps a file and a connection open

router = APIRouter(prefix="/v1/jobs", tags=["logs"], dependencies=[BEARER])


class LogStream(StreamingResponse):
    """A response that closes its log when it ends, so that a client that disconnects early leaves no file open."""

    media_type = "text/plain; charset=utf-8"

    def __init__(
        self, content: AsyncGenerator[bytes, None], headers: dict[str, str], ended: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(content, headers=headers)
        self._content, self._ended = content, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
            await self._content.aclose()


@router.get("/{number}/log", responses=not_json("text/plain", "the log"), response_class=StreamingResponse)
async def log(
    request: Request,
    number: JobNumber,
    caller: Person,
    generation: Annotated[int | None, Query(ge=1, le=m.MAX_NUMBER, description="the newest run if not given")] = None,
    offset: Annotated[int, Query(ge=0, le=m.MAX_NUMBER, description="start at this byte")] = 0,
    tail: Annotated[int | None, Query(ge=0, le=m.MAX_NUMBER, description="how many of the last bytes to send")] = None,
    follow: Annotated[bool, Query(description="keep sending what is written, until the run ends")] = False,
) -> StreamingResponse:
    """Send the output of a run as bytes; the header x-argosy-offset says at which byte of the log they begin."""
    service = service_of(request)
    job = visible(service, number, caller)
    if not 1 <= (generation or job.generation) <= job.generation:
        what = f"job {number} has no run {generation}" if generation else f"job {number} has not started yet"
        raise NotFound(what, hint=f"see its state and runs: argosy status {number}")
    chosen = generation or job.generation
    path = service.log_path(number, chosen)
    reader = LogFile(service.home.folder / "jobs", path)
    if not reader.open() and not (follow and runs_still(service, number, chosen)):
        hint = f"see what happened to it: argosy status {number}"
        raise NotFound(f"run {chosen} of job {number} has written no log", hint=hint)
    size = reader.size()
    reader.at = max(0, size - tail) if tail is not None else offset if offset <= size else 0  # beyond the end: rotated
    response_headers = {
        "x-argosy-generation": str(chosen),
        "x-argosy-offset": str(reader.at),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    if not follow:
        return LogStream(_whole(reader), headers=response_headers)
    followers: Counter[str] = request.app.state.followers
    if followers[caller.owner] >= MAX_FOLLOWERS:
        reader.close()
        raise HTTPException(429, f"you already follow {MAX_FOLLOWERS} logs, which is the limit; stop following one")
    followers[caller.owner] += 1  # counted here, because more requests may arrive before this response is sent

    def ended() -> None:
        followers[caller.owner] -= 1

    return LogStream(_following(service, number, chosen, reader), response_headers, ended)


def runs_still(service: Service, number: int, generation: int) -> bool:
    run = service.store.runs.get(number)
    return run is not None and run.generation == generation


async def _whole(reader: LogFile) -> AsyncGenerator[bytes, None]:
    """Yield the log up to its size at the time of the request: a job may write faster than we send."""
    left = reader.size() - reader.at
    try:
        while left > 0 and (chunk := await asyncio.to_thread(reader.read)):
            yield chunk[:left]
            left -= len(chunk)
    finally:
        reader.close()


async def _following(service: Service, number: int, generation: int, reader: LogFile) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            last_look = not runs_still(service, number, generation)
            while chunk := await asyncio.to_thread(reader.read):
                yield chunk
            if await asyncio.to_thread(reader.renewed):
                continue
            if last_look:
                return
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        reader.close()
