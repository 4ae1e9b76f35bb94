"""Trace a network's forward pass: its operations, their inputs, and the shapes of their outputs.

Tracing only *reads* the network. Surgery replaces modules in a copy, so a grown network keeps its class, its own
`forward` and everything else that its author gave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from argosy.grow.errors import GrowError, NotTraceable

IDEMPOTENT = {"relu", "relu6", "relu_", "hardtanh", "threshold"}  # f(f(x)) = f(x)
NON_NEGATIVE = {"relu", "relu6", "relu_", "sigmoid", "softplus", "hardsigmoid", "softmax"}
OTHER_ACTIVATIONS = {
    "gelu",
    "silu",
    "silu_",
    "tanh",
    "tanh_",
    "sigmoid",
    "sigmoid_",
    "elu",
    "elu_",
    "selu",
    "celu",
    "mish",
    "leaky_relu",
    "leaky_relu_",
    "prelu",
    "rrelu",
    "softplus",
    "softsign",
    "hardswish",
    "hardsigmoid",
    "logsigmoid",
    "tanhshrink",
    "softshrink",
    "hardshrink",
}
ACTIVATIONS = IDEMPOTENT | OTHER_ACTIVATIONS


class Block(nn.Module):
    """Marks a part that may grow in a network whose forward pass cannot be traced as a whole.

    Wrap a traceable part, for instance `Block(nn.Sequential(conv, norm, relu))`; the block computes the same.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any) -> Any:
        return self.inner(*inputs)


class _Holder(nn.Module):
    """A root module around a part with one input, since a single layer can only be traced inside another module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def forward(self, x: Any) -> Any:
        return self.inner(x)


class _Tracer(fx.Tracer):
    """Treats torch's own layers and the modules that Argosy added as leaves, and traces into all others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, nn.Sequential | Block):
            return False
        inherited = getattr(type(m).forward, "__module__", "").startswith("torch.nn")  # a subclass of a torch layer
        return inherited or bool(getattr(m, "grow_leaf", False)) or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True)
class Traced:
    """A network's forward pass as a graph. Each node's `meta["shape"]` is the shape of its output."""

    model: nn.Module
    graph: fx.Graph
    example: tuple[Any, ...]

    def module(self, node: fx.Node) -> nn.Module | None:
        """Return the module that this node calls, if it calls one."""
        return self.model.get_submodule(str(node.target)) if node.op == "call_module" else None

    def activation(self, node: fx.Node) -> str | None:
        """Return the lower-case name of the activation that this node computes (`relu`, `gelu` …), or None."""
        name = self.kind(node)
        return name.rstrip("_") if name in ACTIVATIONS else None

    def kind(self, node: fx.Node) -> str:
        """Return a lower-case name of what this node does: a module's class, a function's or a method's name."""
        module = self.module(node)
        if module is not None:
            name = type(module).__name__.lower()
            return {"leakyrelu": "leaky_relu"}.get(name, name)
        if node.op == "call_function":
            return str(getattr(node.target, "__name__", node.target)).lower()
        return str(node.target).lower() if node.op == "call_method" else node.op

    def calls(self, name: str) -> list[fx.Node]:
        """Return every node that calls the module of this name; if there are several, they share its weights."""
        return [node for node in self.graph.nodes if node.op == "call_module" and node.target == name]

    def shape(self, node: fx.Node) -> tuple[int, ...] | None:
        """Return the shape of a node's output, or None if it is not one tensor."""
        found = node.meta.get("shape")
        return tuple(found) if found is not None else None


@dataclass(frozen=True)
class Region:
    """A part of a network that can be traced: all of it, or the inside of one marked block."""

    prefix: str  # of the names inside, with its dot; empty for the whole network
    traced: Traced
    calls: int = 1  # how often the forward pass runs this part


def regions(model: nn.Module, example: Any) -> list[Region]:
    """Return the network as one region or, if it cannot be traced, the insides of its marked blocks."""
    try:
        return [Region("", trace(model, example))]
    except NotTraceable:
        paths = [path for path, part in model.named_modules() if path and isinstance(part, Block)]
        outer = [path for path in paths if not any(path.startswith(f"{other}.") for other in paths)]
        if not outer:
            raise
    calls: dict[str, list[tuple[Any, ...]]] = {path: [] for path in outer}
    hooks = [
        model.get_submodule(path).register_forward_pre_hook(lambda _, inputs, path=path: calls[path].append(inputs))
        for path in outer
    ]
    try:
        run(model, as_inputs(example))
    finally:
        for hook in hooks:
            hook.remove()
    return [_inside(model, path, inputs) for path, inputs in calls.items() if inputs]


def _inside(model: nn.Module, path: str, calls: list[tuple[Any, ...]]) -> Region:
    """Return the region of one marked block, traced with the inputs that it gets in the network."""
    inner = model.get_submodule(f"{path}.inner")
    if len(calls[0]) > 1:
        return Region(f"{path}.inner.", trace(inner, calls[0]), len(calls))
    return Region(f"{path}.", trace(_Holder(inner), calls[0]), len(calls))


def as_inputs(example: Any) -> tuple[Any, ...]:
    """Return the positional arguments of the forward pass."""
    return tuple(example) if isinstance(example, tuple | list) else (example,)


def trace(model: nn.Module, example: Any) -> Traced:
    """Trace `model` in evaluation mode on an example input (a tensor or a tuple of tensors)."""
    inputs = as_inputs(example)
    run(model, inputs)
    with evaluating(model):
        try:
            graph = _Tracer().trace(model)
        except Exception as problem:
            raise NotTraceable(
                f"the forward pass of {type(model).__name__} cannot be traced: {_first_line(problem)}",
                hint="a branch that depends on a tensor's values is the usual cause; wrap the parts that may grow "
                "in grow.Block(...)",
            ) from problem
        try:
            ShapeProp(fx.GraphModule(model, graph)).propagate(*_copies(inputs))
        except Exception as problem:
            raise NotTraceable(
                f"the traced forward pass of {type(model).__name__} does not run: {_first_line(problem)}",
                hint="wrap the parts that may grow in grow.Block(...)",
            ) from problem
    for node in graph.nodes:
        tensor = node.meta.get("tensor_meta")
        node.meta["shape"] = tuple(tensor.shape) if hasattr(tensor, "shape") else None
    return Traced(model, graph, inputs)


def run(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Return the output in evaluation mode without changing the model; raise an error if the input does not fit."""
    lazy = [name for name, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise GrowError(
            f"{lazy[0]} has no shape yet (a lazy layer that has not seen data)", hint="run the model on one batch first"
        )
    try:
        with evaluating(model):
            return model(*_copies(inputs))
    except Exception as problem:
        shapes = ", ".join("x".join(map(str, x.shape)) if torch.is_tensor(x) else type(x).__name__ for x in inputs)
        raise GrowError(
            f"{type(model).__name__} does not accept an example input of shape {shapes}: {_first_line(problem)}",
            hint="give one batch as the model gets it in training, for instance torch.zeros(2, 3, 32, 32)",
        ) from problem


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Use evaluation mode without gradients in this context; afterwards every part has its own mode again."""
    training = [(part, part.training) for part in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for part, was_training in training:
            part.training = was_training


def _copies(inputs: tuple[Any, ...]) -> list[Any]:
    """Return a copy of the example, since a network may write into its input."""
    return [x.clone() if torch.is_tensor(x) else x for x in inputs]


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
