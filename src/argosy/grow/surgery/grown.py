"""The modules that surgery puts into a network, and the names of sites, which stay the same."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from argosy.grow.errors import GrowError, NoSuchSite


class Grown(nn.Module):
    """A layer of the original network, with the layers that were added before and after it.

    It replaces the layer in the network; attributes that it does not have are those of the layer.
    """

    def __init__(self, layer: nn.Module, before: nn.Sequential | None = None, after: nn.Sequential | None = None):
        super().__init__()
        self.before = before if before is not None else nn.Sequential()
        self.layer = layer
        self.after = after if after is not None else nn.Sequential()
        self.training = layer.training

    def forward(self, input: Tensor, *more: Any, **named: Any) -> Any:  # torch's layers also call it `input`
        return self.after(self.layer(self.before(input), *more, **named))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "layer" or name.startswith("__"):
                raise
            return getattr(self.layer, name)


class ResidualBranch(nn.Module):
    """Computes z + path(z); the last layer of the path starts at zero, which preserves any function."""

    def __init__(self, path: nn.Sequential) -> None:
        super().__init__()
        self.path = path

    def forward(self, z: Tensor) -> Tensor:
        return z + self.path(z)  # type: ignore[no-any-return]


def layer_path(model: nn.Module, name: str) -> str:
    """Return the present path of a site's layer: "0" becomes "0.layer" once layers have been added around it."""
    try:
        found = model.get_submodule(name) if name else None
    except AttributeError:
        found = None
    if found is None:
        known = [host_path(model, path) for path, part in model.named_modules() if "weight" in part._parameters]
        raise NoSuchSite(f"the network has no layer {name!r}", hint=f"layers with weights are {_some(known)}")
    return f"{name}.layer" if isinstance(found, Grown) else name


def host_path(model: nn.Module, path: str) -> str:
    """Return the path of the wrapper around this module if there is one, else that of the module.

    For a weighted layer this is the name of its site: it does not change when the network grows.
    """
    parent, _, last = path.rpartition(".")
    return parent if last == "layer" and isinstance(model.get_submodule(parent), Grown) else path


def is_original(model: nn.Module, path: str) -> bool:
    """Return whether this module was in the network before any surgery."""
    part: nn.Module = model
    for step in path.split("."):
        if isinstance(part, Grown) and step in ("before", "after"):
            return False
        part = part.get_submodule(step)
    return True


def duplicate(model: nn.Module) -> nn.Module:
    """Return a deep copy for surgery."""
    try:
        return copy.deepcopy(model)
    except Exception as problem:
        raise GrowError(
            f"{type(model).__name__} cannot be copied: {str(problem).splitlines()[0] if str(problem) else problem!r}",
            hint="weights that are computed in the forward pass (old-style weight_norm) or open files are usual causes",
        ) from problem


def replace(model: nn.Module, path: str, part: nn.Module) -> None:
    """Replace the module at this path by another."""
    parent, _, last = path.rpartition(".")
    setattr(model.get_submodule(parent), last, part)


def wrapped(model: nn.Module, path: str) -> Grown:
    """Return the wrapper around the module at this path; add one if there is none yet."""
    host = model.get_submodule(host_path(model, path))
    if isinstance(host, Grown):
        return host
    grown = Grown(host)
    replace(model, path, grown)
    return grown


def _some(names: list[str]) -> str:
    return ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
