"""What the audit log knows of requests that were refused, and the warning that a token will end soon.

It stands outside the guard, so that it also sees those whom the guard turns away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from argosy.live.api.callers import Caller, address_of
from argosy.live.api.error_responses import printable
from argosy.live.store import Actor

EXPIRES = b"x-argosy-token-expires"  # Unix seconds
SECRET = re.compile(r"argosy-[A-Za-z0-9_-]{8,}")  # a token where a number should stand
READING = frozenset({"GET", "HEAD", "OPTIONS"})
ACTION = "argosy.action"  # in the scope of a request that goes past the framework's routes
MISTAKES = frozenset({404, 409, 413, 422, 429})  # worth a line where something was to be changed


class Recorder:
    """An ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, refused: Callable[[Actor, str, str, str], None]) -> None:
        self.app, self.refused = app, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, body = 200, b""

        async def watch(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
                caller = _caller(scope)
                if caller is not None and caller.expires_at is not None:
                    message["headers"] = [*message["headers"], (EXPIRES, str(int(caller.expires_at)).encode())]
            elif status >= 400 and not body:
                body = message.get("body", b"")
            await send(message)

        await self.app(scope, receive, watch)
        if status >= 400 and _matters(scope, status):
            self._write(scope, status, body)

    def _write(self, scope: Scope, status: int, body: bytes) -> None:
        caller, address = _caller(scope), address_of(scope)
        by = Actor("", "", address) if caller is None else Actor(caller.owner, caller.role, address, caller.token)
        action = "authenticate" if caller is None else _action(scope) or "request"
        what = printable(f"{scope['method']} {scope['path']}")  # never the query: it may hold anything
        self.refused(by, action, SECRET.sub("argosy-…", what), SECRET.sub("argosy-…", f"{status}: {_told(body)}"))


def _caller(scope: Scope) -> Caller | None:
    found = scope.get("state", {}).get("caller")
    return found if isinstance(found, Caller) else None


def _matters(scope: Scope, status: int) -> bool:
    """Wrong tokens and what is forbidden, and whatever else a person could not change."""
    if status in (401, 403, 421):
        return True
    caller = _caller(scope)
    is_person = caller is not None and caller.role != "job"
    return status in MISTAKES and is_person and scope["method"] not in READING and _action(scope) is not None


def _action(scope: Scope) -> str | None:
    """What was asked for: whoever handled the request has noted it."""
    found = scope.get(ACTION) or getattr(scope.get("route"), "name", None)
    return None if found is None else str(found)


def _told(body: bytes) -> str:
    """What the answer said was wrong; not the offending value, which may be anybody's secret."""
    try:
        return printable(str(json.loads(body)["error"]["what"]), 300)
    except (ValueError, KeyError, TypeError):
        return "refused"
