"""Optimizer state follows grown parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from grow_networks import FAMILIES, mlp
from torch import Tensor, nn
from torch.nn import functional as F

from argosy.grow.errors import GrowError
from argosy.grow.models import cnn1
from argosy.grow.surgery.apply import apply
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.history import Origin, remember
from argosy.grow.surgery.optimizer import carry
from argosy.grow.surgery.record import Surgery

torch.set_num_threads(1)
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.2}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
}


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, example: Tensor, steps: int = 3) -> None:
    model.train()
    labels = torch.arange(len(example)) % 3
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(example), labels).backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_old_parameters_is_kept_and_new_ones_start_empty(name: str) -> None:
    torch.manual_seed(0)
    make, options = OPTIMIZERS[name]
    model, example = cnn1(4, channels=1, classes=3), torch.randn(9, 1, 12, 12)
    optimizer = make(model.parameters(), **options)
    trained(model, optimizer, example)
    grown = deepen(deepen(model, "0", example=example), "9", example=example)
    carried = carry(optimizer, model, grown)
    assert type(carried) is type(optimizer)
    for key, value in options.items():
        assert carried.param_groups[0][key] == value
    old, new = dict(model.named_parameters()), dict(grown.named_parameters())
    moved = {f"{layer}.{leaf}": f"{layer}.layer.{leaf}" for layer in "19" for leaf in ("weight", "bias")}
    for path, parameter in old.items():
        before, after = optimizer.state[parameter], carried.state[new[moved.get(path, path)]]
        assert set(before) == set(after)
        for key, value in before.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(after[key])), (path, key)
            assert not torch.is_tensor(value) or value.data_ptr() != after[key].data_ptr()
    fresh = set(new) - {moved.get(path, path) for path in old}
    assert fresh == {"1.after.1.weight", "1.after.2.weight", "1.after.2.bias", "9.before.0.weight", "9.before.0.bias"}
    assert all(not carried.state[new[path]] or name == "Adagrad" for path in fresh)
    assert sum(len(group["params"]) for group in carried.param_groups) == len(new)
    trained(grown, carried, example)


def test_the_next_step_of_a_deepened_network_moves_old_weights_as_before() -> None:
    """With SGD and momentum the identity layer passes the gradient on, so old parameters move as they would have."""
    torch.manual_seed(1)
    model, example = mlp(4, 6, 5, 3), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trained(model, optimizer, example)
    grown = deepen(model, "0", example=example)
    carried = carry(optimizer, model, grown)
    trained(model, optimizer, example, steps=1)
    trained(grown, carried, example, steps=1)
    assert torch.allclose(model[0].weight, grown[0].layer.weight, atol=1e-6)
    assert torch.allclose(model[4].weight, grown[4].weight, atol=1e-6)


def test_groups_keep_their_settings_and_new_parameters_join_their_like() -> None:
    model, example = cnn1(4, channels=1), torch.randn(9, 1, 12, 12)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0, "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # leaves `initial_lr` in the groups
    grown = deepen(model, "0", example=example)
    carried = carry(optimizer, model, grown)
    assert [group["weight_decay"] for group in carried.param_groups] == [0.1, 0.0]
    assert [group["lr"] for group in carried.param_groups] == [0.01, 0.5]
    assert all(p.dim() > 1 for p in carried.param_groups[0]["params"])
    assert all(p.dim() == 1 for p in carried.param_groups[1]["params"])
    reset = carry(optimizer, model, grown, lr=0.2)
    assert [(group["lr"], group["initial_lr"]) for group in reset.param_groups] == [(0.2, 0.2)] * 2


def test_a_parameter_beside_the_model_stays() -> None:
    model, example, scale = mlp(4, 6, 3), torch.randn(8, 4), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1, momentum=0.9)
    scale.grad = torch.ones(1)
    optimizer.step()
    carried = carry(optimizer, model, deepen(model, "0", example=example))
    assert any(p is scale for p in carried.param_groups[0]["params"])
    assert torch.equal(carried.state[scale]["momentum_buffer"], torch.ones(1))


def test_an_origin_maps_first_and_second_moments() -> None:
    rows = torch.tensor([0, 1, 1, -1])
    origin = Origin("w", (rows, None), (torch.tensor([1.0, 0.5, 0.5, 1.0]), None))
    old = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    assert origin.map(old).tolist() == [[1, 2], [2, 4], [2, 4], [0, 0]]
    assert origin.map(old, 2.0).tolist() == [[1, 2], [1, 2], [1, 2], [0, 0]]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_a_widened_layer_keeps_moments_that_match_its_gradients(name: str) -> None:
    """Gradients of the copies are mapped like the moments: after widening, moments of constant gradients agree."""
    torch.manual_seed(2)
    make, options = OPTIMIZERS[name]
    options = {**options, "weight_decay": 0.0, "lr": 1e-12}  # the gradient stays what it is
    model, example = mlp(4, 6, 3).double(), torch.randn(9, 4, dtype=torch.float64)
    frozen = make(model.parameters(), **options)
    trained(model, frozen, example, steps=4)
    wide = apply(model, Surgery("widen", "0", 1.5), example)
    carried = carry(frozen, model, wide, lr=1e-12)
    anew = make(wide.parameters(), **options)
    trained(wide, anew, example, steps=4)
    for parameter in wide.parameters():
        for key, value in anew.state[parameter].items():
            mapped = torch.as_tensor(carried.state[parameter][key])
            assert torch.allclose(torch.as_tensor(value), mapped, rtol=1e-3, atol=1e-12), key


def test_state_of_another_shape_starts_anew_when_the_parameter_grew() -> None:
    model = mlp(4, 6, 3)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)
    trained(model, optimizer, torch.randn(9, 4), steps=1)
    wide = mlp(4, 7, 3)
    rows = torch.tensor([0, 1, 2, 3, 4, 5, 0])
    origins = {
        "0.weight": Origin("0.weight", (rows,)),
        "0.bias": Origin("0.bias", (rows,)),
        "2.weight": Origin("2.weight", (None, rows)),
    }
    remember(wide, model, Surgery("widen", "0", 7 / 6), origins)
    carried = carry(optimizer, model, wide)
    assert not carried.state[wide[0].weight]
    assert set(carried.state[wide[2].bias]) == set(optimizer.state[model[2].bias])


def test_bad_requests() -> None:
    model, example = FAMILIES["mlp"].build()
    grown, other = deepen(model, "0", example=example), deepen(model, "2", example=example)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(GrowError, match="no parameter of old_model"):
        carry(torch.optim.SGD(grown.parameters(), lr=0.1), model, grown)
    with pytest.raises(GrowError, match="was not grown from old_model"):
        carry(torch.optim.SGD(grown.parameters(), lr=0.1), grown, other)
    for lr in (0.0, -1.0, float("nan")):
        with pytest.raises(GrowError, match="learning rate"):
            carry(optimizer, model, grown, lr=lr)
