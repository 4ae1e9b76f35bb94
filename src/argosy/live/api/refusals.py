"""Records refused requests in the audit log, and warns callers whose token expires soon.

This middleware wraps the guard, so that it also sees requests that the guard refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from argosy.live.api.callers import Caller, address_of
from argosy.live.api.error_responses import printable
from argosy.live.store import Actor

EXPIRES = b"x-argosy-token-expires"  # a response header, in Unix seconds
SECRET = re.compile(r"argosy-[A-Za-z0-9_-]{8,}")  # a token, which somebody may have pasted into a path by mistake
READING = frozenset({"GET", "HEAD", "OPTIONS"})
ACTION = "argosy.action"  # the key in the scope under which `fast_submit` notes the action, because it bypasses routes
MISTAKES = frozenset({404, 409, 413, 422, 429})  # recorded only for requests that change something


class Recorder:
    """An ASGI middleware around the whole application, which records refused requests."""

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
        what = printable(f"{scope['method']} {scope['path']}")  # without the query, which may contain secrets
        self.refused(by, action, SECRET.sub("argosy-…", what), SECRET.sub("argosy-…", f"{status}: {_reason(body)}"))


def _caller(scope: Scope) -> Caller | None:
    found = scope.get("state", {}).get("caller")
    return found if isinstance(found, Caller) else None


def _matters(scope: Scope, status: int) -> bool:
    """Return whether to record a refusal: wrong tokens, forbidden requests, and failed changes by people."""
    if status in (401, 403, 421):
        return True
    caller = _caller(scope)
    is_person = caller is not None and caller.role != "job"
    return status in MISTAKES and is_person and scope["method"] not in READING and _action(scope) is not None


def _action(scope: Scope) -> str | None:
    """Return the action that was asked for, as noted by whatever handled the request."""
    found = scope.get(ACTION) or getattr(scope.get("route"), "name", None)
    return None if found is None else str(found)


def _reason(body: bytes) -> str:
    """Return what the response said was wrong, without the offending value, which may be a secret."""
    try:
        return printable(str(json.loads(body)["error"]["what"]), 300)
    except (ValueError, KeyError, TypeError):
        return "refused"
