"""Frozen layers are made trainable."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from argosy.grow.data import load
from argosy.grow.errors import NoSuchSite
from argosy.grow.models import cnn1
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.unfreeze import frozen, unfreeze
from argosy.grow.training.choices import options_of
from argosy.grow.training.run import Run


@pytest.fixture
def sleeping() -> nn.Module:
    torch.manual_seed(0)
    network = cnn1(4, channels=1)
    for layer in (network[4], network[5]):
        layer.requires_grad_(False)
    return network


def test_waking_keeps_the_function_and_the_original(sleeping: nn.Module) -> None:
    x = torch.randn(2, 1, 8, 8)
    assert [site.name for site in frozen(sleeping, x)] == ["4"]
    awake = unfreeze(sleeping, "4", example=x)
    assert torch.equal(awake.eval()(x), sleeping.eval()(x))
    assert all(p.requires_grad for p in awake.parameters()) and not sleeping[4].weight.requires_grad
    with pytest.raises(NoSuchSite, match="not frozen"):
        unfreeze(sleeping, "0", example=x)


def test_a_woken_layer_learns(sleeping: nn.Module) -> None:
    run = Run(sleeping, load("digits", train=128), seed=0)
    before = run.model[4].weight.clone()
    run.train_epoch()
    assert torch.equal(run.model[4].weight, before)
    option = Surgery("unfreeze", "4")
    assert option in options_of(run.model, run.example, ["unfreeze"])
    run.grow([option])
    run.train_epoch()
    assert not torch.equal(run.model[4].weight, before)
    assert run.surgeries == (option,)
