"""Find what belongs to one weighted layer: its norm, the activation after it, and what is known about its input.

A block is read from the traced graph. It determines which constructions deepen it without changing the function.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from torch import fx, nn

from argosy.grow.surgery.grown import Grown, host_path
from argosy.grow.surgery.trace import IDEMPOTENT, NON_NEGATIVE, Traced

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
DEEPENABLE = (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
OTHER_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)
DROPOUTS = {"dropout", "dropout1d", "dropout2d", "dropout3d"}
# operations that keep the sign of their input
_KEEP_SIGN = DROPOUTS | {
    "flatten",
    "reshape",
    "view",
    "contiguous",
    "clone",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
    "identity",
    "getitem",
    "chunk",
    "split",
    "mean",
    "sum",
    "amax",
    "amin",
    "channelshuffle",
    "pixelshuffle",
    "unflatten",
    "expand",
    "repeat",
    "zeropad2d",
}
_JOIN = {"cat", "concat", "stack", "add", "iadd", "mul", "imul", "maximum", "minimum"}  # non-negative if all inputs are
_IN_PLACE_OPERATORS = {
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.setitem,
}


@dataclass(frozen=True)
class LayerBlock:
    """Holds a weighted layer with what belongs to it, as nodes of the graph and paths in the present model."""

    path: str
    node: fx.Node
    host: str  # the module that is wrapped to add layers after it: the norm, or the layer itself
    norm: nn.Module | None  # the batch-norm; an added layer gets one like it
    activation: fx.Node | None  # the activation at the end of the block
    layers: tuple[str, ...]
    chain: tuple[fx.Node, ...]  # the tensors between the layer and the activation; the last one is the block's result

    @property
    def end(self) -> fx.Node:
        """Return the output of the block before its activation."""
        return self.chain[-1]

    def layer(self, traced: Traced) -> nn.Module:
        """Return the weighted layer."""
        return traced.model.get_submodule(self.path)


def read_block(traced: Traced, path: str) -> LayerBlock:
    """Return the block of the layer at `path`, which the graph calls exactly once."""
    node = traced.calls(path)[0]
    host, norm, activation = path, None, None
    here = _end(traced, node)
    layers, chain = [path], [node, here]
    while len(here.users) == 1:
        following = next(iter(here.users))
        module = traced.module(following)
        if traced.activation(following):
            activation = following
            layers += [str(following.target)] if module is not None else []
            break
        if isinstance(module, (*BATCH_NORMS, *OTHER_NORMS)) and called_once(traced, str(following.target)):
            if isinstance(module, BATCH_NORMS) and norm is None:
                norm = module
            host = str(following.target)
            layers.append(host)
        elif traced.kind(following) not in DROPOUTS:
            break
        here = _end(traced, following)
        chain.append(here)
    return LayerBlock(path, node, host, norm or _norm_in_front(traced, node), activation, tuple(layers), tuple(chain))


def ends_idempotent(traced: Traced, block: LayerBlock) -> bool:
    """Return whether the block ends in an activation with f(f(x)) = f(x)."""
    return block.activation is not None and traced.kind(block.activation) in IDEMPOTENT


def non_negative(traced: Traced, node: fx.Node) -> bool:
    """Return whether this tensor is known to have no negative element."""
    kind = traced.kind(node)
    if any(changes_in_place(traced, user, node) and not _safe(traced, user) for user in node.users):
        return False
    if kind in NON_NEGATIVE or kind in ("abs", "square", "exp"):
        return True
    if kind in _KEEP_SIGN or ("pool" in kind and "lp" not in kind):
        source = source_of(node)
        return source is not None and non_negative(traced, source)
    if kind in _JOIN:
        numbers = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, int | float)]
        factors = numbers if kind not in ("cat", "concat", "stack") else []  # there, a number is an axis
        return all(n >= 0 for n in factors) and all(non_negative(traced, source) for source in node.all_input_nodes)
    return False


def source_of(node: fx.Node) -> fx.Node | None:
    """Return the tensor on which this node operates: its first argument."""
    first = node.args[0] if node.args else node.kwargs.get("input")
    return first if isinstance(first, fx.Node) else None


def changes_in_place(traced: Traced, node: fx.Node, tensor: fx.Node) -> bool:
    """Return whether this node writes into its input tensor."""
    if source_of(node) is not tensor:
        return False
    if node.op == "call_module":
        return bool(getattr(traced.module(node), "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).endswith("__")
    if node.op != "call_function":
        return False
    named = getattr(node.target, "__name__", "").endswith("_")
    positional = traced.activation(node) is not None and any(a is True for a in node.args[1:])
    return node.target in _IN_PLACE_OPERATORS or named or positional or node.kwargs.get("inplace") is True


def called_once(traced: Traced, path: str) -> bool:
    """Return whether the module at this path is called exactly once, and under one name only."""
    module = traced.model.get_submodule(path)
    names = [name for name, part in traced.model.named_modules(remove_duplicate=False) if part is module]
    return len(traced.calls(path)) == 1 and len(names) == 1


def _end(traced: Traced, node: fx.Node) -> fx.Node:
    """Return the node at which the output of this layer leaves its wrapper, or the node itself if there is none."""
    host = host_path(traced.model, str(node.target)) if node.op == "call_module" else ""
    if not host or host == str(node.target) or not isinstance(traced.model.get_submodule(host), Grown):
        return node
    inside = [n for n in traced.graph.nodes if host in _stack(n)]
    return inside[-1] if inside else node


def _stack(node: fx.Node) -> set[str]:
    """Return the paths of the modules in whose forward pass this node was traced."""
    return {str(entry[0]) for entry in node.meta.get("nn_module_stack", {}).values()}


def _norm_in_front(traced: Traced, node: fx.Node) -> nn.Module | None:
    """Return the batch-norm of a block in the order norm, activation, layer."""
    activation = source_of(node)
    source = source_of(activation) if activation is not None and traced.activation(activation) else None
    module = traced.module(source) if source is not None else None
    return module if isinstance(module, BATCH_NORMS) else None


def _safe(traced: Traced, node: fx.Node) -> bool:
    return traced.kind(node) in NON_NEGATIVE | DROPOUTS
