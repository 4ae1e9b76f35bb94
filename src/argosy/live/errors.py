"""Errors of the live cluster, in addition to those of `argosy.errors`."""

from __future__ import annotations

from argosy.errors import ArgosyError, InputError


class NotFound(InputError):
    """There is no such job, node, token or log, or it is not yours to see."""


class Conflict(InputError):
    """The job is not in a state that allows this: it, or its generation, has ended."""


class NoSpace(InputError):
    """The disk is full, or nearly full, so that only running jobs may still write."""


class AlreadyServed(InputError):
    """Another daemon works on this home."""


class TokenExpired(InputError):
    """The token has expired."""


class OverLimit(InputError):
    """The user asks for more than the limits allow."""


class StoreError(ArgosyError):
    """The database cannot be used."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        self.what, self.hint = what, hint
        super().__init__(f"{what}\n  → {hint}" if hint else what)


class DatabaseLost(StoreError):
    """The database was removed, replaced or overwritten while the daemon was using it."""

    def __init__(self, what: str, hint: str | None = None, *, overwritten: bool = False) -> None:
        super().__init__(what, hint)
        self.overwritten = overwritten
