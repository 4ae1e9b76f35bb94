"""The layer graph that agents see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from grow_networks import FAMILIES
from torch import nn

from argosy.grow.describe import FEATURES, describe
from argosy.grow.models import build
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.trace import Block


@pytest.mark.parametrize("name", FAMILIES)
def test_every_site_is_in_the_graph(name: str) -> None:
    network, example = FAMILIES[name].build()
    graph = describe(network, example)
    assert {site.name for site in sites(network, example)} <= set(graph.names)
    assert np.isfinite(graph.features).all() and graph.features.shape == (len(graph.names), len(FEATURES))
    assert all(a < b for a, b in graph.edges)
    assert graph.feature("share_of_weights").sum() == pytest.approx(1.0)


def test_what_follows_a_layer_is_a_feature_of_it() -> None:
    graph = describe(build("cnn1"), torch.zeros(2, 3, 16, 16))
    assert graph.names == ("0", "3", "4", "7", "9") and graph.parts[0] == ("1", "2")
    assert graph.feature("norm").tolist() == [1, 0, 1, 0, 0]
    assert graph.feature("is_conv").tolist() == [1, 0, 1, 0, 0]
    assert graph.feature("depth").tolist() == [0, 0.25, 0.5, 0.75, 1]
    grown = describe(deepen(build("cnn1"), "9", example=torch.zeros(2, 3, 16, 16)), torch.zeros(2, 3, 16, 16))
    assert "9" in grown.names  # original layers keep their names


def test_a_network_that_can_not_be_traced_is_described_by_its_marked_blocks() -> None:
    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = Block(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
            self.out = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.inside(x) if x.sum() > -1e9 else x)

    network, example = Fickle(), torch.ones(2, 4)
    graph = describe(network, example)
    assert {site.name for site in sites(network, example)} <= set(graph.names) and len(graph.names) == 2
