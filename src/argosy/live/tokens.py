"""Tokens: who a request speaks for. Only digests are stored; a job's token is signed, not stored at all.

A job's token names the job and the generation, so it ends with the run, and a daemon that was killed between writing a
start and carrying it out can make the same token again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from argosy.errors import InputError
from argosy.live.problems import NotFound
from argosy.live.store import Store, Token

ROLES = ("user", "operator")
OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_JOB = re.compile(r"argosy-job-(\d{1,15})-(\d{1,15})-([0-9a-f]{64})")


class Tokens:
    """The tokens of one home. `key` signs those of jobs."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store, self._key = store, key
        rows = store.query("SELECT digest, id, owner, role, created_at FROM tokens ORDER BY id")
        self._by_digest = {digest: Token(*row) for digest, *row in rows}  # every request asks, and only we write here

    def add(self, owner: str, role: str = "user") -> tuple[Token, str]:
        """A new token and its secret, which is shown this once."""
        if not OWNER.fullmatch(owner):
            raise InputError(f"{owner[:60]!r} is no user name", hint="use letters, digits, dots and dashes, 64 at most")
        if role not in ROLES:
            raise InputError(f"{role[:60]!r} is no role", hint="write user or operator")
        secret = "argosy-" + secrets.token_urlsafe(32)
        digest, created = _digest(secret), self._store.clock.wall()
        with self._store.transaction() as changes:
            number = changes.execute(
                "INSERT INTO tokens (digest, owner, role, created_at) VALUES (?, ?, ?, ?)",
                (digest, owner, role, created),
            ).lastrowid
        assert number is not None
        added = self._by_digest[digest] = Token(number, owner, role, created)
        return added, secret

    def list(self) -> list[Token]:
        return list(self._by_digest.values())

    def revoke(self, number: int) -> None:
        with self._store.transaction() as changes:
            if not changes.execute("DELETE FROM tokens WHERE id = ?", (number,)).rowcount:
                raise NotFound(f"there is no token {number}", hint="see argosy token list")
        self._by_digest = {digest: token for digest, token in self._by_digest.items() if token.id != number}

    def find(self, secret: str) -> Token | None:
        """Whose secret this is. Looked up by digest, so the time it takes tells nothing about the secret."""
        job = _JOB.fullmatch(secret)
        if job:
            return self._job(int(job[1]), int(job[2]), job[3])
        return self._by_digest.get(_digest(secret))

    def for_run(self, job: int, generation: int) -> str:
        """The secret that one generation of a job reports with."""
        return f"argosy-job-{job}-{generation}-{self._signature(job, generation)}"

    def _job(self, job: int, generation: int, signature: str) -> Token | None:
        if not hmac.compare_digest(signature, self._signature(job, generation)):
            return None
        run, row = self._store.runs.get(job), self._store.jobs.get(job)
        if run is None or row is None or run.generation != generation:  # that run is over
            return None
        return Token(0, row.owner, "job", run.launched_at, job, generation)

    def _signature(self, job: int, generation: int) -> str:
        return hmac.new(self._key, f"job {job} generation {generation}".encode(), hashlib.sha256).hexdigest()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
