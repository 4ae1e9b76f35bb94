"""Widen a layer: add channels to it, and to everything that shares them, without changing the function.

Batch statistics of a copied channel are those of its original, and fresh channels are read with weight zero, so the
function is preserved in evaluation mode and in training mode (apart from dropout).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from argosy.grow.errors import GrowError, NoSuchSite
from argosy.grow.surgery.calibrate import check_preserved
from argosy.grow.surgery.deepen import find, own_randomness
from argosy.grow.surgery.follow import follow
from argosy.grow.surgery.grown import duplicate, layer_path
from argosy.grow.surgery.history import Origin, remember
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.trace import Region, Traced, as_inputs
from argosy.grow.surgery.widths import plan, refuse, settle_norms, write

INITS = ("copy", "fresh")


def can_widen(traced: Traced, name: str, factor: float = 2.0, init: str = "copy") -> str | None:
    """Return why the layer of this name cannot be widened (by this factor, in this way); None if it can."""
    path = layer_path(traced.model, name)
    width = follow(traced).width.get(path)
    if width is None:
        return _not_followed(traced, path)
    reasons = (refuse(family, factor, init or "copy") for family in width.families())
    return next((reason for reason in reasons if reason), None)


def widen(
    model: nn.Module,
    site: Any,
    factor: float,
    *,
    example: Any = None,
    init: str = "",
    noise: float = 0.0,
    seed: int = 0,
) -> nn.Module:
    """Return a copy of the network with `factor` times as many channels at `site`, a `Site` or its name.

    Everything that shares the channels grows with them: norms, additions, concatenations, all readers. A site with
    attention gets more heads. `init="copy"` (the default) copies channels and divides the weights that read them;
    `init="fresh"` adds channels that start at random and are read with weight zero. `noise`, in units of the standard
    deviation of the layer's weights, makes copies differ; the function is then no longer preserved exactly.
    """
    surgery = _request(getattr(site, "name", site), factor, init, noise, seed)
    example = example if example is not None else getattr(site, "example", None)
    region, path = find(model, surgery.site, example)
    refusal = _only_here(model, region) or can_widen(region.traced, path, factor, init)
    if refusal:
        raise NoSuchSite(f"cannot widen {surgery.site!r}: {refusal}", hint="sites(model, example) lists what can grow")
    channels = follow(region.traced)
    wider = duplicate(model)
    with own_randomness(seed, surgery, len(getattr(model, "grow_surgeries", ()))):
        growths = plan(channels.width[path].families(), factor, init or "copy")
        part = wider.get_submodule(region.prefix.rstrip("."))
        origins, fresh = write(part, channels, growths, noise)
    with step_by_step():
        settle_norms(wider, {region.prefix + name: new for name, new in fresh.items()}, as_inputs(example))
        check_preserved(model, wider, as_inputs(example), str(surgery), exact=not noise)
    named = {region.prefix + name: Origin(region.prefix + name, o.index, o.scale) for name, o in origins.items()}
    return remember(wider, model, surgery, named)


@contextmanager
def step_by_step() -> Iterator[None]:
    """Switch off torch's fused transformer layers, which skip padded positions, so that outputs can be compared."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _request(name: Any, factor: Any, init: str, noise: float, seed: int) -> Surgery:
    if not isinstance(name, str):
        raise GrowError(f"a site must be a name or an entry of sites(...), not {type(name).__name__}")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not math.isfinite(factor) or factor <= 1:
        raise GrowError(f"the factor must be a number above 1, not {factor!r}", where=name, hint="for example 1.5 or 2")
    if init not in ("", *INITS):
        raise GrowError(f"unknown init {init!r} for widen", where=name, hint=f"one of: {', '.join(INITS)}")
    if not (math.isfinite(noise) and noise >= 0):
        raise GrowError(f"noise must be a number ≥ 0, not {noise!r}", where=name)
    return Surgery("widen", name, float(factor), init, noise, seed)


def _only_here(model: nn.Module, region: Region) -> str | None:
    """Return why a marked block must stay as it is: it is called several times, or shares weights with other parts."""
    if region.calls > 1:
        return f"the marked block {region.prefix.removesuffix('.inner.')} is called {region.calls} times"
    inside = {id(parameter) for parameter in region.traced.model.parameters()}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in inside and not name.startswith(region.prefix):
            return f"the marked block shares weights with {name}"
    return None


def _not_followed(traced: Traced, path: str) -> str:
    module = traced.model.get_submodule(path)
    if not traced.calls(path):
        return "the forward pass does not call it as a layer (unused, or its weights are read directly)"
    return f"{type(module).__name__} is a kind of layer that cannot be widened"
