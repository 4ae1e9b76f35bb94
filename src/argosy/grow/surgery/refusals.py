"""The reasons why a layer cannot be grown, in words."""

from __future__ import annotations

from torch import nn
from torch.nn.utils import parametrize

from argosy.grow.surgery.attention import Attention
from argosy.grow.surgery.blocks import DEEPENABLE, changes_in_place, read_block
from argosy.grow.surgery.trace import Region

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def is_attention(layer: nn.Module) -> bool:
    """Return whether this is attention: torch's, or ours with any number of heads."""
    return isinstance(layer, nn.MultiheadAttention | Attention)


def why_not_deepen(model: nn.Module, region: Region, path: str) -> str | None:
    """Return the reason why no layer can be added at the layer with this path in the region, or None."""
    layer = region.traced.model.get_submodule(path)
    if is_attention(layer):
        return "an attention layer can be widened (more heads), not deepened"
    if not isinstance(layer, DEEPENABLE):
        return f"{type(layer).__name__} is a kind of layer that cannot be deepened"
    return why_not_touch(model, region, path) or _changed_in_place(region, path)


def why_not_touch(model: nn.Module, region: Region, path: str) -> str | None:
    """Return the reason why no operation may change the weights of this layer, or None."""
    traced, full = region.traced, region.prefix + path
    layer = traced.model.get_submodule(path)
    computed = _computed(layer)
    if computed:
        return computed
    names = [name for name, part in model.named_modules(remove_duplicate=False) if part is layer]
    calls = len(traced.calls(path)) * region.calls
    if calls > 1 or len(names) > 1:
        return f"it is used more than once (called {calls} times, registered as {', '.join(names)}): shared weights"
    if calls == 0:
        return _not_called(model, full)
    tied = _tied(model, full)
    if tied:
        return f"its weights are shared with {tied}"
    frozen = [name for name, p in layer.named_parameters(recurse=False) if not p.requires_grad]
    if frozen:
        return f"it is frozen ({', '.join(frozen)}: requires_grad is False)"
    read = [n for n in traced.graph.nodes if n.op == "get_attr" and str(n.target).startswith(f"{path}.")]
    return f"the forward pass also reads {read[0].target} directly" if read else None


def _computed(layer: nn.Module) -> str | None:
    """Return why the weights cannot grow if they are not plain parameters."""
    if type(layer).__module__.startswith(("torch.ao", "torch.nn.quantized", "torch.nn.intrinsic")):
        return "it is quantised; grow the network before quantising it"
    if parametrize.is_parametrized(layer):
        return "its weight is parametrised (weight_norm, spectral_norm …); remove the parametrisation first"
    weight = layer._parameters.get("weight", layer._parameters.get("in_proj_weight"))
    if weight is None and not is_attention(layer):
        return "its weight is computed from other tensors (weight_norm, pruning …), not a plain parameter"
    if weight is not None and not weight.is_floating_point():
        return f"its weight is {weight.dtype}, not a floating-point number"
    return None


def _tied(model: nn.Module, full: str) -> str | None:
    own = {id(p) for p in model.get_submodule(full).parameters()}
    others = [
        name
        for name, p in model.named_parameters(remove_duplicate=False)
        if id(p) in own and not name.startswith(f"{full}.")
    ]
    return ", ".join(others) or None


def _not_called(model: nn.Module, full: str) -> str:
    parts = full.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        above = model.get_submodule(".".join(parts[:depth]))
        if type(above).__module__.startswith("torch.nn") and not isinstance(above, _CONTAINERS):
            return f"it is inside nn.{type(above).__name__}, which reads its weights directly"
    return "the forward pass does not call it as a layer (unused, or its weights are read directly)"


def _changed_in_place(region: Region, path: str) -> str | None:
    traced = region.traced
    block = read_block(traced, path)
    for tensor in block.chain:
        writers = [user for user in tensor.users if changes_in_place(traced, user, tensor)]
        if writers and len(tensor.users) > 1:
            others = ", ".join(user.name for user in tensor.users if user is not writers[0])
            return f"its output is changed in place by {writers[0].name} and also read by {others}"
    return None
