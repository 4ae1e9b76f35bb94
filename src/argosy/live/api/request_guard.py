"""Guards the API: checks host, origin, token, rate and size of every request before anything else handles it.

It is in front of the framework, because the framework parses a body before it checks who sent it.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from argosy.live.api.callers import Caller
from argosy.live.api.error_responses import problem
from argosy.live.api.rate_limits import Buckets, Rate
from argosy.live.api.sessions import KEY_HEADER, cookie_in, cookie_name
from argosy.live.errors import TokenExpired

MAX_BODY = 4 * 2**20
USER_RATE = Rate(200.0, 1000.0)  # for all tokens of one owner; operators have no limit
JOB_RATE = Rate(20.0, 200.0)  # for the token of one job
WRONG_TOKEN_RATE = Rate(5.0, 100.0)  # for requests without a valid token from one address
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
SIGN_IN = "/v1/session"  # a POST here needs no token yet: its body brings one
OWN_PAGE = frozenset({"same-origin", "none"})  # what browsers say of requests by the daemon's own page
_PORT = re.compile(r":\d{1,5}$")


@dataclass(frozen=True, slots=True)
class Limits:
    hosts: frozenset[str] = frozenset()  # names of the daemon in addition to localhost and loopback addresses
    origins: frozenset[str] = frozenset()  # web pages that may call it
    max_body: int = MAX_BODY
    user_rate: Rate = USER_RATE
    job_rate: Rate = JOB_RATE
    wrong_token_rate: Rate = WRONG_TOKEN_RATE


@dataclass(frozen=True, slots=True)
class Browser:
    """What the guard needs to let the daemon's own pages in."""

    is_page: Callable[[str], bool]  # whether a path is a file of the pages, which have no secrets
    find: Callable[[str, str], Caller | None]  # by the cookie and the key of a session


class Guard:
    """Checks Host, Origin, token or session, the rate of requests and the size of the body, in this order."""

    def __init__(
        self, app: ASGIApp, *, find: Callable[[str], Caller | None], limits: Limits, browser: Browser | None = None
    ) -> None:
        self.app, self.find, self.limits, self.browser = app, find, limits, browser
        self._users, self._jobs = Buckets(limits.user_rate), Buckets(limits.job_rate)
        self._strangers = Buckets(limits.wrong_token_rate)

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
            hint = f"send at most {most // 2**20} MiB in one request, and the rest in others"
            refused = problem(413, "the body of the request is too large", hint=hint)
        if refused is None:
            await self.app(scope, replay(body.content or b"", receive), send)
            return
        if not body.at_end:
            refused.headers["connection"] = "close"  # otherwise the server would read the rest of the body
        await refused(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        """Return the response that refuses this request, or None after noting its caller in the scope."""
        hosts, origins = headers(scope, b"host"), headers(scope, b"origin")
        if len(hosts) != 1 or not allowed_host(hosts[0], self.limits.hosts):
            hint = "call it as 127.0.0.1 or localhost, or start the daemon with --allow-host NAME"
            return problem(421, "this daemon is not available under that host name", ", ".join(hosts), hint)
        own = {f"{scheme}://{hosts[0]}" for scheme in ("http", "https")} if self.browser is not None else set()
        if any(origin not in self.limits.origins | own for origin in origins):
            hint = "use the command line, or start the daemon with --allow-origin ORIGIN"
            return problem(403, "web pages of this origin may not call the daemon", ", ".join(origins), hint)
        if scope["path"] in OPEN_PATHS:
            return None
        if self.browser is not None and self.browser.is_page(scope["path"]) and scope["method"] in ("GET", "HEAD"):
            return None
        if self.browser is not None and scope["path"] == SIGN_IN and scope["method"] == "POST":
            wait_s = self._strangers.take((scope.get("client") or ("",))[0])
            return _too_many("too many attempts to sign in", "wait a moment", wait_s) if wait_s else None
        given = headers(scope, b"authorization")
        try:
            caller = self._caller(given) or (self._of_session(scope, hosts[0]) if not given else None)
        except TokenExpired as over:
            return problem(401, over.what, hint=over.hint, headers={"www-authenticate": "Bearer"})
        if caller is None:
            hint = "send `Authorization: Bearer TOKEN`; the first token is in the file `token` of the daemon's home"
            if wait_s := self._strangers.take((scope.get("client") or ("",))[0]):
                return _too_many("too many requests without a valid token", hint, wait_s)
            return problem(401, "no valid token", hint=hint, headers={"www-authenticate": "Bearer"})
        if wait_s := self._over_rate(caller):
            return _too_many("too many requests", "send fewer requests, or submit many jobs in one request", wait_s)
        scope.setdefault("state", {})["caller"] = caller
        return None

    def _of_session(self, scope: Scope, host: str) -> Caller | None:
        """Return the caller whose session the request belongs to, if the daemon's own page has sent it."""
        keys, cookies = headers(scope, KEY_HEADER), headers(scope, b"cookie")
        if self.browser is None or len(keys) != 1 or len(keys[0]) > 200 or len(cookies) != 1:
            return None
        if any(site not in OWN_PAGE for site in headers(scope, b"sec-fetch-site")):
            return None
        cookie = cookie_in(cookies[0], cookie_name(host))
        found = self.browser.find(cookie, keys[0]) if cookie else None
        if found is not None:
            find = self.browser.find
            scope.setdefault("state", {})["still_valid"] = lambda: find(cookie, keys[0]) is not None
        return found

    def _over_rate(self, caller: Caller) -> float:
        """Return the seconds until this caller may send a request; 0 if the rate allows this one."""
        if caller.job is not None:
            return self._jobs.take(caller.job)
        return 0.0 if caller.operates else self._users.take(caller.owner)

    def _caller(self, given: list[str]) -> Caller | None:
        if len(given) != 1:
            return None
        scheme, _, secret = given[0].partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not 0 < len(secret) <= 200 or not secret.isascii():
            return None
        return self.find(secret)


def _too_many(what: str, hint: str, wait_s: float) -> Response:
    return problem(429, what, hint=hint, headers={"retry-after": str(max(1, math.ceil(wait_s)))})


def headers(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def allowed_host(host: str, names: Collection[str]) -> bool:
    """Return whether this is a name of the daemon; a web page whose name resolves to our address is kept out."""
    name = _PORT.sub("", host).lower()
    if name == "localhost" or name in names:
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Body:
    content: bytes | None  # None: too large, or the client has disconnected
    at_end: bool


async def read_body(receive: Receive, limit: int, *, give_up_at: int) -> Body:
    """Read the whole body if it has at most `limit` bytes.

    A larger body is read and dropped, up to `give_up_at` bytes: otherwise a client that is still sending would see a
    broken connection instead of the response.
    """
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


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body once, then the messages that follow, such as a disconnect."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
