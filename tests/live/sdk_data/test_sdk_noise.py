"""The estimated noise scale matches the known one of generated gradients."""

from __future__ import annotations

import pytest
import torch

from argosy.sdk.gradients.noise import NoiseScale

LENGTH, SPREAD = 50, 3.0


def gradient(true: torch.Tensor, samples: int, dice: torch.Generator) -> torch.Tensor:
    return true + SPREAD / samples**0.5 * torch.randn(LENGTH, generator=dice)


@pytest.fixture
def true() -> torch.Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(1))


def expected(true: torch.Tensor) -> float:
    return LENGTH * SPREAD**2 / float(true.square().sum())


@pytest.mark.parametrize("slices", [(8, 8), (16, 8, 4, 4), (5, 3, 0)])
def test_from_workers_with_uneven_slices(true: torch.Tensor, slices: tuple[int, ...]) -> None:
    noise, dice = NoiseScale(), torch.Generator().manual_seed(2)
    for _ in range(800):
        locals_ = [gradient(true, max(n, 1), dice) for n in slices]
        # in two parameters, one of which has no gradient, as a network's come
        summed = torch.stack([noise.fill([g[:20], None, g[20:]], n) for g, n in zip(locals_, slices)]).sum(0)
        mean = sum((n * g for g, n in zip(locals_, slices)), torch.zeros(LENGTH)) / sum(slices)
        noise.take(summed, [mean[:20], None, mean[20:]], sum(slices), len(slices))
    assert noise.value == pytest.approx(expected(true), rel=0.3)
    assert noise.metrics == {"noise_scale": noise.value}


def test_alone_from_steps_in_a_row(true: torch.Tensor) -> None:
    noise, dice = NoiseScale(), torch.Generator().manual_seed(3)
    for _ in range(3000):
        now = [gradient(true, 16, dice)]
        noise.take(noise.fill(now, 16), now, 16, 1)
    assert noise.value == pytest.approx(expected(true), rel=0.3)


def test_worked_numbers() -> None:
    noise = NoiseScale()
    for _ in range(5):  # two halves of 4 samples with gradients 3 and 1: variance 4·(5-4)·2 = 8, square 4 - 1 = 3
        summed = sum((noise.fill([torch.tensor([g])], 4) for g in (3.0, 1.0)), torch.zeros(2, dtype=torch.float64))
        noise.take(summed, [torch.tensor([2.0])], 8, 2)
    assert noise.variance.mean == pytest.approx(8.0) and noise.square.mean == pytest.approx(3.0)
    assert noise.value == pytest.approx(8 / 3)
    again = NoiseScale()
    again.load(noise.state())
    assert again.value == noise.value and again.state() == noise.state()


def test_nothing_is_told_before_it_is_known() -> None:
    noise = NoiseScale()
    assert noise.value is None and noise.metrics == {}
    noise.take(noise.fill([None], 4), [None], 4, 1)
    assert noise.value is None


def test_a_network_that_changes_while_a_worker_is_alone() -> None:
    noise = NoiseScale()
    for length in range(1, 30):
        now = [torch.ones(length), None if length % 3 else torch.ones(2)]
        noise.take(noise.fill(now, 4), now, 4, 1)
    assert noise.square.count == 0  # no two steps in a row could be compared
