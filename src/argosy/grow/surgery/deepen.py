"""Add one more layer at a site, without changing what the network computes.

There are three constructions, each exact in evaluation mode on every input:

*Identity after the block.* The block ends in an activation φ with φ(φ(x)) = φ(x) (ReLU, ReLU6, Hardtanh). φ(z) becomes
φ(norm₂(W₂ φ(z))) with W₂ = I. The network's own φ is the last one.
*Identity before the layer.* The block does not end in an activation, but its input x is known to be ≥ 0: layer(x)
becomes layer(ReLU(norm₂(W₂ x))) with W₂ = I.
*Residual.* In all other cases (GELU, tanh, SiLU, inputs of any sign): z becomes z + W₂ φ(norm(W₁ z)) with W₂ = 0.

In training mode, the first two are also exact without batch-norm (apart from dropout); with batch-norm they are exact
on the calibration batch, whose statistics the new norm has. The residual construction is always exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from argosy.grow.errors import GrowError, NoSuchSite
from argosy.grow.surgery.blocks import LayerBlock, ends_idempotent, non_negative, read_block, source_of
from argosy.grow.surgery.calibrate import check_preserved, make_identity
from argosy.grow.surgery.grown import Grown, ResidualBranch, duplicate, layer_path, wrapped
from argosy.grow.surgery.history import Origin, remember
from argosy.grow.surgery.layers import activation_like, fits, similar, similar_norm, to_identity, to_zero
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.refusals import why_not_deepen
from argosy.grow.surgery.trace import Region, Traced, as_inputs, regions
from argosy.seeding import stream

__all__ = ["Grown", "ResidualBranch", "deepen"]

INITS = ("identity", "random", "residual")


def deepen(
    model: nn.Module, site: Any, *, example: Any = None, init: str = "", noise: float = 0.0, seed: int = 0
) -> nn.Module:
    """Return a copy of the network with one more layer at `site`, a `Site` or its name.

    `example` is the calibration batch; a `Site` has its own. `init`: "identity" (Net2Net), "residual", or "random"
    (ordinary weights, which change the function); by default whichever of the first two fits. `noise` is added to the
    new weights, in units of the usual size of a weight.
    """
    surgery = _request(getattr(site, "name", site), init, noise, seed)
    example = example if example is not None else getattr(site, "example", None)
    region, path = find(model, surgery.site, example)
    refusal = why_not_deepen(model, region, path)
    if refusal:
        raise NoSuchSite(f"cannot deepen {surgery.site!r}: {refusal}")
    with own_randomness(seed, surgery, len(getattr(model, "grow_surgeries", ()))):
        plan = _plan(region.traced, read_block(region.traced, path), init, surgery.site)
        new = duplicate(model)
        added = _build(new, region, plan, noise, as_inputs(example))
    exact = init != "random" and not noise
    check_preserved(model, new, as_inputs(example), str(surgery), added, exact=exact)
    return remember(new, model, surgery, _origins(model, new))


@dataclass(frozen=True)
class _Plan:
    how: str  # "after", "before" or "residual"
    init: str
    block: LayerBlock
    activation: nn.Module
    width: int
    norm: bool


def _plan(traced: Traced, block: LayerBlock, init: str, name: str) -> _Plan:
    """Choose the construction for this block."""
    layer, source = block.layer(traced), source_of(block.node)
    positive = source is not None and non_negative(traced, source)
    if init == "residual":
        how = "residual"
    elif init == "random":
        how = "after" if block.activation is not None else "before"
    elif ends_idempotent(traced, block):
        how = "after"
    elif positive and (block.activation is None or init == "identity"):
        how = "before"
    elif init == "identity":
        behind = f"it ends in {traced.kind(block.activation)}" if block.activation else "no activation follows it"
        raise NoSuchSite(
            f"no identity layer fits at {name!r}: {behind}, and its input may be negative",
            hint='init="residual" preserves the function here (it is the default where no identity fits)',
        )
    else:
        how = "residual"
    chosen = "random" if init == "random" else "zero" if how == "residual" else "identity"
    # the layer's width may differ from the block's, if it was widened after layers were added
    shape = traced.shape(source if how == "before" and source is not None else block.end) or ()
    width = shape[-1] if isinstance(layer, nn.Linear) else shape[1]
    activation = nn.ReLU() if how == "before" else activation_like(traced, block.activation)
    return _Plan(how, chosen, block, activation, width, fits(block, layer, shape))


def _build(model: nn.Module, region: Region, plan: _Plan, noise: float, inputs: tuple[Any, ...]) -> nn.Module:
    """Put the new layers into the copy, and return the first of them."""
    layer = region.traced.model.get_submodule(plan.block.path)
    bias = layer.bias is not None and not plan.norm  # a bias before a norm would never get a gradient
    new = similar(layer, plan.width, bias=bias, in_front=plan.how == "before")
    norm = [similar_norm(layer, plan.block.norm, plan.width)] if plan.norm and plan.block.norm is not None else []
    host = region.prefix + (plan.block.path if plan.how == "before" else plan.block.host)
    grown = wrapped(model, host)
    if plan.how == "residual":
        last = similar(layer, plan.width, bias=layer.bias is not None)
        to_zero(last, noise)
        parts: list[nn.Module] = [ResidualBranch(nn.Sequential(new, *norm, plan.activation, last))]
    else:
        if plan.init == "identity":
            to_identity(new, noise)
        parts = [new, *norm, plan.activation] if plan.how == "before" else [plan.activation, new, *norm]
    for part in parts:
        part.train(grown.training)
        (grown.before if plan.how == "before" else grown.after).append(part)
    if norm:
        path = next(path for path, part in model.named_modules() if part is norm[0])
        make_identity(model, path, inputs, exact=plan.init == "identity")
    return parts[0]


def find(model: nn.Module, name: str, example: Any) -> tuple[Region, str]:
    """Return the region of the network with this site, and the path of its layer inside the region."""
    if example is None:
        raise GrowError(
            f"growing {name!r} needs an example input",
            hint="give example=one batch, or a site from sites(model, example)",
        )
    full = layer_path(model, name)
    for region in regions(model, example):
        if full.startswith(region.prefix):
            return region, full.removeprefix(region.prefix)
    raise NoSuchSite(
        f"{name!r} is not inside a marked block, and the network cannot be traced as a whole",
        hint="wrap it in grow.Block(...)",
    )


@contextmanager
def own_randomness(seed: int, surgery: Surgery, step: int) -> Iterator[None]:
    """Make random draws in this context depend on the surgery alone, and restore torch's random state afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(int(stream(seed, f"{surgery.op} {surgery.site}", step).integers(2**62)))
        yield


def _request(name: Any, init: str, noise: float, seed: int) -> Surgery:
    if not isinstance(name, str):
        raise GrowError(f"a site must be a name or an entry of sites(...), not {type(name).__name__}")
    if init not in ("", *INITS):
        raise GrowError(f"unknown init {init!r} for deepen", hint=f"one of: {', '.join(INITS)}")
    if not (math.isfinite(noise) and noise >= 0):
        raise GrowError(f"noise must be a number ≥ 0, not {noise!r}")
    return Surgery("deepen", name, init=init, noise=noise, seed=seed)


def _origins(old: nn.Module, new: nn.Module) -> dict[str, Origin | None]:
    """Return the origins of parameters: those that moved into a wrapper keep theirs, other unknown names are new."""
    known = dict(old.named_parameters())
    origins: dict[str, Origin | None] = {}
    for name, _ in new.named_parameters():
        if name in known:
            continue
        module, _, leaf = name.rpartition(".")
        before = f"{module.removesuffix('.layer')}.{leaf}"
        origins[name] = Origin(before) if module.endswith(".layer") and before in known else None
    return origins
