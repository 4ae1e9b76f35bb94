"""Virtual time is exact, and growth costs as much time as configured."""

from __future__ import annotations

import copy
import time

import pytest

from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.clock import RealClock, VirtualClock

DEEPER, TWICE = Surgery("deepen", "0"), Surgery("replicate", factor=2.0)


def test_sums_of_time_are_exact():
    clock = VirtualClock(epoch_s=0.1)
    for _ in range(10):
        clock.advance(clock.epoch_time())
    assert clock.now() == 1.0
    clock.advance(1e-18)
    for _ in range(990):
        clock.advance(0.1)
    assert clock.now() == 100.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"growth": "free"}, 2.0),
        ({"growth": "parameters"}, 3.0),
        ({"growth": "flops"}, 5.0),
        ({"per_parameter": 0.01}, 2.0 + 1.5),
        ({"per_flop": 0.001}, 2.0 + 2.5),
        ({"ratios": {"deepen:0": 1.4, "deepen": 1.1}}, 2.0 * 1.4),
        ({"ratios": {"widen": 1.6}}, 2.0),
    ],
)
def test_price_of_a_grown_epoch(options, expected):
    clock = VirtualClock(epoch_s=2.0, **options)
    clock.size(100, 1000.0, ())
    before = clock.epoch_time()
    clock.size(150, 2500.0, (DEEPER,))
    assert clock.epoch_time() == pytest.approx(expected, rel=1e-12)
    clock.size(100, 1000.0, ())  # the small network again
    assert clock.epoch_time() == pytest.approx(before, rel=1e-12)


def test_fixed_ratios_add_up():
    clock = VirtualClock(ratios={"deepen": 1.25})
    clock.size(100, None, (DEEPER, DEEPER))
    assert clock.epoch_time() == 1.5


def test_replicas_speed_up_less_than_they_cost():
    clock = VirtualClock(epoch_s=1.9)
    clock.size(100, None, (TWICE,))
    assert clock.epoch_time() == pytest.approx(1.0, rel=1e-12)
    clock.size(100, None, (TWICE, TWICE))
    assert clock.speed == pytest.approx(3.7)


def test_flops_are_asked_for_only_when_they_cost():
    assert VirtualClock(growth="flops").needs_flops
    assert VirtualClock(per_flop=1e-9).needs_flops
    assert not VirtualClock(growth="flops", ratios={"deepen": 1.1}).needs_flops
    assert not VirtualClock().needs_flops
    assert not RealClock().needs_flops


def test_saved_time_comes_back_whole():
    clock = VirtualClock(epoch_s=0.3, growth="parameters")
    clock.size(100, None, ())
    clock.size(170, None, (DEEPER, TWICE))
    clock.advance(clock.epoch_time())
    other = VirtualClock(epoch_s=0.3, growth="parameters")
    other.restore(clock.state())
    assert other.state() == clock.state()
    assert (other.now(), other.epoch_time()) == (clock.now(), clock.epoch_time())
    assert copy.deepcopy(clock).now() == clock.now()


def test_real_time_passes_by_itself_and_goes_on_after_a_pause():
    clock = RealClock()
    assert clock.now() < 2
    clock.advance(1000)
    time.sleep(0.02)
    assert 0.02 <= clock.now() < 50
    other = RealClock()
    other.restore({"kind": "real", "elapsed": 50.0})
    assert 50.0 <= other.now() < 90
    assert clock.epoch_time() is None


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"epoch_s": -1}, "epoch_s = -1"),
        ({"epoch_s": float("nan")}, "epoch_s"),
        ({"epoch_s": 0}, "time never passes"),
        ({"growth": "cheap"}, "'cheap'"),
        ({"ratios": {"deepen": 0}}, "ratios['deepen']"),
    ],
)
def test_impossible_prices_are_refused(options, part):
    with pytest.raises(GrowError) as error:
        VirtualClock(**options)
    assert part in str(error.value)


def test_time_never_runs_backwards_and_clocks_are_not_mixed():
    with pytest.raises(GrowError, match="-1"):
        VirtualClock().advance(-1)
    with pytest.raises(GrowError, match="real clock"):
        VirtualClock().restore(RealClock().state())
