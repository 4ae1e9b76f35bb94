"""Sessions of browsers: a token, or a one-time link, is exchanged for a cookie and a key.

A request must bring both. The cookie is HttpOnly; but cookies do not know ports, so a browser also sends it to any
other program on the same host that the user visits. The key is kept by the page itself, which belongs to host and port,
and travels in a header that no other page can set. It proves that the daemon's own page has sent the request, so it is
also the protection against forged requests. Both end with the token that they were made from.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace
from typing import Any

from argosy.live.daemon.tokens import Tokens
from argosy.live.errors import TokenExpired
from argosy.live.store import Actor, Store, Token

LINK_S = 120.0  # a link that has not been used by then is worth nothing
IDLE_S = 12 * 3600.0  # a session ends after this long without a request …
MOST_S = 7 * 86_400.0  # … and in any case after this
NOTED_S = 600.0  # how exactly the last use is kept on the disk
MOST_LINKS, MOST_SESSIONS = 100, 1000  # the oldest is dropped
COOKIE, KEY_HEADER = "argosy-session", b"x-argosy-key"
_META = "sessions"


@dataclass(frozen=True, slots=True)
class Session:
    token: str  # digest of the token that it was made from
    key: str  # digest of its key
    began_at: float
    used_at: float


class Sessions:
    """The sessions of one home. Their digests are in the database too, so that they survive a restart."""

    def __init__(self, store: Store, tokens: Tokens, speed: float = 1.0) -> None:
        """`speed`: seconds that pass on the clock of the store in one, so that people have as much time in any."""
        self._store, self._tokens, self._speed = store, tokens, speed
        self._links: dict[str, tuple[str, float]] = {}  # by digest: the token's digest, and when it ends
        found: dict[str, list[Any]] = store.get_meta(_META) or {}
        self._sessions = {digest: Session(*values) for digest, values in found.items()}
        self._noted_at = store.clock.wall()

    def __len__(self) -> int:
        now = self._store.clock.wall()
        return sum(self._is_live(session, now) for session in self._sessions.values())

    def link(self, token: int) -> str:
        """Return a code that signs in once, with the rights of this token."""
        code, now = secrets.token_urlsafe(32), self._store.clock.wall()
        self._links = {digest: link for digest, link in self._links.items() if link[1] > now}
        while len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        self._links[_digest(code)] = self._tokens.digest_of(token), now + LINK_S * self._speed
        return code

    def redeem(self, code: str) -> str | None:
        """Return the digest of the token that a code stands for; the code is worth nothing from then on."""
        token, ends = self._links.pop(_digest(code), ("", 0.0))
        return token if token and self._store.clock.wall() < ends else None

    def begin(self, token: str, address: str) -> tuple[str, str, Token] | None:
        """Begin a session with the token of this digest; return cookie, key and token, None if it is not valid."""
        found = self._token(token)
        if found is None or found.role == "job":
            return None
        cookie, key, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._store.clock.wall()
        live = {digest: session for digest, session in self._sessions.items() if self._is_live(session, now)}
        while len(live) >= MOST_SESSIONS:
            del live[next(iter(live))]
        self._sessions = {**live, _digest(cookie): Session(token, _digest(key), now, now)}
        self._write(Actor(found.owner, found.role, address, found.id), "sign-in")
        return cookie, key, found

    def find(self, cookie: str, key: str) -> Token | None:
        """Return the token of a session, if cookie and key belong to it and neither it nor the token has ended."""
        digest, now = _digest(cookie), self._store.clock.wall()
        session = self._sessions.get(digest)
        if session is None or not hmac.compare_digest(session.key, _digest(key)) or not self._is_live(session, now):
            return None
        if now - session.used_at > NOTED_S:
            self._sessions[digest] = replace(session, used_at=now)
            if now - self._noted_at > NOTED_S:
                self._write()
        return self._token(session.token)

    def end(self, cookie: str, by: Actor) -> None:
        """End a session: its cookie is worth nothing from now on."""
        if self._sessions.pop(_digest(cookie), None) is not None:
            self._write(by, "sign-out")

    def end_all(self, token: int, by: Actor) -> None:
        """End all sessions that were made from this token."""
        digest = self._tokens.digest_of(token)
        self._sessions = {name: session for name, session in self._sessions.items() if session.token != digest}
        self._write(by, "sign-out")

    def _token(self, digest: str) -> Token | None:
        try:
            return self._tokens.by_digest(digest)
        except TokenExpired:
            return None

    def _is_live(self, session: Session, now: float) -> bool:
        idle, lasted = now - session.used_at, now - session.began_at
        return idle < IDLE_S * self._speed and lasted < MOST_S * self._speed

    def _write(self, by: Actor | None = None, action: str = "") -> None:
        self._noted_at = self._store.clock.wall()
        values = {name: [s.token, s.key, s.began_at, s.used_at] for name, s in self._sessions.items()}
        with self._store.transaction() as changes:
            changes.meta(_META, values)
            if by is not None:
                changes.audit(by, action)


def cookie_name(host: str) -> str:
    """Return the cookie's name for a daemon called as `host`: two daemons on one host need two names."""
    port = host.rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def cookie_in(header: str, name: str) -> str:
    """Return the value of this cookie in a Cookie header, or an empty text."""
    for part in header.split(";"):
        found, _, value = part.strip().partition("=")
        if found == name:
            return value[:200]
    return ""


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
