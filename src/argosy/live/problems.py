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


class StoreError(ArgosyError):
    """The database can not be used."""
