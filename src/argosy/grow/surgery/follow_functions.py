"""The rules by which functions and tensor methods pass channels on.

Names of functions are in lower case, without a trailing underscore.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from argosy.grow.surgery.channels import Found, Loose, Value, cut, fix, join, link, new_layout, unite
from argosy.grow.surgery.follow_shapes import SHAPE_RULES, argument, is_size, note_numbers, source_shape
from argosy.grow.surgery.trace import ACTIVATIONS

if TYPE_CHECKING:
    from argosy.grow.surgery.follow import Follower

ELEMENTWISE = {name.rstrip("_") for name in ACTIVATIONS} | {
    "add",
    "iadd",
    "sub",
    "isub",
    "rsub",
    "mul",
    "imul",
    "truediv",
    "itruediv",
    "div",
    "multiply",
    "subtract",
    "maximum",
    "minimum",
    "pow",
    "neg",
    "abs",
    "exp",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "square",
    "reciprocal",
    "sign",
    "gt",
    "ge",
    "lt",
    "le",
    "eq",
    "ne",
    "logical_and",
    "logical_or",
    "logical_not",
    "clamp",
    "clip",
    "erf",
    "sin",
    "cos",
    "where",
    "lerp",
    "addcmul",
    "masked_fill",
    "nan_to_num",
    "contiguous",
    "clone",
    "detach",
    "to",
    "type",
    "float",
    "double",
    "half",
    "bfloat16",
    "type_as",
    "requires_grad",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_dropout",
    "feature_alpha_dropout",
    "zeros_like",
    "ones_like",
    "rand_like",
    "randn_like",
    "interpolate",
    "upsample",
    "identity",
    "expand_as",
}
SIZES = {"dim", "ndimension", "numel", "_assert", "len", "is_floating_point"}
FACTS = {"ndim", "device", "dtype", "is_cuda", "requires_grad"}  # attributes that are not tensors
REDUCTIONS = {"mean", "sum", "amax", "amin", "std", "var", "norm", "logsumexp", "prod", "max", "min", "any", "all"}
JOINS = {"cat", "concat", "concatenate"}


def follow_function(walk: Follower, node: fx.Node, kind: str) -> Found:
    """Return the channels of what a function or method returns."""
    source: Any = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    if is_size(walk, node, kind, source) or kind in SIZES or (kind == "getattr" and node.args[1] in FACTS):
        return None
    if kind in ("getitem", "getattr") and isinstance(walk.values.get(source), tuple):
        return _part(walk, source, node.args[1])
    if kind in ("expand", "repeat") and isinstance(walk.values.get(source), Loose):
        return _loose_copies(walk, node, source)
    if kind in ELEMENTWISE or (kind in ("max", "min") and _second_is_tensor(walk, node)):
        found: Found = walk.elementwise(node.all_input_nodes, kind) if not _weighted(walk, node, kind) else None
    elif kind in JOINS:
        found = _cat(walk, node)
    elif kind == "stack":
        found = _stack(walk, node)
    else:
        value, rule = walk.value(source), _RULES.get(kind) or (_pool if "pool" in kind else None)
        alone = all(other is source or walk.value(other) is None for other in node.all_input_nodes)
        found = _try(rule, walk, node, value) if rule and alone and value is not None else None
    if found is None:
        walk.stop(node.all_input_nodes, f"{kind} ({node.name}) cannot be followed")
    note_numbers(walk, node, f"{kind} ({node.name})", found if kind in ("view", "reshape", "expand") else None)
    return found


def _try(rule: Callable[[Any, fx.Node, Any], Any], walk: Follower, node: fx.Node, value: Value) -> Found:
    """Return what the rule finds, or None if it needs an argument that is only known when the network runs."""
    try:
        found: Found = rule(walk, node, value)
    except TypeError:
        return None
    return found


def _part(walk: Follower, source: fx.Node, which: Any) -> Value | None:
    """Follow one of several results, such as the values of a maximum or one of the chunks."""
    parts: Any = walk.values[source]
    index = {"values": 0, "indices": 1}.get(which, which)
    if isinstance(index, int) and -len(parts) <= index < len(parts):
        part: Value | None = parts[index]
        return part
    walk.stop([source], f"a part of {source.name} cannot be followed")
    return None


def _loose_copies(walk: Follower, node: fx.Node, source: fx.Node) -> Found:
    """Follow a parameter that is repeated for every example of a batch, such as the class token of a transformer."""
    loose = walk.values[source]
    sizes = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], list | tuple) else node.args[1:]
    assert isinstance(loose, Loose) and isinstance(sizes, list | tuple)
    kept = {"expand": -1, "repeat": 1}[walk.traced.kind(node)]
    free = len(sizes) == len(loose.shape) and all(s == kept for s, size in zip(sizes, loose.shape) if size > 1)
    return loose if free else None


def _weighted(walk: Follower, node: fx.Node, kind: str) -> bool:
    """Return whether this is PReLU as a function with several weights, which are along axis 1, not the last one."""
    return kind == "prelu" and any(max(walk.shapes.get(n, ()), default=1) > 1 for n in node.all_input_nodes[1:])


def _second_is_tensor(walk: Follower, node: fx.Node) -> bool:
    return len(node.args) > 1 and isinstance(node.args[1], fx.Node) and node.args[1] in walk.shapes


def _cat(walk: Follower, node: fx.Node) -> Value | None:
    tensors, dim = argument(node, 0, "tensors"), argument(node, 1, "dim", node.kwargs.get("axis", 0))
    known = [value for n in node.all_input_nodes if (value := walk.value(n)) is not None]
    if not known:
        return None
    if not isinstance(tensors, list | tuple) or not isinstance(dim, int) or len({v.axis for v in known}) > 1:
        walk.stop(node.all_input_nodes, f"cat ({node.name}) joins tensors in a way that cannot be followed")
        return None
    axis, dim = known[0].axis, dim % len(walk.shapes[node])
    if dim != axis:
        return walk.elementwise(list(dict.fromkeys(tensors)), "cat")
    layouts = []
    for tensor in tensors:
        value = walk.value(tensor)
        if value is None:
            outside = new_layout(walk.shapes[tensor][dim])
            fix(outside, f"cat joins a tensor of fixed size ({tensor.name})")
        layouts.append(value.layout if value else outside)
    return Value(axis, join(layouts))


def _stack(walk: Follower, node: fx.Node) -> Value | None:
    together = walk.elementwise(node.all_input_nodes, "stack")
    dim = argument(node, 1, "dim", 0)
    if together is None:
        return None
    dim %= len(walk.shapes[node])
    return Value(together.axis + (dim <= together.axis), together.layout)


def _pool(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    spatial = next((int(c) for c in walk.traced.kind(node) if c.isdigit()), 0)
    return value if node in walk.shapes and value.axis < len(walk.shapes[node]) - spatial else None


def _reduce(walk: Follower, node: fx.Node, value: Value) -> Found:
    kind = walk.traced.kind(node)
    place = 2 if kind == "norm" else 1
    after = place + (2 if kind in ("std", "var") else 1)
    dims, keep = argument(node, place, "dim"), argument(node, after, "keepdim", False)
    if isinstance(keep, int) and not isinstance(keep, bool) and kind != "norm":  # x.mean(2, 3)
        dims, keep = node.args[1:], node.kwargs.get("keepdim", False)
    if dims is None or not isinstance(keep, bool):
        return None
    depth = len(source_shape(walk, node))
    gone = {d % depth for d in (dims if isinstance(dims, list | tuple) else (dims,))}
    if value.axis in gone:
        return None
    result = value if keep else Value(value.axis - sum(d < value.axis for d in gone), value.layout)
    return (result, None) if kind in ("max", "min") else result


def _along_other_axis(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    """Follow softmax and similar functions, which may run over any axis but the channels."""
    default = 1 if walk.traced.kind(node) == "normalize" else None
    dim = argument(node, 2 if default else 1, "dim", default)
    return value if isinstance(dim, int) and dim % len(source_shape(walk, node)) != value.axis else None


def _chunk(walk: Follower, node: fx.Node, value: Value) -> Found:
    parts, dim = argument(node, 1, "chunks"), argument(node, 2, "dim", 0)
    shape = source_shape(walk, node)
    dim %= len(shape)
    if dim != value.axis:
        pieces_elsewhere: int = math.ceil(shape[dim] / math.ceil(shape[dim] / parts))
        return (value,) * pieces_elsewhere
    pieces = cut(value.layout, [shape[dim] // parts] * parts) if shape[dim] % parts == 0 else None
    if pieces is None:
        return None
    link(pieces, "chunk")
    return tuple(Value(value.axis, piece) for piece in pieces)


def _split(walk: Follower, node: fx.Node, value: Value) -> Found:
    sizes, dim = argument(node, 1, "split_size_or_sections", node.kwargs.get("split_size")), argument(node, 2, "dim", 0)
    shape = source_shape(walk, node)
    if not isinstance(dim, int) or dim % len(shape) == value.axis or not isinstance(sizes, int | list | tuple):
        return None
    return (value,) * (math.ceil(shape[dim] / sizes) if isinstance(sizes, int) else len(sizes))


def _pad(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    padding = argument(node, 1, "pad", ())
    return value if value.axis < len(walk.shapes[node]) - len(padding) // 2 else None


def _glu(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    """Follow a gated linear unit: the first half of the channels times the sigmoid of the second half."""
    return glu(value, argument(node, 1, "dim", -1) % len(walk.shapes[node]))


def glu(value: Value, dim: int) -> Value | None:
    """Return the channels after a gated linear unit."""
    if dim != value.axis:
        return value
    half = sum(segment.places for segment in value.layout.now()) // 2
    pieces = cut(value.layout, [half, half])
    if pieces is None:
        return None
    unite(pieces[0], pieces[1], "glu")
    return Value(value.axis, pieces[0])


_RULES: dict[str, Callable[[Any, fx.Node, Any], Any]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "normalize", "cumsum"), _along_other_axis),
    "chunk": _chunk,
    "split": _split,
    "pad": _pad,
    "glu": _glu,
    **SHAPE_RULES,
}
