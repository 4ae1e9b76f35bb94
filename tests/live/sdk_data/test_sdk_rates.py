"""Learning rates for scaled batches."""

from __future__ import annotations

import pytest
import torch

from argosy.errors import UnknownName
from argosy.perf.goodput import gain
from argosy.sdk.gradients.learning_rate import Rule, scaled


def test_rules() -> None:
    assert Rule("linear").factor(4.0) == 4.0
    assert Rule("sqrt").factor(4.0) == 2.0
    assert Rule("none").factor(4.0, 1280.0, 128) == 1.0
    assert Rule("adascale").factor(4.0) == 1.0  # nothing is known yet
    assert Rule("adascale").factor(4.0, 1280.0, 128) == pytest.approx(4 * 0.785714, rel=1e-5)
    assert Rule("adascale").factor(8.0, 300.0, 64) == pytest.approx(float(gain(512, 300.0, 64)))
    assert Rule("adascale").factor(4.0, 1e12, 128) == pytest.approx(4.0)  # all noise: linear
    with pytest.raises(UnknownName, match="linaer"):
        Rule("linaer")


@pytest.mark.parametrize("tensor", [False, True])
def test_the_rate_is_multiplied_only_while_the_optimizer_acts(tensor: bool) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.3) if tensor else 0.3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    moves = []
    for _ in range(4):
        before = weight.item()
        weight.grad = torch.ones(1)
        with scaled(optimizer, 3.0):
            optimizer.step()
        schedule.step()
        moves.append(before - weight.item())
    assert moves == pytest.approx([0.9, 0.9, 0.45, 0.45])
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.075)


def test_the_rate_comes_back_after_an_error() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(RuntimeError), scaled(optimizer, 7.0):
        raise RuntimeError
    assert optimizer.param_groups[0]["lr"] == 0.1
