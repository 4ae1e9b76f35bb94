"""Describe a network as a graph of layers with features, for agents.

There is no closed vocabulary, so any layer can be described. Nodes are layers and operations that transform data
(weights, pools, additions, concatenations, activations without a layer); what merely follows a layer (its norm, its
activation) is a feature of that layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import fx, nn

from argosy.grow.surgery.grown import host_path
from argosy.grow.surgery.trace import Region, Traced, regions

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
KINDS = ("conv", "linear", "attention", "embedding", "pool", "join", "other")
FEATURES = (
    *(f"is_{kind}" for kind in KINDS),
    "log_in",
    "log_out",
    "kernel",
    "stride",
    "log_groups",
    "norm",
    "activation",
    "log_positions",
    "depth",
    "height",
    "share_of_weights",
    "share_of_work",
    "log_weights",
)


@dataclass(frozen=True)
class LayerGraph:
    """Holds layers in the order of the forward pass, their features, and their connections."""

    names: tuple[str, ...]
    features: NDArray[np.float64] = field(compare=False)  # one row per layer, columns as in FEATURES
    edges: tuple[tuple[int, int], ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()  # for each layer, the modules that merely follow it, such as its norm
    activations: tuple[str, ...] = ()  # for each layer, the name of the activation after it; "" if there is none
    norms: tuple[str, ...] = ()  # the same for norms

    def index(self, site: str) -> int:
        """Return the row of the layer with this name."""
        return self.names.index(site)

    def feature(self, name: str) -> NDArray[np.float64]:
        """Return one feature of all layers."""
        return self.features[:, FEATURES.index(name)]


def describe(model: nn.Module, example: object) -> LayerGraph:
    """Return the layer graph of a network or, if it cannot be traced, of its marked blocks, one after the other."""
    reader = _Reader()
    for region in regions(model, example):
        reader.read(region)
    return reader.graph()


class _Reader:
    """Folds norms and activations into the layer before them, and numbers the other nodes."""

    traced: Traced
    prefix: str

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.names: list[str] = []
        self.edges: list[tuple[int, int]] = []
        self.parts: list[list[str]] = []
        self.activations: list[str] = []
        self.norms: list[str] = []
        self.row_of: dict[fx.Node, int | None] = {}

    def read(self, region: Region) -> None:
        """Add the layers of a region."""
        self.traced, self.prefix = region.traced, region.prefix
        for node in self.traced.graph.nodes:
            self._read(node)

    def graph(self) -> LayerGraph:
        """Return all layers that were read."""
        self._share()
        table = np.array([[row.get(name, 0.0) for name in FEATURES] for row in self.rows]).reshape(-1, len(FEATURES))
        return LayerGraph(
            tuple(self.names),
            table,
            tuple(self.edges),
            tuple(map(tuple, self.parts)),
            tuple(self.activations),
            tuple(self.norms),
        )

    def _read(self, node: fx.Node) -> None:
        sources = [row for row in (self.row_of.get(n) for n in node.all_input_nodes) if row is not None]
        module, kind = self.traced.module(node), self.traced.kind(node)
        if node.op in ("placeholder", "get_attr", "output") or self._shape(node) is None:
            self.row_of[node] = sources[0] if sources else None
            return
        single = len(set(sources)) == 1
        if single and (self.traced.activation(node) or "norm" in kind or not self._shapes(node, module, kind)):
            self._fold(sources[0], kind, self.traced.activation(node) or "")
            self.row_of[node] = sources[0]
            if module is not None:
                self.parts[sources[0]].append(self._name(node))
            return
        self.row_of[node] = len(self.rows)
        self.parts.append([])
        self.activations.append("")
        self.norms.append("")
        self.edges += [(source, len(self.rows)) for source in dict.fromkeys(sources)]
        self.names.append(self._name(node) if module is not None else f"{self.prefix}{node.name}")
        self.rows.append(self._features(node, module, kind))

    def _name(self, node: fx.Node) -> str:
        """Return the path of the layer in the original network."""
        return self.prefix + host_path(self.traced.model, str(node.target))

    def _shape(self, node: fx.Node) -> tuple[int, ...] | None:
        """Return the shape of the output; for one with several outputs (attention, recurrent), that of its input."""
        found, module = self.traced.shape(node), self.traced.module(node)
        if found is None and module is not None and any(True for _ in module.parameters()) and node.all_input_nodes:
            return self._shape(node.all_input_nodes[0])
        return found

    def _shapes(self, node: fx.Node, module: nn.Module | None, kind: str) -> bool:
        """Return whether this operation changes values, and not only their arrangement."""
        return "pool" in kind or kind == "mean" or (module is not None and any(True for _ in module.parameters()))

    def _fold(self, row: int, kind: str, activation: str) -> None:
        if activation:
            self.rows[row]["activation"] = 1.0
            self.activations[row] = activation
        elif "norm" in kind:
            self.rows[row]["norm"] = 1.0
            self.norms[row] = kind

    def _features(self, node: fx.Node, module: nn.Module | None, kind: str) -> dict[str, float]:
        shape = self._shape(node) or (1,)
        channels_out = shape[1] if isinstance(module, CONVOLUTIONS) or len(shape) > 3 else shape[-1]
        positions = math.prod(shape[1:]) / max(channels_out, 1)
        weights = float(sum(p.numel() for p in module.parameters())) if module is not None else 0.0
        channels_in = getattr(module, "in_channels", getattr(module, "in_features", channels_out))
        row = {
            f"is_{self._family(module, kind, len(node.all_input_nodes))}": 1.0,
            "log_in": math.log2(max(channels_in, 1)),
            "log_out": math.log2(max(channels_out, 1)),
            "log_positions": math.log2(max(positions, 1)),
            "log_weights": math.log2(1 + weights),
            "weights": weights,
            "work": weights * positions,
        }
        if isinstance(module, CONVOLUTIONS):
            row |= {
                "kernel": float(module.kernel_size[0]),
                "stride": float(module.stride[0]),
                "log_groups": math.log2(module.groups),
            }
        return row

    def _family(self, module: nn.Module | None, kind: str, inputs: int) -> str:
        for family in ("conv", "linear", "attention", "embedding", "pool"):
            if family in kind and (family == "pool" or module is not None):
                return family
        if kind == "mean":
            return "pool"
        return "join" if inputs > 1 else "other"

    def _share(self) -> None:
        """Fill in positions in the graph and shares of the whole, once everything is known."""
        depth = [0] * len(self.rows)
        height = [0] * len(self.rows)
        for a, b in self.edges:
            depth[b] = max(depth[b], depth[a] + 1)
        for a, b in reversed(self.edges):
            height[a] = max(height[a], height[b] + 1)
        weights = sum(row["weights"] for row in self.rows) or 1.0
        work = sum(row["work"] for row in self.rows) or 1.0
        deepest = max(depth, default=0) or 1
        for row, d, h in zip(self.rows, depth, height, strict=True):
            row["depth"], row["height"] = d / deepest, h / deepest
            row["share_of_weights"], row["share_of_work"] = row.pop("weights") / weights, row.pop("work") / work
