"""Apply surgeries given as data: one of them, or all of them again on the original network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from argosy.grow.errors import GrowError
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.grown import duplicate
from argosy.grow.surgery.history import remember, surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.unfreeze import unfreeze
from argosy.grow.surgery.widen import widen

__all__ = ["apply", "rebuild", "surgeries_of"]


def apply(model: nn.Module, surgery: Surgery | Mapping[str, Any], example: Any) -> nn.Module:
    """Return a copy of the network with this surgery done to it; `replicate` is only recorded."""
    surgery = surgery if isinstance(surgery, Surgery) else Surgery.from_dict(surgery)
    how: dict[str, Any] = {"init": surgery.init, "noise": surgery.noise, "seed": surgery.seed, "example": example}
    if surgery.op == "deepen":
        return deepen(model, surgery.site, **how)
    if surgery.op == "unfreeze":
        return unfreeze(model, surgery.site, example=example)
    if surgery.op == "replicate":
        return remember(duplicate(model), model, surgery, {})
    return widen(model, surgery.site, surgery.factor, **how)


def rebuild(model: nn.Module, surgeries: Iterable[Surgery | Mapping[str, Any]], example: Any) -> nn.Module:
    """Return the structure of a grown network, from the original network and the list of its surgeries.

    The result has the same parameters by name and shape, so a `state_dict` saved from the grown network loads into it.
    """
    if surgeries_of(model):
        done = ", ".join(map(str, surgeries_of(model)))
        raise GrowError(
            f"rebuild starts from the original network, but this one is grown: {done}",
            hint="give a fresh model, or apply only the surgeries that are missing",
        )
    grown = duplicate(model)
    for surgery in surgeries:
        grown = apply(grown, surgery, example)
    return grown
