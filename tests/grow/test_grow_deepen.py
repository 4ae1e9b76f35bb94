"""Deepening: exact in every family, in both modes where that is possible, and trainable at once."""

from __future__ import annotations

import copy

import pytest
import torch
from grow_networks import FAMILIES, difference, difference_in_training, fingerprint, mlp, season
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_networks import NetPlan, net_plans
from torch import Tensor, nn
from torch.nn import functional as F

from argosy.grow.errors import GrowError, NoSuchSite
from argosy.grow.models import cnn1, cnn2, residual
from argosy.grow.surgery.deepen import Grown, ResidualBranch, deepen
from argosy.grow.surgery.sites import sites

torch.set_num_threads(1)
TOLERANCE = 1e-5  # of the output's scale, see `difference`


def without_gradient(old: nn.Module, new: nn.Module, example: Tensor, lr: float = 0.05) -> list[str]:
    """Return new parameters without any gradient after two steps of SGD in training mode."""
    known = {name.replace(".layer.", ".") for name, _ in old.named_parameters()}
    added = {name: p for name, p in new.named_parameters() if name.replace(".layer.", ".") not in known}
    assert added
    silent = set(added)
    new.train()
    optimizer = torch.optim.SGD(new.parameters(), lr=lr)
    labels = torch.arange(len(example)) % new.eval()(example).shape[1]
    new.train()
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(new(example), labels).backward()
        silent -= {name for name, p in added.items() if p.grad is not None and p.grad.abs().max() > 0}
        optimizer.step()
    return sorted(silent)


def learns(model: nn.Module, example: Tensor) -> bool:
    """Does every weight matrix of the network get a gradient?"""
    twin = copy.deepcopy(model).train()
    F.cross_entropy(twin(example), torch.arange(len(example)) % 3).backward()
    return all(p.grad is not None and bool(p.grad.abs().max() > 0) for p in twin.parameters() if p.dim() > 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_sites_of_every_family_keep_the_function(name: str) -> None:
    model, example = FAMILIES[name].build()
    before = fingerprint(model)
    places = [site for site in sites(model, example) if site.can_deepen]
    assert places
    for site in places[:: 1 + len(places) // 12]:
        grown = deepen(model, site)
        assert difference(model, grown, example) <= TOLERANCE, site.name
        assert difference(model, grown, 3 * torch.randn_like(example)) <= TOLERANCE, site.name
        assert sum(p.numel() for p in grown.parameters()) > sum(p.numel() for p in model.parameters())
        assert type(grown) is type(model)
    assert fingerprint(model) == before
    assert not any(isinstance(part, Grown) for part in model.modules())


@pytest.mark.parametrize("name", FAMILIES)
def test_every_new_parameter_learns_within_two_steps(name: str) -> None:
    model, example = FAMILIES[name].build(batch=12)
    for site in [site for site in sites(model, example) if site.can_deepen][:4]:
        assert without_gradient(model, deepen(model, site), example) == [], site.name


@settings(max_examples=12, deadline=None)
@given(plan=net_plans(), choices=st.lists(st.integers(0, 50), min_size=1, max_size=4))
def test_random_networks_and_random_growth(plan: NetPlan, choices: list[int]) -> None:
    model, example = plan.build()
    before, grown = fingerprint(model), model
    for choice in choices:
        places = [site for site in sites(grown, example) if site.can_deepen]
        bigger = deepen(grown, places[choice % len(places)])
        assert difference(model, bigger, example) <= TOLERANCE
        assert difference(model, bigger, 2 * torch.randn_like(example)) <= TOLERANCE
        assert difference_in_training(model, bigger, example) <= TOLERANCE  # on the calibration batch
        grown = bigger
    assert fingerprint(model) == before


@settings(max_examples=12, deadline=None)
@given(plan=net_plans(), choice=st.integers(0, 50))
def test_random_networks_learn_with_their_new_layer(plan: NetPlan, choice: int) -> None:
    model, _ = plan.build()
    example = torch.randn(16, 4, *([8] * plan.dims))
    assume(learns(model, example))  # some small networks are dead (all of a layer's ReLUs are off) before they grow
    places = [site for site in sites(model, example) if site.can_deepen]
    assert without_gradient(model, deepen(model, places[choice % len(places)]), example) == []


@pytest.mark.parametrize("site", ["0", "4", "9"])
def test_a_batch_norm_block_is_exact_in_training_mode_on_its_calibration_batch(site: str) -> None:
    model, example = cnn1(8, channels=1), torch.randn(16, 1, 14, 14)
    season(model, example)
    grown = deepen(model, site, example=example)
    assert difference_in_training(model, grown, example) <= TOLERANCE
    assert grown.training == model.training


def test_a_large_epsilon_is_taken_into_account() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, eps=0.5), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    example = torch.randn(8, 1, 6, 6)
    grown = deepen(deepen(model, "0", example=example), "0", example=example)
    assert difference(model, grown, example) <= TOLERANCE
    assert difference_in_training(model, grown, example) <= TOLERANCE


def test_calibration_leaves_no_trace_in_the_statistics() -> None:
    model, example = cnn2(4, channels=1).train(), torch.randn(8, 1, 10, 10)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    grown = deepen(model, "0", example=example)
    assert torch.equal(torch.rand(3), expected), "torch's own stream of random numbers moved"
    for name, value in model.state_dict().items():
        now = grown.state_dict()[name if name in grown.state_dict() else name.replace("1.", "1.layer.", 1)]
        assert torch.equal(value, now), name
    assert all(part.training for part in grown.modules())


def test_a_dead_channel_gets_a_usable_scale() -> None:
    model, example = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()), torch.randn(4, 1, 6, 6)
    with torch.no_grad():
        model[1].bias[0] = -100.0
    grown = deepen(model, "0", example=example)
    assert grown.get_submodule("1.after.2").weight[0].item() == pytest.approx(1.0, abs=1e-4)
    assert difference(model, grown, example) <= TOLERANCE


def test_the_constructions_are_chosen_by_what_follows_and_what_comes_in() -> None:
    model, example = residual(4, channels=1).eval(), torch.randn(4, 1, 8, 8)
    after = deepen(model, "blocks.0.conv1", example=example).get_submodule("blocks.0.norm1")
    assert [type(part).__name__ for part in after.after] == ["ReLU", "Conv2d", "BatchNorm2d"]
    before = deepen(model, "blocks.0.conv2", example=example).get_submodule("blocks.0.conv2")
    assert [type(part).__name__ for part in before.before] == ["Conv2d", "BatchNorm2d", "ReLU"]
    gelu, example = FAMILIES["mlp_gelu"].build()
    assert isinstance(deepen(gelu, "0", example=example)[0].after[0], ResidualBranch)


def test_a_negative_factor_makes_the_sign_unknown() -> None:
    class Negated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(torch.relu(self.one(x)) * -1.0)

    model, example = Negated(), torch.randn(5, 3)
    grown = deepen(model, "two", example=example)
    assert isinstance(grown.two.after[0], ResidualBranch)
    assert difference(model, grown, example) <= TOLERANCE


def test_deepening_a_place_again_appends_and_added_layers_are_places() -> None:
    model, example = cnn1(4, channels=1).eval(), torch.randn(6, 1, 12, 12)
    grown = model
    for _ in range(3):
        grown = deepen(grown, "0", example=example)
    kinds = [type(part).__name__ for part in grown.get_submodule("1").after]
    assert kinds == ["ReLU", "Conv2d", "BatchNorm2d"] * 3
    found = sites(grown, example)
    assert [site.name for site in found if site.original] == ["0", "4", "9"]
    assert [site.name for site in found if not site.original] == ["1.after.1", "1.after.4", "1.after.7"]
    assert difference(model, deepen(grown, "1.after.4", example=example), example) <= TOLERANCE


@pytest.mark.parametrize(
    "activation", [nn.GELU, nn.Tanh, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.PReLU, nn.Hardtanh, nn.ReLU6]
)
def test_every_activation(activation: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, example = mlp(5, 8, 6, 3, activation=activation), 3 * torch.randn(9, 5)
    for site in ("0", "2", "4"):
        assert difference(model, deepen(model, site, example=example), example) <= TOLERANCE


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv1d(2, 6, 4, stride=2), nn.BatchNorm1d(6), (2, 20)),
        (nn.Conv3d(2, 4, (1, 3, 5), groups=2), nn.BatchNorm3d(4), (2, 6, 6, 6)),
        (nn.Conv2d(2, 4, 3, dilation=2, padding_mode="reflect", padding=2), nn.GroupNorm(2, 4), (2, 8, 8)),
        (nn.ConvTranspose2d(2, 4, 4, stride=2), nn.BatchNorm2d(4), (2, 5, 5)),
        (nn.Linear(7, 4), nn.LayerNorm(4), (3, 7)),
        (nn.Linear(7, 4), nn.BatchNorm1d(4, affine=False), (7,)),
        (nn.Linear(7, 4), nn.BatchNorm1d(3), (3, 7)),
    ],
)
def test_layers_of_every_dimension(layer: nn.Module, norm: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, example = nn.Sequential(layer, norm, nn.ReLU()), torch.randn(4, *shape)
    model.train()(example)
    grown = deepen(deepen(model, "0", example=example), "0", example=example)
    assert difference(model, grown, torch.randn(5, *shape)) <= TOLERANCE


def test_double_precision_and_half_precision_are_kept() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        model, example = cnn1(4, channels=1).to(dtype).eval(), torch.randn(4, 1, 12, 12, dtype=dtype)
        grown = deepen(model, "0", example=example)
        assert {p.dtype for p in grown.parameters()} == {dtype}


def test_random_and_noise_change_the_function_and_depend_on_the_seed_alone() -> None:
    model, example = cnn1(4, channels=1).eval(), torch.randn(6, 1, 12, 12)
    for options in ({"init": "random"}, {"noise": 0.1}):
        one, same, other = (deepen(model, "4", example=example, seed=seed, **options) for seed in (1, 1, 2))
        assert fingerprint(one) == fingerprint(same)
        assert fingerprint(one) != fingerprint(other)
        assert difference(model, one, example) > 1e-4
    weights = deepen(model, "9", example=example, init="random").get_submodule("9").before[0].weight
    assert not torch.equal(weights, torch.eye(4))


def test_residual_can_be_asked_for_and_identity_is_refused_where_none_fits() -> None:
    model, example = FAMILIES["mlp"].build()
    assert isinstance(deepen(model, "0", example=example, init="residual")[0].after[0], ResidualBranch)
    gelu, example = FAMILIES["mlp_gelu"].build()
    with pytest.raises(NoSuchSite, match="no identity layer fits at '2': it ends in gelu"):
        deepen(gelu, "2", example=example, init="identity")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": "magic"}, "unknown init 'magic'"),
        ({"noise": -1.0}, "noise must be"),
        ({"noise": float("nan")}, "noise must be"),
        ({"example": None}, "needs an example input"),
        ({"example": torch.zeros(2, 9, 12, 12)}, "does not accept an example input of shape 2x9x12x12"),
        ({"site": "nowhere"}, "no layer 'nowhere'"),
        ({"site": ""}, "no layer ''"),
        ({"site": 3}, "a site must be a name"),
        ({"site": "2"}, "ReLU is a kind of layer that cannot be deepened"),
    ],
)
def test_bad_requests_are_explained_and_change_nothing(options: dict[str, object], message: str) -> None:
    model, example = cnn1(4, channels=1), torch.randn(2, 1, 12, 12)
    before = fingerprint(model)
    request = {"site": "0", "example": example} | options
    with pytest.raises(GrowError, match=message):
        deepen(model, **request)  # type: ignore[arg-type]
    assert fingerprint(model) == before
    assert all(part.training for part in model.modules())
