"""The rules by which channels move when the shape of a tensor changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from argosy.grow.surgery.channels import Found, Value, fix, join

if TYPE_CHECKING:
    from argosy.grow.surgery.follow import Follower


def argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """Return an argument given by position or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def source_shape(walk: Follower, node: fx.Node) -> tuple[int, ...]:
    source = node.args[0] if node.args else next(iter(node.kwargs.values()))
    assert isinstance(source, fx.Node)
    return walk.shapes[source]


def is_size(walk: Follower, node: fx.Node, kind: str, source: Any) -> bool:
    """Return whether this node is a size or a product of sizes; if it is a number of channels, that is recorded."""
    if kind == "size" or (kind == "getattr" and node.args[1] == "shape"):
        walk.measured[node] = source
        dim = argument(node, 1, "dim") if kind == "size" else None
    elif kind == "getitem" and source in walk.measured:
        source, dim = walk.measured[source], node.args[1]
    elif kind in ("mul", "imul") and not any(other in walk.shapes for other in node.all_input_nodes):
        factors = [walk.numbers[other] for other in node.all_input_nodes if other in walk.numbers]
        if factors:
            walk.numbers[node] = join(factors)
        return True
    else:
        return False
    value = walk.value(source)
    if value is not None and isinstance(dim, int) and dim % len(walk.shapes[source]) == value.axis:
        walk.numbers[node] = value.layout
    return True


def note_numbers(walk: Follower, node: fx.Node, what: str, found: Found = None) -> None:
    """Record that the network computes with a number of channels; unless it only arranges them, they cannot grow."""
    for other in node.all_input_nodes:
        if other in walk.numbers:
            arranged = found.layout if isinstance(found, Value) else None
            walk.channels.numbers.append((walk.numbers[other], arranged, f"{what} computes with their number"))


def _flatten(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    return merged(source_shape(walk, node), walk.shapes[node], value)


def merged(old: tuple[int, ...], new: tuple[int, ...], value: Value) -> Value | None:
    """Return the channels after a change of shape that keeps the channel axis or merges it with its neighbours."""
    i = j = 0
    while i < len(old) and j < len(new):
        a, b, left, right = i, j, old[i], new[j]
        while left != right:  # the shortest sequences of axes with the same number of positions
            if left < right:
                i += 1
                left *= old[i]
            else:
                j += 1
                right *= new[j]
        if a <= value.axis <= i:
            if j > b:
                return None
            outer, inner = math.prod(old[a : value.axis]), math.prod(old[value.axis + 1 : i + 1])
            return Value(b, value.layout.spread(outer, inner))
        i, j = i + 1, j + 1
    return None


def _reshape(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    new = walk.shapes[node]
    found = merged(source_shape(walk, node), new, value)
    wanted = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], list | tuple) else node.args[1:]
    if found is None or not isinstance(wanted, tuple | list) or len(wanted) != len(new):
        return None
    size = wanted[found.axis]
    if isinstance(size, int) and size != -1:
        fix(value.layout, f"{walk.traced.kind(node)} ({node.name}) has the fixed size {size}")
        return None
    return found


def _squeeze(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    shape = source_shape(walk, node)
    dims = argument(node, 1, "dim")
    if dims is None:
        gone = {d for d, size in enumerate(shape) if size == 1}
    else:
        gone = {d % len(shape) for d in (dims if isinstance(dims, list | tuple) else (dims,)) if shape[d] == 1}
    return None if value.axis in gone else Value(value.axis - sum(d < value.axis for d in gone), value.layout)


def _unsqueeze(walk: Follower, node: fx.Node, value: Value) -> Value:
    dim = argument(node, 1, "dim") % len(walk.shapes[node])
    return Value(value.axis + (dim <= value.axis), value.layout)


def _transpose(walk: Follower, node: fx.Node, value: Value) -> Value:
    depth = len(walk.shapes[node])
    swap = [argument(node, 1, "dim0") % depth, argument(node, 2, "dim1") % depth]
    return Value(swap[1 - swap.index(value.axis)] if value.axis in swap else value.axis, value.layout)


def _permute(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    order: Any = argument(node, 1, "dims")
    order = order if isinstance(order, list | tuple) else node.args[1:]
    places = [d % len(walk.shapes[node]) for d in order]
    return Value(places.index(value.axis), value.layout)


def _expand(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    wanted = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], list | tuple) else node.args[1:]
    axis = value.axis + len(walk.shapes[node]) - len(source_shape(walk, node))
    if not isinstance(wanted, list | tuple) or len(wanted) != len(walk.shapes[node]):
        return None
    free = wanted[axis] == -1 or isinstance(wanted[axis], fx.Node)
    return Value(axis, value.layout) if free else None


def _getitem(walk: Follower, node: fx.Node, value: Value) -> Value | None:
    index = node.args[1]
    index = index if isinstance(index, tuple) else (index,)
    depth = len(source_shape(walk, node))
    if Ellipsis in index:
        at = index.index(Ellipsis)
        missing = depth - sum(i is not None for i in index) + 1
        index = (*index[:at], *(slice(None),) * missing, *index[at + 1 :])
    old, axis = 0, 0  # the next axis of the source, and its place in the result
    for item in index:
        if item is None:
            axis += 1
        elif isinstance(item, slice | int) or _is_index(walk, item):
            if old == value.axis:
                return Value(axis, value.layout) if item == slice(None) else None
            old, axis = old + 1, axis + isinstance(item, slice)
        else:
            return None
    return Value(axis + value.axis - old, value.layout)


def _is_index(walk: Follower, item: object) -> bool:
    """Return whether this item is an index that is computed when the network runs."""
    return isinstance(item, fx.Node) and item not in walk.shapes and walk.values.get(item) is None


SHAPE_RULES: dict[str, Callable[[Any, fx.Node, Any], Any]] = {
    "flatten": _flatten,
    "view": _reshape,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "permute": _permute,
    "expand": _expand,
    "getitem": _getitem,
}
