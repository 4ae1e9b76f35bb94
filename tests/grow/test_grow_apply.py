"""Surgeries are data: they are applied, recorded, and repeated."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from grow_networks import FAMILIES, difference, difference_in_training, fingerprint
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import NetPlan, net_plans
from torch import Tensor, nn

from argosy.grow.errors import GrowError
from argosy.grow.models import cnn1
from argosy.grow.surgery.apply import apply, rebuild, surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import sites

torch.set_num_threads(1)


def some_surgeries(model: nn.Module, example: Tensor, choices: list[int]) -> nn.Module:
    """Grow a network by choices among everything that its sites offer."""
    for choice in choices:
        options = [
            Surgery(operation, site.name, 1.0 if operation == "deepen" else 1.5, seed=choice, init=init)
            for site in sites(model, example)
            for operation, possible, init in (
                ("deepen", site.can_deepen, ""),
                ("widen", site.can_widen, "copy"),
                ("widen", site.can_widen, "fresh"),
            )
            if possible
        ]
        model = apply(model, options[choice % len(options)], example)
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_grown_network_loads_into_a_rebuilt_one(name: str) -> None:
    model, example = FAMILIES[name].build()
    grown = some_surgeries(model, example, [7, 11, 4])
    assert difference(model, grown, example) <= 1e-5
    record = json.loads(json.dumps([surgery.to_dict() for surgery in surgeries_of(grown)]))
    other, _ = FAMILIES[name].build(seed=9)
    again = rebuild(other, record, torch.randn_like(example))
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in grown.state_dict().items()}
    again.load_state_dict(grown.state_dict())
    assert difference(grown, again, example) == 0.0
    assert surgeries_of(again) == surgeries_of(grown)


@settings(max_examples=12, deadline=None)
@given(plan=net_plans(), choices=st.lists(st.integers(0, 10_000), min_size=1, max_size=4))
def test_any_mixture_of_growth_keeps_the_function(plan: NetPlan, choices: list[int]) -> None:
    model, example = plan.build()
    before = fingerprint(model)
    grown = some_surgeries(model, example, choices)
    assert difference(model, grown, example) <= 1e-5
    assert difference(model, grown, 2 * torch.randn_like(example)) <= 1e-5
    assert difference_in_training(model, grown, example) <= 1e-5
    assert fingerprint(model) == before
    again = rebuild(model, surgeries_of(grown), example)
    again.load_state_dict(grown.state_dict())


@pytest.mark.parametrize("name", ["grouped", "mobilenet", "transformer"])
@pytest.mark.parametrize("first", ["deepen", "widen"])
def test_deepening_and_widening_the_same_place_in_turn(name: str, first: str) -> None:
    model, example = FAMILIES[name].build()
    places = [site.name for site in sites(model, example) if site.can_deepen and site.can_widen]
    second = {"deepen": "widen", "widen": "deepen"}[first]
    assert len(places) > 1
    for place in places[1:4]:
        grown = model
        for operation in (first, second, first, second):
            grown = apply(grown, Surgery(operation, place, 2.0 if operation == "widen" else 1.0), example)
        assert difference(model, grown, example) <= 1e-5, place


def test_the_record_survives_a_deep_copy_and_the_original_has_none() -> None:
    model, example = cnn1(4, channels=1), torch.randn(2, 1, 12, 12)
    grown = apply(apply(model, Surgery("deepen", "0"), example), {"op": "deepen", "site": "9"}, example)
    assert [str(surgery) for surgery in surgeries_of(copy.deepcopy(grown))] == ["deepen 0", "deepen 9"]
    assert surgeries_of(model) == ()


def test_replicas_leave_the_network_alone() -> None:
    model, example = cnn1(4, channels=1), torch.randn(2, 1, 12, 12)
    same = apply(model, Surgery("replicate", factor=2.0), example)
    assert fingerprint(same) == fingerprint(model)
    assert same is not model
    assert surgeries_of(same) == (Surgery("replicate", factor=2.0),)


def test_bad_requests() -> None:
    model, example = cnn1(4, channels=1), torch.randn(2, 1, 12, 12)
    grown = apply(model, Surgery("deepen", "0"), example)
    with pytest.raises(GrowError, match="rebuild starts from the original network, but this one is grown: deepen 0"):
        rebuild(grown, [Surgery("deepen", "0")], example)
    with pytest.raises(GrowError, match="unknown operation 'shrink'"):
        apply(model, {"op": "shrink"}, example)
    with pytest.raises(GrowError, match="factor"):
        apply(model, Surgery("widen", "0", 0.5), example)
