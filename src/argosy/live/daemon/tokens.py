"""Tokens identify the sender of a request. Only digests are stored; a job's token is signed, and not stored at all.

A person's token expires; before that it can be rotated, which makes a new secret and keeps the old one valid for a
while. A job's token names the job and the generation, so it ends with the run, and a daemon that was killed between
writing a start and carrying it out can make the same token again.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from argosy.errors import InputError
from argosy.live.daemon.audit import DAEMON
from argosy.live.errors import NotFound, TokenExpired
from argosy.live.home import Home
from argosy.live.store import Actor, Store, Token, Transaction

ROLES = ("user", "operator", "agent")
OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
DAY_S = 86_400.0
EXPIRES_S = 90 * DAY_S  # default lifetime of a token
WARN_S = 14 * DAY_S  # the owner is warned this long before the end, or in the last quarter of a short lifetime
_JOB = re.compile(r"argosy-job-(\d{1,15})-(\d{1,15})-([0-9a-f]{64})")


class Tokens:
    """The tokens of one home. `key` signs those of jobs."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store, self._key = store, key
        rows = store.query("SELECT digest, id, owner, role, created_at, expires_at, used_at FROM tokens ORDER BY id")
        self._by_digest = {  # kept in memory: every request needs it, and only this process changes it
            digest: Token(number, owner, role, created, expires_at=expires, used_at=used)
            for digest, number, owner, role, created, expires, used in rows
        }
        self._used: dict[int, float] = {}  # by number: the day of its last use, if not written yet

    def add(
        self, owner: str, role: str = "user", expires_s: float | None = EXPIRES_S, by: Actor = DAEMON
    ) -> tuple[Token, str]:
        """Make a token; return it with its secret, which is shown only once. `expires_s` None: it never expires."""
        if not OWNER.fullmatch(owner):
            hint = "use letters, digits, dots and dashes, 64 at most"
            raise InputError(f"{owner[:60]!r} is not a valid user name", hint=hint)
        if role not in ROLES:
            raise InputError(f"{role[:60]!r} is not a role", hint="write user, operator or agent")
        with self._store.transaction() as changes:
            token, secret = self._insert(changes, owner, role, expires_s)
            changes.audit(by, "token-add", f"token {token.id}", detail=f"{role} {owner}, expires {_day(token)}")
        self._by_digest[_digest(secret)] = token
        return token, secret

    def rotate(self, number: int, keep_old_s: float = 0.0, by: Actor = DAEMON) -> tuple[Token, str]:
        """Make a new secret with the same owner and lifetime; the old one stays valid for `keep_old_s`."""
        digest, old = self._numbered(number)
        now = self._store.clock.wall()
        ends = min(now + keep_old_s, old.expires_at or float("inf"))
        lifetime = None if old.expires_at is None else max(old.expires_at - old.created_at, DAY_S)
        with self._store.transaction() as changes:
            token, secret = self._insert(changes, old.owner, old.role, lifetime)
            changes.execute("UPDATE tokens SET expires_at = ? WHERE id = ?", (ends, number))
            told = f"becomes token {token.id}, expires {_day(token)}; the old one ends in {max(0.0, ends - now):.0f} s"
            changes.audit(by, "token-rotate", f"token {number}", detail=told)
        self._by_digest |= {digest: replace(old, expires_at=ends), _digest(secret): token}
        return token, secret

    def list(self) -> list[Token]:
        return [replace(token, used_at=self._used.get(token.id, token.used_at)) for token in self._by_digest.values()]

    def revoke(self, number: int, by: Actor = DAEMON) -> None:
        digest, token = self._numbered(number)
        with self._store.transaction() as changes:
            changes.execute("DELETE FROM tokens WHERE id = ?", (number,))
            changes.audit(by, "token-revoke", f"token {number}", detail=f"{token.role} {token.owner}")
        del self._by_digest[digest]
        self._used.pop(number, None)

    def find(self, secret: str) -> Token | None:
        """Return the token with this secret. It is looked up by digest, so that timing reveals nothing."""
        job = _JOB.fullmatch(secret)
        if job:
            return self._job(int(job[1]), int(job[2]), job[3])
        return self.by_digest(_digest(secret))

    def digest_of(self, number: int) -> str:
        """Return the digest of a token's secret, for sessions that end with the token."""
        return self._numbered(number)[0]

    def digest_of_secret(self, secret: str) -> str:
        """Return the digest of a secret, whether or not there is such a token."""
        return _digest(secret)

    def by_digest(self, digest: str) -> Token | None:
        """Return the token whose secret has this digest; raise TokenExpired if it has expired."""
        token = self._by_digest.get(digest)
        if token is None:
            return None
        now = self._store.clock.wall()
        if token.expires_at is not None and now >= token.expires_at:
            raise TokenExpired(
                f"token {token.id} of {token.owner} expired on {_day(token)}",
                hint=f"ask an operator for a new one: argosy token rotate {token.id}",
            )
        today = now - now % DAY_S
        if token.used_at != today:
            self._used[token.id] = today
        return token

    def flush(self) -> None:
        """Store on which day each token was last used."""
        if not self._used:
            return
        used, self._used = self._used, {}
        with self._store.transaction() as changes:
            changes.executemany("UPDATE tokens SET used_at = ? WHERE id = ?", [(day, n) for n, day in used.items()])
        self._by_digest = {
            digest: replace(token, used_at=used.get(token.id, token.used_at))
            for digest, token in self._by_digest.items()
        }

    def is_secret_of(self, number: int, secret: str) -> bool:
        """Return whether this is the secret of that token, expired or not."""
        token = self._by_digest.get(_digest(secret))
        return token is not None and token.id == number

    def for_run(self, job: int, generation: int) -> str:
        """Return the secret with which one generation of a job reports."""
        return f"argosy-job-{job}-{generation}-{self._signature(job, generation)}"

    def _insert(self, changes: Transaction, owner: str, role: str, expires_s: float | None) -> tuple[Token, str]:
        secret, created = "argosy-" + secrets.token_urlsafe(32), self._store.clock.wall()
        expires = None if expires_s is None else created + expires_s
        number = changes.execute(
            "INSERT INTO tokens (digest, owner, role, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
            (_digest(secret), owner, role, created, expires),
        ).lastrowid
        assert number is not None
        return Token(number, owner, role, created, expires_at=expires), secret

    def _numbered(self, number: int) -> tuple[str, Token]:
        for digest, token in self._by_digest.items():
            if token.id == number:
                return digest, token
        raise NotFound(f"there is no token {number}", hint="see argosy token list")

    def _job(self, job: int, generation: int, signature: str) -> Token | None:
        if not hmac.compare_digest(signature, self._signature(job, generation)):
            return None
        run, row = self._store.runs.get(job), self._store.jobs.get(job)
        if run is None or row is None or run.generation != generation:  # that run has ended
            return None
        return Token(0, row.owner, "job", run.launched_at, job, generation)

    def _signature(self, job: int, generation: int) -> str:
        return hmac.new(self._key, f"job {job} generation {generation}".encode(), hashlib.sha256).hexdigest()


def ensure_operator_token(tokens: Tokens, home: Home) -> None:
    """Make a token for the user who starts the daemon, unless the home has a valid one; it does not expire."""
    with suppress(TokenExpired):  # it was rotated, but the file was not updated
        if home.token.exists() and tokens.find(home.token.read_text().strip()) is not None:
            return
    _, secret = tokens.add(_whoami(), "operator", expires_s=None)
    home.write_secret(home.token, secret)


def _whoami() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.geteuid()}"


def ends_soon(token: Token, now: float) -> bool:
    """Return whether the owner should be warned that the token expires."""
    if token.expires_at is None:
        return False
    return token.expires_at - now < min(WARN_S, (token.expires_at - token.created_at) / 4)


def _day(token: Token) -> str:
    return "never" if token.expires_at is None else datetime.fromtimestamp(token.expires_at).strftime("%Y-%m-%d %H:%M")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
