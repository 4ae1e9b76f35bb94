"""What can be wrong with a request to grow a network. The model is never touched when one of these is raised."""

from __future__ import annotations

from argosy.errors import InputError


class GrowError(InputError):
    """A network can not be read, grown or shrunk as asked."""


class NotTraceable(GrowError):
    """The forward pass can not be followed; marked blocks can still be grown."""


class NoSuchSite(GrowError):
    """A place that the network does not have, or where this operation is not possible."""
