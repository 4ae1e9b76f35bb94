"""Give a small network the weights that its layers have in the grown network."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from argosy.grow.surgery.grown import Grown
from argosy.grow.surgery.history import Origin, origins_of, surgeries_of

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def inherited(bigger: nn.Module, small: nn.Module) -> nn.Module:
    """Return a network built like `small` with the weights that the original layers of `bigger` have now.

    Added layers are left out. Copied channels are merged, which undoes widening exactly if there was no training since:
    `small[o] = Σ scale[n] · bigger[n]` over the copies n of channel o, where the scale is 1/count for weights into a
    copied channel and 1 for weights out of it. If a network has no record of its growth, layers of the same name are
    used, and the first entries of longer dimensions. The running statistics of batch-norms are copied where they fit,
    and need `recalibrate`.
    """
    result = copy.deepcopy(small)
    given = {_original_name(bigger, name): tensor for name, tensor in bigger.state_dict().items()}
    recorded = _merged(bigger, small)
    with torch.no_grad():
        for name, mine in result.state_dict().items():
            found = recorded.get(name)
            if found is None:
                found = _first_entries(given.get(name), mine)
            if found is not None:
                mine.copy_(found)
    return result


def recalibrate(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the statistics of every batch-norm to those of these batches; the modes of other modules do not change."""
    norms = [part for part in model.modules() if isinstance(part, NORMS) and part.track_running_stats]
    if not norms:
        return
    modes = [(part, part.training) for part in model.modules()]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum, norm.training = None, True  # None: the mean over all batches
        with torch.no_grad():
            for x in batches:
                model(x)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for part, mode in modes:
            part.training = mode


def _original_name(bigger: nn.Module, name: str) -> str:
    """Return a parameter's name without the wrappers around its layer ("0.layer.weight" is "0.weight")."""
    part: nn.Module | Tensor | None = bigger
    kept = []
    for step in name.split("."):
        if not (isinstance(part, Grown) and step == "layer"):
            kept.append(step)
        part = getattr(part, step, None)
    return ".".join(kept)


def _merged(bigger: nn.Module, small: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of the small network, merged from those that grew out of them; {} without a record."""
    before, after = surgeries_of(small), surgeries_of(bigger)
    if after[: len(before)] != before:
        return {}
    steps = origins_of(bigger)[len(before) :]
    shapes = {name: tensor.shape for name, tensor in small.named_parameters()}
    found: dict[str, Tensor] = {}
    for name, parameter in bigger.named_parameters():
        value = parameter.detach()
        for step in reversed(steps):
            origin = step.get(name, Origin(name))
            if origin is None:
                break
            value, name = _undo(origin, value), origin.name
        else:
            if value.shape == shapes.get(name):
                found[name] = value
    return found


def _undo(origin: Origin, value: Tensor) -> Tensor:
    """Sum, along every dimension, the positions with the same origin; new positions are dropped."""
    for dim, index in enumerate(origin.index):
        if index is None:
            continue
        index = index.to(value.device)
        scale = origin.scale[dim] if dim < len(origin.scale) else None
        weights = torch.ones(len(index)) if scale is None else scale
        kept = index >= 0
        part = value.index_select(dim, kept.nonzero().flatten())
        shape = [-1 if d == dim else 1 for d in range(value.dim())]
        part = part * weights.to(value)[kept].reshape(shape)
        length = int(index.max()) + 1
        empty = value.new_zeros([*value.shape[:dim], length, *value.shape[dim + 1 :]])
        value = empty.index_add(dim, index[kept], part)
    return value


def _first_entries(given: Tensor | None, mine: Tensor) -> Tensor | None:
    if given is None or given.dim() != mine.dim() or any(a < b for a, b in zip(given.shape, mine.shape, strict=True)):
        return None
    return given[tuple(slice(0, n) for n in mine.shape)]
