"""The door of the API: who asks, from where, and how much. Nothing behind it sees a request that fails here.

It stands before the framework, because that reads and parses a body before it asks who sent it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from argosy.live.api.callers import Caller
from argosy.live.api.problems import problem

MAX_BODY = 4 * 2**20
OPEN_PATHS = frozenset({"/healthz"})
_PORT = re.compile(r":\d{1,5}$")


@dataclass(frozen=True, slots=True)
class Limits:
    hosts: frozenset[str] = frozenset()  # names by which the daemon may be called, besides this machine's own
    origins: frozenset[str] = frozenset()  # web pages that may call it
    max_body: int = MAX_BODY


class Guard:
    """Checks Host, Origin, token and the size of the body, in this order."""

    def __init__(self, app: ASGIApp, *, find: Callable[[str], Caller | None], limits: Limits) -> None:
        self.app, self.find, self.limits = app, find, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.limits.max_body
        refused = self._refused(scope)
        body = await read_body(receive, most if refused is None else 0, give_up_at=4 * most)
        if refused is None and body.content is None:
            hint = f"send less than {most // 2**20} MiB, in several requests"
            refused = problem(413, "the request is too large", hint=hint)
        if refused is None:
            await self.app(scope, _again(body.content or b"", receive), send)
            return
        if not body.at_end:
            refused.headers["connection"] = "close"  # or the server would go on reading what is still to come
        await refused(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        """Why this request goes no further; otherwise who sent it stands in the scope."""
        hosts, origins = headers(scope, b"host"), headers(scope, b"origin")
        if len(hosts) != 1 or not allowed_host(hosts[0], self.limits.hosts):
            hint = "call it as 127.0.0.1 or localhost, or give its name: argosy serve --allow-host NAME"
            return problem(421, "this daemon does not answer to that host name", ", ".join(hosts), hint)
        if any(origin not in self.limits.origins for origin in origins):
            hint = "use the command line, or allow that page: argosy serve --allow-origin ORIGIN"
            return problem(403, "web pages may not call this daemon", ", ".join(origins), hint)
        if scope["path"] in OPEN_PATHS:
            return None
        caller = self._caller(headers(scope, b"authorization"))
        if caller is None:
            hint = "send `Authorization: Bearer TOKEN`; the first token is in the file `token` of the daemon's home"
            return problem(401, "no valid token", hint=hint, headers={"www-authenticate": "Bearer"})
        scope.setdefault("state", {})["caller"] = caller
        return None

    def _caller(self, given: list[str]) -> Caller | None:
        if len(given) != 1:
            return None
        scheme, _, secret = given[0].partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not 0 < len(secret) <= 200 or not secret.isascii():
            return None
        return self.find(secret)


def headers(scope: Scope, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def allowed_host(host: str, names: Collection[str]) -> bool:
    """Is this a name of ours? A page of somebody else's whose name leads here must not reach the daemon."""
    name = _PORT.sub("", host).lower()
    if name == "localhost" or name in names:
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Body:
    content: bytes | None  # None: it is too large
    at_end: bool


async def read_body(receive: Receive, limit: int, *, give_up_at: int) -> Body:
    """The whole body, if it is not too large. What is too much is thrown away, up to a point: a client that is still
    sending would otherwise see a broken connection instead of the answer."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return Body(None, at_end=True)
        size += len(message.get("body", b""))
        if size <= limit:
            chunks.append(message.get("body", b""))
        else:
            chunks.clear()
        if not message.get("more_body", False):
            return Body(b"".join(chunks) if size <= limit else None, at_end=True)
        if size > give_up_at:
            return Body(None, at_end=False)


def _again(body: bytes, receive: Receive) -> Receive:
    """Hand out the body once, then whatever comes next, such as the end of the connection."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
