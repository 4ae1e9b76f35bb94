"""What can go wrong between a person and the daemon, beside plain wrong input."""

from __future__ import annotations

from argosy.errors import ArgosyError, InputError


class NotFound(InputError):
    """There is no such job, node, token or log, or it is not yours to see."""


class Conflict(InputError):
    """It exists, but is in no state for this: ended already, or of a generation that is over."""


class NoSpace(InputError):
    """The disk is full, or so nearly that only running jobs may still write."""


class AlreadyServed(InputError):
    """Another daemon works on this home."""


class TokenExpired(InputError):
    """A token that was good once."""


class OverLimit(InputError):
    """More than this user is allowed."""


class StoreError(ArgosyError):
    """The database can not be used."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        self.what, self.hint = what, hint
        super().__init__(f"{what}\n  → {hint}" if hint else what)


class DatabaseLost(StoreError):
    """The database was removed, replaced or overwritten under the daemon that was using it."""

    def __init__(self, what: str, hint: str | None = None, *, overwritten: bool = False) -> None:
        super().__init__(what, hint)
        self.overwritten = overwritten
