"""Errors about a request to grow a network. The model is never touched when one of these is raised."""

from __future__ import annotations

from argosy.errors import InputError


class GrowError(InputError):
    """A network cannot be read, grown or shrunk as asked."""


class NotTraceable(GrowError):
    """The forward pass cannot be followed; marked blocks can still be grown."""


class NoSuchSite(GrowError):
    """A site does not exist in the network, or this operation is not possible there."""
