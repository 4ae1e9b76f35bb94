"""When growth has done harm, and when it has not."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from argosy.grow.errors import Diverged, GrowError
from argosy.grow.training.guard import STEPS, Guard, Harmful, Probation, expectation
from argosy.grow.training.losses import Losses


def losses(level=0.5, spread=0.1, begin=2.3, n=100, seed=0):
    """A run's losses: from `begin` to noise around `level`."""
    found, rng = Losses(), random.Random(seed)
    for _ in range(10):
        found.add(begin)
    for _ in range(n):
        found.add(level + rng.gauss(0.0, spread))
    return found


def tell(probation, values):
    for value in values:
        probation.step(value)


def test_a_spike_is_half_of_what_was_gained_or_far_outside_the_noise():
    assert losses(0.5, 0.01).spike() == pytest.approx(0.5 + 0.9, abs=0.02)
    assert losses(2.2, 0.1).spike() == pytest.approx(2.2 + 0.4, abs=0.2)
    assert Losses().spike() == math.inf
    few = Losses()
    few.add(1.0)
    assert few.spike() == math.inf
    falling = Losses()
    for step in range(110):
        falling.add(2.3 - 0.02 * step)
    assert falling.spike() == pytest.approx(0.31 + 0.95, abs=0.05), "a trend is not noise"


def test_single_odd_batches_change_little():
    odd = losses(0.5, 0.05)
    usual = odd.spike()
    for _ in range(5):
        odd.add(1e6)
    assert odd.spike() == pytest.approx(usual, rel=0.05)


def test_a_loss_that_stays_high_is_harm_and_a_short_rise_is_not():
    probation = Probation(losses(0.5, 0.05), (), 2)
    tell(probation, [0.5] * 10 + [9.0] * 9 + [0.5] * 40)
    with pytest.raises(Harmful, match=r"the loss has risen to 1\.6"):
        tell(probation, [1.6] * STEPS)


def test_a_short_probation_is_judged_with_the_steps_there_are():
    probation = Probation(losses(), (), 1)
    tell(probation, [5.0] * 4)
    with pytest.raises(Harmful, match="median of 4 steps"):
        probation.epoch(None)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_or_gradient_that_is_not_finite_is_harm_at_once(loss):
    probation = Probation(losses(), (), 2)
    with pytest.raises(Diverged, match="loss"):
        probation.step(loss)
    layer = nn.Linear(2, 2)
    layer(torch.full((1, 2), 1e38)).square().sum().backward()
    with pytest.raises(Diverged, match="gradient"):
        probation.step(0.5, list(layer.parameters()))


def test_the_curve_without_growth_is_extrapolated_with_caution():
    rising = expectation([0.5, 0.6, 0.62, 0.64, 0.66, 0.68], 2)
    assert rising.expected == pytest.approx(0.68 + 0.02), "half of the slope goes on"
    falling = expectation([0.7, 0.68, 0.66, 0.64], 2)
    assert falling.expected == pytest.approx(0.60), "a falling curve goes on falling"
    assert expectation([], 2) is None
    assert expectation([math.nan], 2) is None
    one = expectation([0.6], 2, error=0.01)
    assert (one.expected, one.tolerance) == (0.6, pytest.approx(0.04))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.floats(0, 1), st.floats(-3, 3), st.floats(0.1, 10))
@settings(max_examples=60, deadline=None)
def test_what_is_expected_does_not_depend_on_the_scale_of_the_score(scores, error, shift, scale):
    one = expectation(scores, 2, error)
    other = expectation([shift + scale * s for s in scores], 2, scale * error)
    assert other.expected == pytest.approx(shift + scale * one.expected, abs=1e-6 * scale)
    assert other.tolerance == pytest.approx(scale * one.tolerance, abs=1e-6 * scale)


def test_a_score_clearly_below_what_was_expected_is_harm():
    curve = [0.55, 0.62, 0.70, 0.74, 0.75, 0.76, 0.765, 0.77]
    fine = Probation(Losses(), curve, 2, 0.009)
    fine.epoch(0.70)
    assert not fine.over
    fine.epoch(0.73)
    assert fine.over
    bad = Probation(Losses(), curve, 2, 0.009)
    bad.epoch(0.70)
    with pytest.raises(Harmful, match=r"score is 0.549 after 2 epochs; without growth 0.77"):
        bad.epoch(0.549)
    worse = Probation(Losses(), curve, 2, 0.009)
    with pytest.raises(Harmful, match="after 1 epochs"):
        worse.epoch(0.1)


def test_growth_during_a_probation_prolongs_it_but_is_judged_by_the_state_before():
    probation = Probation(Losses(), [0.8] * 6, 2, 0.01)
    probation.epoch(0.78)
    probation.prolong()
    probation.epoch(0.77)
    assert not probation.over
    with pytest.raises(Harmful):
        probation.epoch(0.7)


def test_at_the_end_nothing_can_recover_any_more():
    probation = Probation(Losses(), [0.8] * 6, 2, 0.01)
    probation.end(0.795)
    with pytest.raises(Harmful, match=r"at the end is 0\.78"):
        probation.end(0.78)
    probation.end(None)


def test_a_probation_is_plain_data():
    probation = Probation(losses(), [0.5, 0.6, 0.7, 0.71], 3, 0.01)
    tell(probation, [0.5, 0.6])
    probation.epoch(0.7)
    again = Probation.restored(probation.state())
    assert again.state() == probation.state()
    assert Probation.restored(Probation(Losses(), (), 1).state()).limit == math.inf


@pytest.mark.parametrize(
    ("make", "part"),
    [(lambda: Guard(probation=0), "probation = 0"), (lambda: Guard(memory_gib=math.nan), "memory_gib = nan")],
)
def test_nonsense_is_refused(make, part):
    with pytest.raises(GrowError) as error:
        make()
    assert part in str(error.value)
