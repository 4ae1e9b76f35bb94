"""Follow channels through a traced network: from the layer that makes them to all layers that read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from argosy.grow.surgery.channels import Channels, Found, Layout, Loose, Role, Size, Use, Value, fix, new_layout, unite
from argosy.grow.surgery.follow_functions import follow_function
from argosy.grow.surgery.follow_modules import follow_module
from argosy.grow.surgery.follow_shapes import note_numbers
from argosy.grow.surgery.trace import Traced

_FOLLOWED: WeakKeyDictionary[fx.Graph, Channels] = WeakKeyDictionary()


class Follower:
    """Follows the operations of the graph. The rules for modules and for functions are in their own files."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.channels = Channels()
        self.values: dict[fx.Node, Found] = {}
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}
        self.measured: dict[fx.Node, fx.Node] = {}  # a node that is the shape of another
        self.numbers: dict[fx.Node, Layout] = {}  # a node that is the number of some channels
        self._fixed = _FixedTensors(traced)

    def walk(self) -> Channels:
        """Follow every operation in the order of the forward pass."""
        for node in self.traced.graph.nodes:
            shape = self.traced.shape(node)
            if shape is not None:
                self.shapes[node] = shape
            if node.op == "output":
                self.stop(node.all_input_nodes, "it is part of the network's output")
                note_numbers(self, node, "the network's output")
            elif node.op == "get_attr":
                self.values[node] = self._loose(str(node.target))
            elif node.op == "call_module":
                module = self.traced.model.get_submodule(str(node.target))
                self.values[node] = self._checked(node, follow_module(self, node, str(node.target), module))
            elif node.op in ("call_function", "call_method"):
                found = follow_function(self, node, self.traced.kind(node).rstrip("_"))
                self.values[node] = self._checked(node, found)
        self.channels.settle()
        return self.channels

    def _checked(self, node: fx.Node, found: Found) -> Found:
        """Return what a rule found if it agrees with the example's shape."""
        if isinstance(found, Value):
            shape = self.shapes.get(node, ())
            if not 0 <= found.axis < len(shape) or shape[found.axis] != width(found):
                fix(found.layout, f"{self.traced.kind(node)} ({node.name}) arranges them in a way that is not followed")
                return None
        return found

    def _loose(self, path: str) -> Loose | None:
        module, _, name = path.rpartition(".")
        tensor = self.traced.model.get_submodule(module)._parameters.get(name)
        return None if tensor is None else Loose(module, name, tuple(tensor.shape))

    def value(self, node: Any) -> Value | None:
        """Return what is known about a node if it is a single tensor that is followed."""
        found = self.values.get(node) if isinstance(node, fx.Node) else None
        return found if isinstance(found, Value) else None

    def stop(self, nodes: Iterable[Any], reason: str) -> None:
        """Stop following these tensors: their channels cannot grow."""
        for node in nodes:
            found = self.values.get(node)
            for value in found if isinstance(found, tuple) else (found,):
                if isinstance(value, Value):
                    fix(value.layout, reason)

    def read(self, node: fx.Node, source: Any, axis: int, what: str) -> Layout | None:
        """Return the channels along this axis of the input; channels followed along another axis cannot grow."""
        value = self.value(source)
        if value is not None and value.axis != axis:
            fix(value.layout, f"{what} ({node.name}) reads them along another axis")
            return None
        return value.layout if value else None

    def use(self, module: str, tensor: str, dim: int, layout: Layout | None, role: Role) -> None:
        """Record that a dimension of a parameter or buffer of a module, if it exists, has these channels."""
        if layout is None or getattr(self.traced.model.get_submodule(module), tensor, None) is None:
            return
        reason = self._fixed.of(module, tensor)
        if reason:
            fix(layout, reason)
        for use in self.channels.uses:
            if (use.module, use.tensor, use.dim) == (module, tensor, dim):
                unite(use.layout, layout, f"{module} ({tensor})")
                return
        self.channels.uses.append(Use(module, tensor, dim, layout, role))

    def size(self, module: str, attribute: str, layout: Layout | None, per: int = 1) -> None:
        """Record that an attribute of a module stores the number of these channels."""
        if layout is not None:
            self.channels.sizes.append(Size(module, attribute, layout, per))

    def elementwise(self, nodes: list[fx.Node], what: str) -> Value | None:
        """Record that tensors combined element by element, with broadcasting, have the same channels."""
        known = {node: value for node in nodes if (value := self.value(node)) is not None}
        if not known:
            return None
        axes = {node: value.axis - len(self.shapes[node]) for node, value in known.items()}  # from the right
        leader = max(known, key=lambda node: width(known[node]))
        main, axis = known[leader], axes[leader]
        for node in nodes:
            value, shape = known.get(node), self.shapes.get(node, ())
            here = shape[axis] if len(shape) >= -axis else 1
            if value is not None and (axes[node] != axis or width(value) < width(main)):
                fix(value.layout, f"{what} spreads them over other channels")
            elif value is not None:
                unite(main.layout, value.layout, what)
                continue
            if here > 1 or (value is not None and width(main) == 1):
                self._adopt(node, axis + len(shape), main.layout, what)
        depth = max(len(self.shapes.get(node, ())) for node in nodes)
        return Value(depth + axis, main.layout)

    def _adopt(self, node: fx.Node, dim: int, layout: Layout, what: str) -> None:
        """Combine followed channels with another tensor: a parameter gets them, any other tensor fixes them."""
        loose = self.values.get(node)
        if isinstance(loose, Loose) and loose.shape[dim] == self.shapes[node][dim]:
            own = new_layout(loose.shape[dim])
            self.use(loose.module, loose.name, dim, own, "out")
            unite(layout, own, what)
        else:
            fix(layout, f"{what} combines them with a tensor of fixed size ({node.name})")


class _FixedTensors:
    """Knows which tensors must stay as they are, and why."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.owners: dict[int, list[str]] = {}
        for name, parameter in traced.model.named_parameters(remove_duplicate=False):
            self.owners.setdefault(id(parameter), []).append(name)
        self.calls: dict[str, int] = {}
        for node in traced.graph.nodes:
            if node.op == "call_module":
                self.calls[str(node.target)] = self.calls.get(str(node.target), 0) + 1
        self.read = {str(node.target) for node in traced.graph.nodes if node.op == "get_attr"}

    def of(self, path: str, name: str) -> str | None:
        """Return why this tensor of this module cannot change."""
        module, full = self.traced.model.get_submodule(path), f"{path}.{name}".lstrip(".")
        tensor = getattr(module, name)
        others = [owner for owner in self.owners.get(id(tensor), []) if owner != full]
        if others:
            return f"the weights of {path or name} are shared ({full} is {others[0]})"
        if self._called(path) > 1:
            return f"{path} is called more than once in a forward pass"
        if self._called(path) and full in self.read:
            return f"the forward pass also reads {full} directly"
        if isinstance(tensor, nn.Parameter) and not tensor.requires_grad:
            return f"{path or name} is frozen ({full}.requires_grad is False)"
        if parametrize.is_parametrized(module) or name not in {**module._parameters, **module._buffers}:
            return f"the weights of {path} are computed from other tensors (weight_norm, pruning …)"
        return None

    def _called(self, name: str) -> int:
        """Return how often the layer is called, by itself or inside the leaf module that contains it."""
        parts = name.split(".")
        return max(self.calls.get(".".join(parts[:end]), 0) for end in range(1, len(parts) + 1))


def width(value: Value) -> int:
    """Return the number of positions along the channel axis."""
    return sum(segment.places for segment in value.layout.now())


def follow(traced: Traced) -> Channels:
    """Return the channels of a traced network; they are cached with the trace."""
    if traced.graph not in _FOLLOWED:
        with torch.no_grad():
            _FOLLOWED[traced.graph] = Follower(traced).walk()
    return _FOLLOWED[traced.graph]
