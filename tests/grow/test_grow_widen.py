"""Widening keeps the function and reaches everything that shares the channels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from grow_networks import FAMILIES, VGG11, DenseNet, ResNet18, difference, fingerprint, mlp
from torch import Tensor, nn
from wide_networks import LIMIT, NETWORKS, WIDE, training_difference, widenable

from argosy.grow.errors import NoSuchSite
from argosy.grow.surgery.apply import rebuild
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.history import origins_of, surgeries_of
from argosy.grow.surgery.sites import sites
from argosy.grow.surgery.trace import Block, trace
from argosy.grow.surgery.widen import can_widen, widen
from effort import assert_no_loops

torch.set_num_threads(1)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_worked_example() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T)  # x W: column j is unit j
        model[1].weight.copy_(torch.tensor([[1.0, 2.0]]))
    x = torch.ones(1, 2)
    assert model(x).item() == 16
    for seed in range(20):
        wider = widen(model, "0", 1.5, example=x, seed=seed)
        if wider[0].weight[2].tolist() == [2.0, 4.0]:  # it is the second unit that was duplicated
            break
    assert wider[1].weight.tolist() == [[1.0, 1.0, 1.0]]
    assert wider(x).item() == 16


@pytest.mark.parametrize("init", ["copy", "fresh"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_bunch_of_channels_of_every_family(name: str, init: str) -> None:
    """Same outputs in evaluation mode, more parameters, and the original is left alone byte by byte."""
    model, example = NETWORKS[name].build(batch=5)
    before = fingerprint(model)
    found = widenable(model, example, init=init)
    assert found
    for site in found[:: max(1, len(found) // 2)]:
        wider = widen(model, site, 2, example=example, init=init, seed=3)
        assert difference(model, wider, example) <= LIMIT, site
        assert difference(model, wider, 3 * torch.randn_like(example)) <= LIMIT, site
        assert count(wider) > count(model)
        assert type(wider) is type(model) and not wider.training
    assert fingerprint(model) == before


@pytest.mark.parametrize("init", ["copy", "fresh"])
@pytest.mark.parametrize("name", ["densenet", "mobilenet", "grouped", "gated", "unet", "grouped3d", "vision"])
def test_training_mode_is_preserved_too(name: str, init: str) -> None:
    model, _ = NETWORKS[name].build(batch=5)
    example = torch.randn(32, *NETWORKS[name].shape)
    for site in widenable(model, example, init=init)[:2]:
        wider = widen(model, site, 2, example=example, init=init)
        assert training_difference(model, wider, example) <= LIMIT, site


@pytest.mark.parametrize("name", ["residual", "densenet", "mobilenet", "grouped", "halves", "grouped3d", "words"])
def test_uneven_factors(name: str) -> None:
    """Some channels are copied more often than others."""
    model, example = NETWORKS[name].build(batch=4)
    for i, site in enumerate(widenable(model, example)[:2]):
        wider = widen(model, site, (1.3, 2.6)[i % 2], example=example, seed=i)
        assert difference(model, wider, example) <= LIMIT, site


def test_a_residual_group_widens_as_a_whole() -> None:
    model, example = ResNet18(8).eval(), torch.randn(2, 3, 32, 32)
    wider = widen(model, "layer2.0.conv2", 1.5, example=example)
    for path in ("layer2.0.conv2", "layer2.0.downsample.0", "layer2.1.conv2"):
        assert wider.get_submodule(path).out_channels == 24
    for path in ("layer2.1.conv1", "layer3.0.conv1", "layer3.0.downsample.0"):
        assert wider.get_submodule(path).in_channels == 24
    assert wider.layer2[0].bn2.num_features == wider.layer2[1].bn2.num_features == 24
    assert wider.layer2[0].conv1.out_channels == 16  # not part of the group
    for module in wider.modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.shape[:2] == (module.out_channels, module.in_channels)


def test_depthwise_and_grouped_convolutions_keep_their_groups() -> None:
    model, example = FAMILIES["mobilenet"].build()
    channels = model.features[1].conv[3].groups
    depthwise = widen(model, "features.1.conv.0", 2, example=example).features[1].conv[3]
    assert depthwise.in_channels == depthwise.out_channels == depthwise.groups == 2 * channels
    model, example = WIDE["grouped3d"].build()
    grouped = widen(model, "body.0", 1.5, example=example).body[3]
    assert (grouped.in_channels, grouped.out_channels, grouped.groups) == (12, 12, 4)
    assert grouped.weight.shape[1] == 3


def test_concatenation_and_flattening_find_their_places() -> None:
    model, example = DenseNet(8, 4).eval(), torch.randn(2, 3, 12, 12)
    wider = widen(model, "dense1.0.conv2", 2, example=example)  # 4 channels in the middle of 8 + 4 + 4
    assert wider.dense1[1].norm1.num_features == 16 and wider.transition[0].num_features == 20
    nn.init.normal_(model.transition[0].weight)
    wider = widen(model, "dense1.0.conv2", 2, example=example)
    assert torch.equal(wider.transition[0].weight[:12], model.transition[0].weight[:12])
    assert torch.equal(wider.transition[0].weight[16:], model.transition[0].weight[12:])
    model, example = VGG11(4).eval(), torch.randn(2, 3, 32, 32)
    wider = widen(model, "features.25", 1.5, example=example)  # 2 x 2 places of each channel are flattened
    assert wider.classifier[0].in_features == 4 * 48


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["residual", "densenet", "mobilenet", "transformer", "grouped", "mlp_gelu", "unet"])
def test_random_sequences_of_growth(name: str, seed: int) -> None:
    """Deepening and widening in any order, and a saved state that loads into what is built again."""
    model, example = NETWORKS[name].build(seed, batch=4)
    random = torch.Generator().manual_seed(seed)
    grown = model
    for step in range(3):
        found = [s for s in sites(grown, example) if (s.can_widen if step % 2 == seed % 2 else s.can_deepen)]
        site = found[int(torch.randint(len(found), (1,), generator=random))]
        if step % 2 == seed % 2:
            init = ("copy", "fresh")[int(torch.randint(2, (1,), generator=random))]
            even = can_widen(trace(grown, example), site.name, 1.5, init) is not None
            grown = widen(grown, site, 2 if even else 1.5, init="copy" if even else init, seed=step)
        else:
            grown = deepen(grown, site, seed=step)
    assert difference(model, grown, example) <= LIMIT
    again = rebuild(model, surgeries_of(grown), example)
    again.load_state_dict(grown.state_dict())
    assert difference(grown, again, example) == 0


def test_a_deepened_block_widens_on_both_sides() -> None:
    model, example = FAMILIES["vgg11"].build()
    deeper = deepen(model, "features.4", example=example)
    wider = widen(deeper, "features.4", 1.5, example=example)
    added = [site.name for site in sites(wider, example) if not site.original]
    assert added and difference(model, wider, example) <= LIMIT
    for name in added:
        assert difference(model, widen(wider, name, 1.5, example=example), example) <= LIMIT


def test_marked_blocks_of_a_network_that_can_not_be_traced() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Block(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5)))
            self.head = nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.body(x)
            return self.head(x if float(x.sum()) > 0 else -x)

    model, x = Odd(), torch.randn(7, 4)
    wider = widen(model, "body.inner.0", 2, example=x)
    assert wider.body.inner[0].out_features == 12 and difference(model, wider, x) <= LIMIT
    assert set(origins_of(wider)[-1]) == {"body.inner.0.weight", "body.inner.0.bias", "body.inner.2.weight"}
    with pytest.raises(NoSuchSite, match="output"):
        widen(model, "body.inner.2", 2, example=x)


def test_flags_and_types_are_kept() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 2, 1)).double().train()
    model[1].eval()
    model[0].register_forward_hook(lambda *_: None)
    wider = widen(model, "0", 1.01, example=torch.randn(3, 2, 8).double())
    assert wider[0].out_channels == 5  # at least one more
    assert wider.training and not wider[1].training and len(wider[0]._forward_hooks) == 1
    assert all(p.dtype == torch.float64 and p.requires_grad for p in wider.parameters())
    assert "widen 0 x1.01" in map(str, surgeries_of(wider))


def test_same_seed_same_network() -> None:
    model, x = mlp(5, 8, 3), torch.randn(4, 5)
    state = torch.random.get_rng_state()
    for init in ("copy", "fresh"):
        one, two, other = (widen(model, "0", 1.5, example=x, init=init, seed=seed) for seed in (1, 1, 2))
        assert fingerprint(one) == fingerprint(two) != fingerprint(other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_resnet18_of_full_size_widens_without_a_loop_over_channels() -> None:
    x = torch.randn(1, 3, 32, 32)

    def widen_one(channels: int) -> Callable[[], object]:
        model = ResNet18(channels).eval()
        return lambda: widen(model, "layer3.0.conv2", 1.5, example=x)

    assert_no_loops(widen_one, few=8, many=64)
    model = ResNet18(64).eval()
    assert difference(model, widen(model, "layer3.0.conv2", 1.5, example=x), x) <= LIMIT
