"""What a grown network remembers of its growth: the surgeries, and where each of its parameters came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from argosy.grow.surgery.record import Surgery


@dataclass(frozen=True)
class Origin:
    """Where a parameter of a grown network comes from.

    The gradient of the grown parameter is
        g_new[i, j, …] = g_old[index[0][i], index[1][j], …] · scale[0][i] · scale[1][j] · …
    so optimizer state can follow it. An index of −1 is a new element. `None` (or a tuple that ends early) leaves a
    dimension as it is. Copies of a channel get 1/count of the gradient on their *incoming* weights, because each
    of them meets a consumer that was divided by the count; the divided *outgoing* weights get the full gradient.
    """

    name: str
    index: tuple[Tensor | None, ...] = ()  # per dimension: int64, one entry per new position
    scale: tuple[Tensor | None, ...] = ()  # per dimension: what the gradient is multiplied by

    def map(self, old: Tensor, power: float = 1.0) -> Tensor:
        """State that belongs to the old parameter, for the grown one; `power` 2 for squares of gradients."""
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


Origins = Mapping[str, Origin | None]  # by new parameter name; a name that is missing came over unchanged, None is new


def remember(new: nn.Module, old: nn.Module, surgery: Surgery, origins: Origins) -> nn.Module:
    """Note on the grown network what was done to it; returns it."""
    root: Any = new
    root.grow_surgeries = (*surgeries_of(old), surgery)
    root.grow_origins = (*origins_of(old), dict(origins))
    return new


def surgeries_of(model: nn.Module) -> tuple[Surgery, ...]:
    """Return everything that was done to this network, in order."""
    return tuple(getattr(model, "grow_surgeries", ()))


def origins_of(model: nn.Module) -> tuple[Origins, ...]:
    """For each surgery, where the parameters came from."""
    return tuple(getattr(model, "grow_origins", ()))


def _along(dim: int, dims: int, values: Tensor) -> Tensor:
    return values.reshape([-1 if d == dim else 1 for d in range(dims)])
