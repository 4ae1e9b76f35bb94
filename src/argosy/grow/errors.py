"""Errors about requests to grow a network. When one of these is raised, the model has not been changed."""

from __future__ import annotations

from argosy.errors import InputError


class GrowError(InputError):
    """A network cannot be read, grown or shrunk as requested."""


class NotTraceable(GrowError):
    """The forward pass cannot be traced; marked blocks can still be grown."""


class NoSuchSite(GrowError):
    """A site does not exist in the network, or this operation is not possible there."""


class Diverged(GrowError):
    """The loss, the gradients or the weights are no longer finite."""
