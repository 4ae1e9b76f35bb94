"""Choose the new channels of a widened group, and write them into the layers of a copy of the network.

Copied channels (`copy`): g(j) is the old channel of which channel j is a copy; for old channels it is the identity. A
layer that makes channel j gets the weights of g(j), and a layer that reads it those of g(j) divided by the number of
copies of g(j). New channels (`fresh`): a layer that makes channel j gets the usual initial weights, and a layer that
reads it gets zeros. Both preserve the function.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules import batchnorm

from argosy.grow.errors import GrowError
from argosy.grow.surgery.attention import Attention
from argosy.grow.surgery.channels import Channels, Family, Layout, Use
from argosy.grow.surgery.grown import replace
from argosy.grow.surgery.history import Origin
from argosy.grow.surgery.trace import run

_NORMS = (batchnorm._NormBase, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
_DEAD = 1e-10  # a channel with a smaller variance counts as constant


@dataclass(frozen=True)
class Growth:
    """The channels of one family after growth: the old channel of which each is a copy (−1: a fresh one)."""

    index: Tensor

    @property
    def counts(self) -> Tensor:
        """Return, for each channel, how many channels are copies of the same old one; 1 for a fresh one."""
        kinds = self.index.clamp(min=0)
        counts = torch.bincount(kinds[self.index >= 0])
        return torch.where(self.index >= 0, counts[kinds], 1)


Plan = Mapping[Family, Growth]


def new_size(family: Family, factor: float) -> int:
    """Return the number of channels after growth by `factor`: at least one group more."""
    if family.uniform is not None:
        return family.size * max(2, round(factor))
    bunches = family.size // family.unit
    return family.unit * max(bunches + 1, math.floor(bunches * factor + 0.5))


def refuse(family: Family, factor: float, init: str) -> str | None:
    """Return why these channels cannot grow by this factor with this `init`; None if they can."""
    if family.reason is None and family.uniform is not None:
        if init != "copy":
            return f"{family.uniform} normalises over all channels: new ones would change the others; use init='copy'"
        if factor != round(factor):
            return f"{family.uniform} normalises over all channels: each has to be copied equally often; use factor 2"
    return family.reason


def plan(families: Iterable[Family], factor: float, init: str) -> dict[Family, Growth]:
    """Choose the new channels. Every channel is copied once before any is copied twice."""
    return {family: Growth(_choose(family, new_size(family, factor), init)) for family in families}


def _choose(family: Family, size: int, init: str) -> Tensor:
    there = torch.arange(family.size)
    if family.uniform is not None:
        return there.repeat(size // family.size)
    if init == "fresh":
        return torch.cat([there, torch.full((size - family.size,), -1)])
    bunches, extra = family.size // family.unit, (size - family.size) // family.unit
    rounds = [torch.randperm(bunches) for _ in range(-(-extra // bunches))]
    copied = torch.cat(rounds)[:extra]
    return torch.cat([there, (copied[:, None] * family.unit + torch.arange(family.unit)).flatten()])


@dataclass(frozen=True)
class Axis:
    """One dimension of a tensor before and after growth."""

    index: Tensor  # for each new position the old one, −1 for a fresh one
    counts: Tensor  # how many copies share the old position
    added: Tensor  # whether the position was added


def axis_of(layout: Layout, growths: Plan) -> Axis | None:
    """Return the positions along a layout; None if nothing changes."""
    if not any(family in growths for family in layout.families()):
        return None
    parts, start = [], 0
    for atom, inner in layout.now():
        growth = growths.get(atom.family, Growth(torch.arange(atom.size)))
        index = growth.index[:, None] * inner + torch.arange(inner) + start
        index = torch.where(growth.index[:, None] < 0, -1, index).flatten()
        added = torch.arange(len(growth.index)) >= atom.size
        parts.append((index, growth.counts.repeat_interleave(inner), added.repeat_interleave(inner)))
        start += atom.size * inner
    return Axis(*(torch.cat(column) for column in zip(*parts)))


def write(
    model: nn.Module, channels: Channels, growths: Plan, noise: float
) -> tuple[dict[str, Origin], dict[str, Tensor]]:
    """Put the new channels into `model`, which is a copy.

    Returns the origin of each changed parameter, and the fresh channels of norms with running statistics.
    """
    tensors: dict[tuple[str, str], list[tuple[Use, Axis]]] = {}
    for use in channels.uses:
        axis = axis_of(use.layout, growths)
        if axis is not None:
            tensors.setdefault((use.module, use.tensor), []).append((use, axis))
    _make_room_for_heads(model, {module for module, _ in tensors})
    origins: dict[str, Origin] = {}
    fresh: dict[str, Tensor] = {}
    for (path, name), axes in tensors.items():
        module = model.get_submodule(path)
        old = getattr(module, name)
        new = _grow(old.detach(), module, name, axes, noise)
        if isinstance(old, nn.Parameter):
            setattr(module, name, nn.Parameter(new, requires_grad=old.requires_grad))
            origins[f"{path}.{name}".lstrip(".")] = _origin(f"{path}.{name}".lstrip("."), old.dim(), axes)
        else:
            setattr(module, name, new)
        if name == "running_mean" and bool((axes[0][1].index < 0).any()):
            fresh[path] = axes[0][1].index < 0
    for size in channels.sizes:
        axis = axis_of(size.layout, growths)
        if axis is not None:
            number = len(axis.index) // size.per
            value = (number,) if size.attribute == "normalized_shape" else number
            setattr(model.get_submodule(size.module), size.attribute, value)
    return origins, fresh


def _make_room_for_heads(model: nn.Module, touched: set[str]) -> None:
    """Replace torch's attention, whose inner width is fixed, by ours, and switch off its nested tensors."""
    for path in sorted(touched):
        for name in (path, path.rpartition(".")[0]):
            module = model.get_submodule(name)
            if isinstance(module, nn.MultiheadAttention):
                replace(model, name, Attention.of(module))
    for name, module in model.named_modules():
        inside = f"{name}.".lstrip(".")
        if isinstance(module, nn.TransformerEncoder) and any(path.startswith(inside) for path in touched):
            module.enable_nested_tensor = module.use_nested_tensor = False


def _grow(old: Tensor, module: nn.Module, name: str, axes: list[tuple[Use, Axis]], noise: float) -> Tensor:
    """Return a tensor with the new channels; divisions are in double precision."""
    new = old.double()
    for use, axis in axes:
        new = new.index_select(use.dim, axis.index.clamp(min=0).to(old.device))
        if use.role == "in":
            new = new / _along(use, old, axis.counts)
    makes = [_along(use, old, axis.index < 0) for use, axis in axes if use.role == "out"]
    reads = [_along(use, old, axis.index < 0) for use, axis in axes if use.role == "in"]
    for empty in reads:
        new = new.masked_fill(empty, 0.0)
    for unmade in makes:
        if bool(unmade.any()):
            new = torch.where(unmade, _start(module, name, new), new)
    if noise > 0 and not isinstance(module, _NORMS) and old.dim() > 1:
        for use, axis in axes:
            if use.role == "out":
                shake = torch.randn(new.shape, dtype=torch.float64).to(old.device)
                copied = _along(use, old, axis.added & (axis.index >= 0))
                new = new + noise * float(old.double().std(unbiased=False)) * shake * copied
    return new.to(old.dtype)


def _along(use: Use, tensor: Tensor, values: Tensor) -> Tensor:
    """Return values along one dimension, in a shape that broadcasts."""
    return values.to(tensor.device).reshape([-1 if dim == use.dim else 1 for dim in range(tensor.dim())])


def _start(module: nn.Module, name: str, like: Tensor) -> Tensor:
    """Return the usual initial values of a parameter of this layer."""
    if isinstance(module, _NORMS):
        return torch.full_like(like, 1.0 if name in ("weight", "running_var") else 0.0)
    if isinstance(module, nn.PReLU):
        return torch.full_like(like, 0.25)
    if isinstance(module, nn.Embedding):
        vectors = torch.randn(like.shape, dtype=like.dtype)
        if module.padding_idx is not None:
            vectors[module.padding_idx] = 0.0
        return vectors.to(like.device)
    if isinstance(module, Attention) and name == "in_proj_bias":
        return torch.zeros_like(like)
    weight = getattr(module, "weight", None) if name == "bias" else None
    shape = weight.shape if weight is not None else like.shape
    uniform = torch.rand(like.shape, dtype=like.dtype) * 2 - 1
    return (uniform / math.sqrt(math.prod(shape[1:]))).to(like.device)


def _origin(name: str, dims: int, axes: list[tuple[Use, Axis]]) -> Origin:
    """Return the origin: incoming weights of copies get their share of the gradient, outgoing weights all of it."""
    index: list[Tensor | None] = [None] * dims
    scale: list[Tensor | None] = [None] * dims
    for use, axis in axes:
        index[use.dim] = axis.index
        if use.role == "out":
            scale[use.dim] = 1.0 / axis.counts.double()
    return Origin(name, tuple(index), tuple(scale))


def settle_norms(model: nn.Module, fresh: Mapping[str, Tensor], inputs: tuple[object, ...]) -> None:
    """Give fresh channels of norms the statistics of the example batch, so that their outputs have a normal scale."""
    if not fresh:
        return
    paths = {model.get_submodule(path): path for path in fresh}

    def see(norm: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, batchnorm._NormBase)
        assert norm.running_mean is not None and norm.running_var is not None
        new, seen = fresh[paths[norm]].to(given[0].device), given[0].detach().double()
        over = [dim for dim in range(seen.dim()) if dim != 1]
        mean, variance = seen.mean(over), seen.var(over, unbiased=False)
        variance = torch.where(variance > _DEAD, variance, 1.0)
        norm.running_mean[new] = mean[new].to(norm.running_mean.dtype)
        norm.running_var[new] = variance[new].to(norm.running_var.dtype)

    hooks = [norm.register_forward_pre_hook(see) for norm in paths]
    try:
        run(model, inputs)
    except GrowError as problem:
        raise GrowError(
            f"the widened network does not run ({problem.what.rpartition(': ')[2]})",
            hint="the forward pass probably depends on a fixed size; nothing was changed",
        ) from problem
    finally:
        for hook in hooks:
            hook.remove()
