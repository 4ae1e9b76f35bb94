"""Routes of pages that stay open: all jobs at once, what has changed since, and a stream of changes."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from argosy.live.api.board import COLUMNS, MOST_ROWS, Board, Place
from argosy.live.api.callers import BEARER, Caller, Person
from argosy.live.api.display import clean
from argosy.live.api.jobs import REFUSALS, service_of

EVERY_S = 0.3  # between two looks at the board
QUIET_S = 15.0  # a stream says at least something this often, so that both sides notice a broken connection
LONGEST_S = 600.0  # then the page connects again, with the number that it has reached
MOST_AT_ONCE = 2000  # lines in one event; a page that is further behind gets them in several
MOST_STREAMS, MOST_OF_ONE = 250, 60  # in all, and of one owner; further pages ask every few seconds instead
REST_S = 60.0  # the board is forgotten when nobody has looked for so long
PACK_ABOVE = 2048  # bytes

Since = Annotated[str, Query(max_length=60, pattern=r"^[0-9a-f]*(\.\d{1,15})?$", description="the last event's id")]
router = APIRouter(prefix="/v1", tags=["dashboard"], responses=REFUSALS, dependencies=[BEARER])


class Looking:
    """The board, and who looks at it."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.streams: Counter[str] = Counter()
        self._resting: asyncio.TimerHandle | None = None
        self._packed: dict[str | None, tuple[str, bytes]] = {}  # by owner: the id and the document of the last snapshot
        self._events: tuple[int, dict[tuple[int, str | None], bytes | None]] = (-1, {})  # of this number, by reader

    def look(self) -> Board:
        """Return the board, up to date; it is forgotten some time after the last look."""
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.get_running_loop().call_later(REST_S, self._rest)
        self.board.refresh()
        return self.board

    def snapshot(self, owner: str | None, state: dict[str, Any]) -> tuple[str, bytes]:
        """Return the id and the JSON lines of all jobs; pages that ask at the same time share the work."""
        board = self.look()
        id = f"{board.epoch}.{board.number}"
        if self._packed.get(owner, ("",))[0] != id:
            self._packed = {owner: (id, document(board.since(0, owner), board, state))}
        return self._packed[owner]

    def event(self, number: int, owner: str | None, state: Callable[[], dict[str, Any]]) -> bytes | None:
        """Return what has changed since a number as one event, None if it is too much; pages share the work."""
        board = self.board
        if number >= board.number:
            return b""
        if self._events[0] != board.number:
            self._events = board.number, {}
        made, reader = self._events[1], (number, owner)
        if reader not in made:
            lines = list(islice(board.since(number, owner), MOST_AT_ONCE + 1))
            data = json.dumps({"state": state()}) if lines else ""
            text = f'id: {board.epoch}.{board.number}\nevent: jobs\ndata: {data[:-1]},"rows":[{",".join(lines)}]}}\n\n'
            made[reader] = None if len(lines) > MOST_AT_ONCE else text.encode("utf-8", "replace") if lines else b""
        return made[reader]

    def _rest(self) -> None:
        if not self.streams.total():
            self.board.rest()
            self._packed.clear()


def document(lines: Iterable[str], board: Board, state: dict[str, Any]) -> bytes:
    head = json.dumps({"id": f"{board.epoch}.{board.number}", "columns": COLUMNS, "state": state})
    return f'{head[:-1]},"rows":[{",".join(lines)}]}}'.encode("utf-8", "replace")


def looking(request: Request) -> Looking:
    found = request.app.state.looking
    assert isinstance(found, Looking)
    return found


def state_of(request: Request, caller: Caller) -> dict[str, Any]:
    """Return what every screen shows: the daemon's clock, its health, and how many GPUs are held."""
    service = service_of(request)
    nodes, health, clock = service.nodes(), service.health_summary(), service.store.clock
    return {
        "now": round(clock.wall(), 2),
        "speed": request.app.state.speed,
        "ok": health["ok"],
        "problems": clean(health["problems"]) if caller.operates else [""] * len(health["problems"]),
        "policy": health["policy"],
        "gpus": sum(node.gpus for node in nodes),
        "held": round(sum(node.used_gpus for node in nodes), 2),
        "nodes": len(nodes),
        "down": sum(node.state == "down" for node in nodes),
        "draining": sum(node.state == "draining" for node in nodes),
        "places": looking(request).board.places(caller.sees),
    }


@router.get("/board", name="board")
async def board(request: Request, caller: Person, since: Since = "") -> Response:
    """Return all jobs as lines of values or, with `since`, only those that have changed."""
    seen = looking(request)
    now, number, state = seen.look(), _number(since, seen.board), state_of(request, caller)
    if number is None:
        _, content = seen.snapshot(caller.sees, state)
    else:
        content = document(now.since(number, caller.sees), now, state)
    told = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    if len(content) > PACK_ABOVE and "gzip" in request.headers.get("accept-encoding", ""):
        content = await asyncio.to_thread(gzip.compress, content, 1)
        told["content-encoding"] = "gzip"
    return Response(content, media_type="application/json", headers=told)


@router.get("/stream", include_in_schema=False)  # it does not end by itself
async def stream(request: Request, caller: Person, since: Since = "") -> StreamingResponse:
    """Send changes as server-sent events. The id of the last one, given as `since`, resumes after it."""
    seen, streams = looking(request), looking(request).streams
    if streams[caller.owner] >= MOST_OF_ONE or streams.total() >= MOST_STREAMS:
        raise HTTPException(429, "too many pages are open; this one asks every few seconds instead")
    valid: Callable[[], bool] = getattr(request.state, "still_valid", lambda: True)
    streams[caller.owner] += 1
    told = {"cache-control": "no-store", "x-accel-buffering": "no"}
    events = _events(request, seen, caller, request.headers.get("last-event-id") or since, valid)
    return _Stream(events, headers=told, media_type="text/event-stream", ended=lambda: streams.subtract([caller.owner]))


class _Stream(StreamingResponse):
    def __init__(self, content: AsyncGenerator[bytes, None], *, ended: Callable[[], None], **options: Any) -> None:
        super().__init__(content, **options)
        self._content, self._ended = content, ended

    async def __call__(self, *arguments: Any) -> None:
        try:
            await super().__call__(*arguments)
        finally:
            self._ended()
            await self._content.aclose()


async def _events(
    request: Request, seen: Looking, caller: Caller, since: str, valid: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    began = spoke = asyncio.get_running_loop().time()
    told: list[Place] = []
    yield b"retry: 1000\n\n"
    while (now := asyncio.get_running_loop().time()) - began < LONGEST_S and valid():
        board = seen.look()
        number = _number(since, board)
        if number is None:  # a new page, or a daemon that was started again: everything is new
            yield b"event: reset\ndata: {}\n\n"
            since, spoke = f"{board.epoch}.{board.number}", now
        else:
            since = f"{board.epoch}.{board.number}"
            event = seen.event(number, caller.sees, lambda: state_of(request, caller))
            places = board.places(caller.sees)  # they also change when a job of somebody else starts
            if event == b"" and (now - spoke > QUIET_S or places != told):
                data = json.dumps({"state": state_of(request, caller)})
                event = f'id: {since}\nevent: jobs\ndata: {data[:-1]},"rows":[]}}\n\n'.encode()
            if event is None or event:
                yield b"event: reset\ndata: {}\n\n" if event is None else event
                spoke, told = now, places
        await asyncio.sleep(EVERY_S)


def _number(since: str, board: Board) -> int | None:
    """Return the change that a page knows; None if it has to begin anew."""
    epoch, _, number = since.partition(".")
    return int(number) if epoch == board.epoch and number else None


assert MOST_AT_ONCE < MOST_ROWS
