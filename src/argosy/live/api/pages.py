"""Serves the files of the dashboard: the same to everybody, without secrets, and with headers that forbid all else.

The files are read once. Every page address gives the same document, whose scripts fetch what is to be seen.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from argosy.live.api.request_guard import headers

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SCREENS = frozenset(
    {"", "jobs", "timeline", "cluster", "people", "policy", "finished", "studies", "health", "signin"}
)  # the first part of a page's address
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFETY = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    packed: bytes  # the same, compressed
    kind: bytes
    tag: bytes


class Pages:
    """All files below a folder, by their address; the document `index.html` answers for every screen."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, PageFile] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in TYPES:
                content = path.read_bytes()
                tag = b'"' + hashlib.sha256(content).hexdigest()[:20].encode() + b'"'
                packed = gzip.compress(content, 9, mtime=0)
                name = "/pages/" + path.relative_to(folder).as_posix()
                self.files[name] = PageFile(content, packed, TYPES[path.suffix].encode(), tag)
        self.files["/favicon.ico"] = self.files["/pages/icon.svg"]

    def find(self, path: str) -> PageFile | None:
        if path in self.files:
            return self.files[path]
        screen, *rest = path.strip("/").split("/")
        is_screen = screen in SCREENS and len(rest) <= (screen == "jobs")  # /jobs/7 is the page of a job
        return self.files["/pages/index.html"] if is_screen else None


class ServePages:
    """An ASGI middleware that answers requests for pages; it runs behind the guard, which has checked the host."""

    def __init__(self, app: ASGIApp, *, pages: Pages) -> None:
        self.app, self._pages = app, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        file = self._pages.find(scope["path"]) if reading else None
        if file is None:
            await self.app(scope, receive, send)
            return
        packs = any("gzip" in value for value in headers(scope, b"accept-encoding"))
        known = file.tag.decode() in headers(scope, b"if-none-match")
        content = b"" if known or scope["method"] == "HEAD" else file.packed if packs else file.content
        told = [(b"etag", file.tag), (b"cache-control", b"no-cache"), (b"vary", b"accept-encoding"), *SAFETY]
        if not known:
            size = len(file.packed if packs else file.content)
            told += [(b"content-type", file.kind), (b"content-length", b"%d" % size)]
            told += [(b"content-encoding", b"gzip")] if packs else []
        await send({"type": "http.response.start", "status": 304 if known else 200, "headers": told})
        await send({"type": "http.response.body", "body": content})
