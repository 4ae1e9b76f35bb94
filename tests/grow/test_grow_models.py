"""The networks of the family: they train, can be grown without a change of their outputs, and differ in kind."""

from __future__ import annotations

import pytest
import torch

from argosy.errors import UnknownName
from argosy.grow.describe import describe
from argosy.grow.models import MODELS, build
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.widen import widen

SIZED = {
    "mlp": {"size": 14, "channels": 1},
    "vit": {"size": 14, "channels": 1, "patch": 3},
    "lstm": {"size": 14, "channels": 1},
}


@pytest.mark.parametrize("name", MODELS)
def test_every_network_can_be_grown_without_changing_its_outputs(name: str) -> None:
    torch.manual_seed(0)
    options = SIZED.get(name, {"channels": 1})
    network = build(name, width=8, **options).eval()
    example = torch.randn(6, 1, 14, 14)
    with torch.no_grad():
        before = network(example)
    assert before.shape == (6, 10)
    found = sites(network, example)
    deeper, wider = [s for s in found if s.can_deepen], [s for s in found if s.can_widen]
    assert deeper and wider
    for grown in (deepen(network, deeper[0]), widen(network, wider[-1], 2.0)):
        with torch.no_grad():
            assert torch.allclose(grown.eval()(example), before, atol=1e-5)
        assert sum(p.numel() for p in grown.parameters()) > sum(p.numel() for p in network.parameters())


def test_activation_and_norm_can_be_chosen_and_are_described() -> None:
    example = torch.zeros(2, 3, 12, 12)
    gelu = describe(build("plain", activation="gelu", norm=False), example)
    assert "gelu" in gelu.activations and not any(gelu.norms)
    relu = describe(build("plain"), example)
    assert relu.activations[0] == "relu" and relu.norms[0] == "batchnorm2d"
    vit = describe(build("vit"), torch.zeros(2, 3, 16, 16))
    assert "layernorm" in vit.norms and len(vit.norms) == len(vit.names) == len(vit.activations)
    with pytest.raises(UnknownName, match="activation"):
        build("plain", activation="step")


def test_a_layer_of_the_lstm_itself_cannot_grow_but_those_after_it_can() -> None:
    network = build("lstm", **SIZED["lstm"])
    found = sites(network, torch.zeros(2, 1, 14, 14))
    assert {"hidden", "head"} <= {s.name for s in found}
    refused = {s.name: s.why_not for s in found.refused}
    assert "lstm" in refused and "cannot be deepened" in refused["lstm"]["deepen"]


def test_tables_of_numbers_are_data_like_pictures() -> None:
    from argosy.grow.data import load

    for name, classes, numbers in (("breast-cancer", 2, 30), ("clusters", 8, 24)):
        data = load(name, train=200, val=80)
        assert (data.classes, data.shape, len(data.train_y), len(data.val_y)) == (classes, (numbers, 1, 1), 200, 80)
        assert abs(float(data.train_x.mean())) < 1e-4
        assert torch.allclose(data.train_x.std((0, 2, 3), unbiased=False), torch.ones(numbers), atol=1e-3)
        assert build("mlp", channels=numbers, classes=classes)(data.train_x[:3]).shape == (3, classes)
    with pytest.raises(UnknownName, match="clusters"):
        load("cluster")
