"""The rules by which layers make channels, read them and pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx, nn
from torch.nn.modules import batchnorm, conv, dropout, instancenorm, padding, pooling

from argosy.grow.surgery.attention import Attention
from argosy.grow.surgery.channels import Found, Layout, Value, cut, fix, join, link, new_layout
from argosy.grow.surgery.follow_functions import glu
from argosy.grow.surgery.follow_shapes import merged
from argosy.grow.surgery.follow_transformers import TRANSFORMERS, follow_attention, follow_transformer
from argosy.grow.surgery.trace import ACTIVATIONS

if TYPE_CHECKING:
    from argosy.grow.surgery.follow import Follower

ELEMENTWISE = (dropout._DropoutNd, nn.Identity, nn.Upsample)
POOLS = (
    pooling._MaxPoolNd,
    pooling._AvgPoolNd,
    pooling._LPPoolNd,
    pooling._AdaptiveAvgPoolNd,
    pooling._AdaptiveMaxPoolNd,
)
PADDINGS = (padding._ConstantPadNd, padding._ReflectionPadNd, padding._ReplicationPadNd, padding._CircularPadNd)


def follow_module(walk: Follower, node: fx.Node, name: str, module: nn.Module) -> Found:
    """Return the channels of what a leaf module returns."""
    source: Any = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    if isinstance(module, conv._ConvNd):
        return _conv(walk, node, name, module, source)
    if isinstance(module, nn.Linear):
        return _linear(walk, node, name, module, source)
    if isinstance(module, nn.Embedding):
        made = _produce(walk, name, module.embedding_dim, "embedding_dim", 1, len(walk.shapes[node]) - 1)
        if module.max_norm is not None:
            fix(made.layout, f"embedding {name} limits the length of its vectors (max_norm)")
        return made
    if isinstance(module, nn.MultiheadAttention | Attention):
        return follow_attention(walk, node, name, module)
    if isinstance(module, TRANSFORMERS):
        return follow_transformer(walk, node, name, module)
    value = walk.value(source)
    if value is None or len(node.all_input_nodes) > 1:
        walk.stop(node.all_input_nodes, _lost(name, module))
        return None
    found = _carry(walk, node, name, module, value)
    if found is None:
        fix(value.layout, _lost(name, module))
    return found


def _lost(name: str, module: nn.Module) -> str:
    return f"{type(module).__name__} {name} cannot be followed"


def _carry(walk: Follower, node: fx.Node, name: str, module: nn.Module, value: Value) -> Value | None:
    """Follow a module with one input that passes the channels on."""
    kind = walk.traced.kind(node)
    shape = walk.shapes.get(node)
    if shape is None:
        return None
    if isinstance(module, batchnorm._BatchNorm | instancenorm._InstanceNorm):
        return _norm(walk, name, module, value, len(shape))
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return _layer_norm(walk, name, module, value, len(shape))
    if isinstance(module, nn.GroupNorm):
        return _group_norm(walk, name, module, value)
    if isinstance(module, nn.PReLU):
        return _prelu(walk, name, module, value)
    if isinstance(module, nn.GLU):
        return glu(value, module.dim % len(shape))
    if isinstance(module, nn.Softmax | nn.LogSoftmax | nn.Softmin):
        return value if module.dim is not None and module.dim % len(shape) != value.axis else None
    if isinstance(module, ELEMENTWISE) or kind in ACTIVATIONS or kind == "threshold":
        return value
    if isinstance(module, POOLS):
        spatial = next(int(letter) for letter in kind if letter.isdigit())
        return value if value.axis < len(shape) - spatial else None
    if isinstance(module, PADDINGS):
        return value if value.axis < len(shape) - len(module.padding) // 2 else None
    if isinstance(module, nn.Flatten):
        return merged(walk.shapes[node.all_input_nodes[0]], shape, value)
    return None


def _produce(walk: Follower, name: str, size: int, attribute: str, dim: int, axis: int) -> Value:
    """Record that a layer makes new channels; its bias, if it has one, belongs to them."""
    made = new_layout(size)
    walk.use(name, "weight", dim, made, "out")
    walk.use(name, "bias", 0, made, "out")
    walk.size(name, attribute, made)
    walk.channels.width[name] = made
    return Value(axis, made)


def _linear(walk: Follower, node: fx.Node, name: str, module: nn.Linear, source: Any) -> Value:
    """Follow a linear layer, which reads and makes channels along the last axis."""
    axis = len(walk.shapes[node]) - 1
    _consume(walk, name, "weight", 1, walk.read(node, source, axis, f"linear layer {name}"), "in_features")
    return _produce(walk, name, module.out_features, "out_features", 0, axis)


def _consume(walk: Follower, name: str, tensor: str, dim: int, layout: Layout | None, attribute: str) -> None:
    """Record that a layer reads channels."""
    walk.use(name, tensor, dim, layout, "in")
    walk.size(name, attribute, layout)


def _conv(walk: Follower, node: fx.Node, name: str, module: conv._ConvNd, source: Any) -> Value:
    axis = len(walk.shapes[node]) - len(module.kernel_size) - 1
    arriving = walk.read(node, source, axis, f"convolution {name}")
    out_dim, in_dim = (1, 0) if module.transposed else (0, 1)
    if module.groups == 1:
        _consume(walk, name, "weight", in_dim, arriving, "in_channels")
        return _produce(walk, name, module.out_channels, "out_channels", out_dim, axis)
    if module.groups == module.in_channels and (not module.transposed or module.groups == module.out_channels):
        return Value(axis, _depthwise(walk, name, module, arriving))
    return Value(axis, _grouped(walk, name, module, arriving, out_dim, in_dim))


def _depthwise(walk: Follower, name: str, module: conv._ConvNd, arriving: Layout | None) -> Layout:
    """Follow a depthwise convolution: every channel is filtered by itself, so the output has the input's channels."""
    if arriving is None:
        made = new_layout(module.out_channels)
        fix(made, f"depthwise convolution {name} reads channels that cannot grow")
    else:
        made = arriving.spread(1, module.out_channels // module.in_channels)
    walk.use(name, "weight", 0, made, "out")
    walk.use(name, "bias", 0, made, "out")
    for attribute, layout in (("in_channels", arriving), ("groups", arriving), ("out_channels", made)):
        walk.size(name, attribute, layout)
    walk.channels.width[name] = made
    return made


def _grouped(
    walk: Follower, name: str, module: conv._ConvNd, arriving: Layout | None, out_dim: int, in_dim: int
) -> Layout:
    """Record that the separately filtered groups of channels must grow in the same way, in input and output."""
    groups, what = module.groups, f"grouped convolution {name}"
    if arriving is not None:
        blocks = cut(arriving, [module.in_channels // groups] * groups)
        if blocks is None:
            fix(arriving, f"the groups of {what} do not fit the channels that arrive")
        else:
            link(blocks, what)
            walk.use(name, "weight", in_dim, arriving if module.transposed else blocks[0], "in")
            walk.size(name, "in_channels", arriving)
    made = [new_layout(module.out_channels // groups) for _ in range(groups)]
    link(made, what)
    leaving = join(made)
    walk.use(name, "weight", out_dim, made[0] if module.transposed else leaving, "out")
    walk.use(name, "bias", 0, leaving, "out")
    walk.size(name, "out_channels", leaving)
    walk.channels.width[name] = leaving
    return leaving


def _norm(walk: Follower, name: str, module: Any, value: Value, depth: int) -> Value | None:
    """Follow batch and instance normalisation, which handle every channel by itself."""
    spatial = next((int(c) for c in type(module).__name__ if c.isdigit()), depth - 2)
    batched = isinstance(module, batchnorm._BatchNorm) or depth == spatial + 2
    if value.axis != (1 if batched else 0):
        return None
    for tensor in ("weight", "bias", "running_mean", "running_var"):
        walk.use(name, tensor, 0, value.layout, "out")
    walk.size(name, "num_features", value.layout)
    return value


def _layer_norm(walk: Follower, name: str, module: nn.LayerNorm | nn.RMSNorm, value: Value, depth: int) -> Value | None:
    """Follow a layer norm: mean and variance over the channels stay the same if all are copied equally often."""
    if value.axis != depth - 1 or len(module.normalized_shape) != 1:
        return value if value.axis < depth - len(module.normalized_shape) else None
    walk.use(name, "weight", 0, value.layout, "out")
    walk.use(name, "bias", 0, value.layout, "out")
    walk.size(name, "normalized_shape", value.layout)
    walk.channels.uniform.append((value.layout, f"{type(module).__name__} {name}"))
    return value


def _group_norm(walk: Follower, name: str, module: nn.GroupNorm, value: Value) -> Value | None:
    """Follow a group norm: only whole groups are added, so that old groups keep their statistics."""
    if value.axis != 1:
        return None
    walk.use(name, "weight", 0, value.layout, "out")
    walk.use(name, "bias", 0, value.layout, "out")
    walk.size(name, "num_channels", value.layout)
    if module.num_groups == 1:
        walk.channels.uniform.append((value.layout, f"GroupNorm {name}"))
    else:
        unit = module.num_channels // module.num_groups
        walk.size(name, "num_groups", value.layout, unit)
        walk.channels.units.append((value.layout, unit, f"GroupNorm {name}"))
    return value


def _prelu(walk: Follower, name: str, module: nn.PReLU, value: Value) -> Value | None:
    if module.num_parameters > 1:
        if value.axis != 1:
            return None
        walk.use(name, "weight", 0, value.layout, "out")
        walk.size(name, "num_parameters", value.layout)
    return value
