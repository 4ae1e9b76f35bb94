"""The record that a grown network has of its growth: the surgeries, and the origin of each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from argosy.grow.surgery.record import Surgery


@dataclass(frozen=True)
class Origin:
    """The origin of a parameter of a grown network.

    The gradient of the grown parameter is
        g_new[i, j, …] = g_old[index[0][i], index[1][j], …] · scale[0][i] · scale[1][j] · …
    so optimizer state can be mapped in the same way. An index of −1 is a new element. `None` (or a tuple that ends
    early) leaves a dimension as it is. Copies of a channel get 1/count of the gradient on their *incoming* weights,
    because the weights that read each copy were divided by the count; these *outgoing* weights get the full gradient.
    """

    name: str
    index: tuple[Tensor | None, ...] = ()  # per dimension: int64, one entry per new position
    scale: tuple[Tensor | None, ...] = ()  # per dimension: the factors of the gradient

    def map(self, old: Tensor, power: float = 1.0) -> Tensor:
        """Map state of the old parameter to the grown one; `power` is 2 for squares of gradients."""
        new = old
        for dim, index in enumerate(self.index):
            if index is None:
                continue
            index = index.to(new.device)
            taken = new.index_select(dim, index.clamp(min=0))
            new = taken * _along(dim, new.dim(), (index >= 0).to(new.dtype))
        for dim, scale in enumerate(self.scale):
            if scale is not None and power:
                new = new * _along(dim, new.dim(), scale.to(new.device, torch.float64) ** power).to(new.dtype)
        return new.clone()


Origins = Mapping[str, Origin | None]  # by new parameter name; None: new; missing: unchanged


def remember(new: nn.Module, old: nn.Module, surgery: Surgery, origins: Origins) -> nn.Module:
    """Record on the grown network what was done to it, and return it."""
    root: Any = new
    root.grow_surgeries = (*surgeries_of(old), surgery)
    root.grow_origins = (*origins_of(old), dict(origins))
    return new


def surgeries_of(model: nn.Module) -> tuple[Surgery, ...]:
    """Return all surgeries of this network, in order."""
    return tuple(getattr(model, "grow_surgeries", ()))


def origins_of(model: nn.Module) -> tuple[Origins, ...]:
    """Return, for each surgery, the origins of the parameters."""
    return tuple(getattr(model, "grow_origins", ()))


def _along(dim: int, dims: int, values: Tensor) -> Tensor:
    return values.reshape([-1 if d == dim else 1 for d in range(dims)])
