"""Let frozen layers learn: growth for networks that are built large from the start and trained part by part."""

from __future__ import annotations

from typing import Any

from torch import nn

from argosy.grow.errors import NoSuchSite
from argosy.grow.surgery.grown import duplicate
from argosy.grow.surgery.history import remember
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import Site, sites


def frozen(model: nn.Module, example: Any) -> list[Site]:
    """Return the sites with parameters that do not learn."""
    found = sites(model, example)
    return [site for site in (*found, *found.refused) if _is_frozen(model, site)]


def unfreeze(model: nn.Module, site: Site | str, *, example: Any = None) -> nn.Module:
    """Return a copy of the network in which this layer learns, with its norm; the function stays the same."""
    name = site if isinstance(site, str) else site.name
    if example is None and isinstance(site, Site):
        example = site.example
    place = sites(model, example).named(name)
    if not _is_frozen(model, place):
        names = ", ".join(s.name for s in frozen(model, example)) or "none"
        raise NoSuchSite(f"the layer {name!r} is not frozen", hint=f"frozen layers: {names}")
    awake = duplicate(model)
    for path in place.layers:
        awake.get_submodule(path).requires_grad_(True)
    return remember(awake, model, Surgery("unfreeze", name), {})


def _is_frozen(model: nn.Module, site: Site) -> bool:
    return any(not p.requires_grad for path in site.layers for p in model.get_submodule(path).parameters())
