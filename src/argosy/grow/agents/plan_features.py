"""A plan for growing a network, as numbers: the network's layer graph with notes on the layers that grow.

A plan lists the surgeries at each decision. They are noted on the graph: for instance, one layer is deepened once with
70 % of the time left, and another one is widened by half. Plans of networks of any size, with any set of options, have
the same kinds of notes, so what was learned on one network applies to another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from argosy.grow.describe import FEATURES, LayerGraph
from argosy.grow.errors import NoSuchSite
from argosy.grow.surgery.record import Surgery

Floats = NDArray[np.float64]
Step = tuple[Surgery, ...]  # the surgeries of one decision; there may be several
Plan = Sequence[Step]

NOTES = (
    "deepened",
    "deepened, less each time",
    "deepened, late or early",
    "widened",
    "widened, late or early",
    "unfrozen",
)
WHOLE = ("surgeries, less each time", "surgeries, little time left", "replicas", "replicas, late or early")
NODE_INPUTS = 3 * len(FEATURES)  # of the layer, the mean of those before it, the mean of those after it
EPOCHS = 30.0  # assumed in a budget if it is not known how long one takes
SURROUNDINGS = ("share_left", "log_epochs_left", "log_gpus", "utilisation")


@dataclass(frozen=True)
class Task:
    """Holds what all plans of a network have in common: the network and its training at the first decision."""

    graph: LayerGraph
    share_left: tuple[float, ...]  # of the budget, at each decision
    epochs_left: float | None = None  # at the first decision, at the network's size then
    gpus_gained: float | None = None
    utilisation: float | None = None
    name: str = field(default="", compare=False)

    @cached_property
    def surroundings(self) -> Floats:
        """Return what is known apart from the network, as one number each; NaN if it is not known."""
        return np.array(
            [
                self.share_left[0],
                math.log2(self.epochs_left) if self.epochs_left else math.nan,
                math.log2(1 + self.gpus_gained) if self.gpus_gained is not None else math.nan,
                self.utilisation if self.utilisation is not None else math.nan,
            ]
        )

    @cached_property
    def nodes(self) -> Floats:
        """Return each layer's features, and the means of those of the layers before and after it."""
        own = self.graph.features
        front, behind = np.zeros_like(own), np.zeros_like(own)
        fed, feeds = np.zeros((len(own), 1)), np.zeros((len(own), 1))
        for a, b in self.graph.edges:
            front[b] += own[a]
            fed[b] += 1
            behind[a] += own[b]
            feeds[a] += 1
        return np.concatenate([own, front / np.maximum(fed, 1), behind / np.maximum(feeds, 1)], axis=1)

    def notes(self, plans: Sequence[Plan]) -> tuple[Floats, Floats]:
        """Return the notes of each plan: on layers [plan, kind, layer], and on the whole network [plan, kind]."""
        layers = np.zeros((len(plans), len(NOTES), len(self.graph.names)))
        whole = np.zeros((len(plans), len(WHOLE)))
        middle = 0.5 * (self.share_left[0] + self.share_left[-1])
        epochs = (self.epochs_left or EPOCHS * self.share_left[0]) / max(self.share_left[0], 1e-6)  # of the budget
        span = (self.share_left[0] - self.share_left[-1]) / 2 or 1.0
        for row, plan in enumerate(plans):
            surgeries, hurried, doublings, early = 0, 0.0, 0.0, 0.0
            for share, step in zip(self.share_left, plan, strict=True):
                hurry = 1.0 / max(share * epochs, 0.5)  # 1 if one epoch is left, near 0 if many are
                sooner = (share - middle) / span  # 1 at the first decision, -1 at the last
                for surgery in step:
                    if surgery.op == "replicate":
                        doublings += math.log2(surgery.factor)
                        early += math.log2(surgery.factor) * sooner
                        continue
                    surgeries += 1
                    hurried += hurry
                    node = self._layer(surgery.site)
                    if surgery.op == "deepen":
                        layers[row, 0, node] += 1
                        layers[row, 2, node] += sooner
                    elif surgery.op == "widen":
                        layers[row, 3, node] += 2 * math.log2(surgery.factor)
                        layers[row, 4, node] += 2 * math.log2(surgery.factor) * sooner
                    else:
                        layers[row, 5, node] += 1
            whole[row] = math.sqrt(surgeries), hurried, doublings, early
        layers[:, 1] = np.sqrt(layers[:, 0])
        return layers, whole

    def _layer(self, site: str) -> int:
        """Return the row of a site; a layer that surgery added counts as the layer to which it was added."""
        names = self.graph.names
        if site in names:
            return names.index(site)
        parts = self.graph.parts or ((),) * len(names)
        hosts = [
            (len(path), i) for i, name in enumerate(names) for path in (name, *parts[i]) if site.startswith(f"{path}.")
        ]
        if not hosts:
            raise NoSuchSite(f"the network has no site {site!r}", hint=f"it has {', '.join(names)}")
        return max(hosts)[1]
