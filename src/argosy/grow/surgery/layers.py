"""The layers that deepening adds: identity, random or residual, with the settings of a given layer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from argosy.grow.surgery.blocks import BATCH_NORMS, LayerBlock
from argosy.grow.surgery.trace import Traced

_CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_BATCH_NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "celu": nn.CELU,
    "mish": nn.Mish,
    "leaky_relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
}


def similar(layer: nn.Module, width: int, *, bias: bool, in_front: bool = False) -> nn.Module:
    """Return a layer of the same kind from `width` to `width` channels that keeps the size of the picture.

    Convolutions keep an odd kernel size (3 replaces an even one) and the groups.
    """
    where: Any = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    if isinstance(layer, nn.Linear):
        return nn.Linear(width, width, bias=bias, **where)
    assert isinstance(layer, nn.modules.conv._ConvNd)
    kernel = [k if k % 2 else 3 for k in layer.kernel_size]
    depthwise = layer.groups == (layer.in_channels if in_front else layer.out_channels)
    groups = width if depthwise and layer.groups > 1 else layer.groups if width % layer.groups == 0 else 1
    make = _CONVOLUTION[len(kernel)]
    return make(width, width, tuple(kernel), padding=tuple(k // 2 for k in kernel), groups=groups, bias=bias, **where)  # type: ignore[arg-type]


def similar_norm(layer: nn.Module, norm: nn.Module, width: int) -> nn.Module:
    """Return a batch-norm for the added layer with the settings of the block's batch-norm."""
    assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
    dims = len(layer.kernel_size) if isinstance(layer, nn.modules.conv._ConvNd) else 1
    make: Any = nn.SyncBatchNorm if isinstance(norm, nn.SyncBatchNorm) else _BATCH_NORM[dims]
    made: nn.Module = make(width, norm.eps, norm.momentum, device=layer.weight.device, dtype=layer.weight.dtype)
    if norm.num_batches_tracked is not None:  # the weight of the next batch if statistics are cumulative averages
        made.num_batches_tracked = norm.num_batches_tracked.clone()
    return made


def fits(block: LayerBlock, layer: nn.Module, shape: tuple[int, ...]) -> bool:
    """Return whether the added layer can have a batch-norm like the block's; a linear layer needs 2-D inputs."""
    if not isinstance(block.norm, BATCH_NORMS):
        return False
    return not isinstance(layer, nn.Linear) or len(shape) == 2


def to_identity(layer: nn.Module, noise: float) -> None:
    """Set the weights to the identity; `noise` is in units of the usual size of a weight."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    with torch.no_grad():
        if isinstance(layer, nn.Linear):
            nn.init.eye_(layer.weight)
        else:
            nn.init.dirac_(weight, groups=int(layer.groups))  # type: ignore[arg-type]
        _finish(layer, weight, noise)


def to_zero(layer: nn.Module, noise: float) -> None:
    """Set the weights to zero; `noise` as in `to_identity`."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    with torch.no_grad():
        weight.zero_()
        _finish(layer, weight, noise)


def _finish(layer: nn.Module, weight: Tensor, noise: float) -> None:
    if layer.bias is not None:
        layer.bias.zero_()  # type: ignore[operator]
    if noise:
        weight += noise * torch.randn_like(weight) / weight[0].numel() ** 0.5


def activation_like(traced: Traced, node: fx.Node | None) -> nn.Module:
    """Return a fresh module that computes this activation (not in place); ReLU if there is none or it has weights."""
    if node is None:
        return nn.ReLU()
    module = traced.module(node)
    if module is not None and not list(module.parameters()):
        twin: Any = copy.deepcopy(module)
        if hasattr(twin, "inplace"):
            twin.inplace = False
        return twin  # type: ignore[no-any-return]
    name = traced.activation(node) or ""
    if name in ("hardtanh", "threshold"):
        first, second = ("min_val", "max_val") if name == "hardtanh" else ("threshold", "value")
        settings = [
            node.kwargs.get(key, node.args[i] if len(node.args) > i else default)
            for i, (key, default) in enumerate(((first, -1.0), (second, 1.0)), start=1)
        ]
        return (nn.Hardtanh if name == "hardtanh" else nn.Threshold)(*settings)  # type: ignore[arg-type]
    return _ACTIVATIONS.get(name, nn.ReLU)()
