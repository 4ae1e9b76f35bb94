from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.report.stats import (
    Interval,
    bootstrap_change,
    interval,
    paired_change,
    paired_difference,
    paired_ratio,
)


def test_interval_of_three_values() -> None:
    found = interval([1.0, 2.0, 3.0])  # t(0.975, 2) = 4.3027, standard error 1/√3
    assert found.mean == 2.0
    assert found.high == pytest.approx(2.0 + 4.30265 / math.sqrt(3), rel=1e-5)
    assert found.low == pytest.approx(2.0 - 4.30265 / math.sqrt(3), rel=1e-5)
    assert found.n == 3


def test_one_value_has_no_interval_and_nan_is_left_out() -> None:
    found = interval([float("nan"), 7.0])
    assert (found.mean, found.n) == (7.0, 1)
    assert math.isnan(found.low) and math.isnan(found.high) and not found.excludes_zero()
    assert math.isnan(interval([]).mean)


def test_pairing_cancels_what_seeds_have_in_common() -> None:
    easy_and_hard = np.array([10.0, 100.0, 1000.0])
    found = paired_difference(easy_and_hard - np.array([1.0, 1.1, 0.9]), easy_and_hard)
    assert found.mean == pytest.approx(-1.0)
    assert found.high < 0 and found.excludes_zero()
    assert not interval(easy_and_hard).excludes_zero()


POSITIVE = st.floats(1e-3, 1e7)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=40)


@pytest.mark.parametrize("change_of", [paired_change, bootstrap_change])
@given(pairs=PAIRS)
def test_no_positive_quantity_falls_by_more_than_all_of_it(
    change_of: Callable[[list[float], list[float]], Interval], pairs: list[tuple[float, float]]
) -> None:
    found = change_of([a for a, _ in pairs], [b for _, b in pairs])
    assert -1.0 <= found.low <= found.mean <= found.high
    assert found.n == len(pairs)


@given(PAIRS)
def test_a_ratio_and_its_inverse_say_the_same(pairs: list[tuple[float, float]]) -> None:
    a, b = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there.mean == pytest.approx(1 / back.mean)
    assert math.log(there.mean) - math.log(there.low) == pytest.approx(math.log(back.high) - math.log(back.mean))


def test_seeds_that_differ_by_much_do_not_make_a_fall_of_more_than_everything() -> None:
    mine, theirs = np.array([1.0, 30.0, 2.0]), np.array([100.0, 40.0, 50.0])
    old = interval(mine / theirs - 1)
    assert old.low < -1.0  # what an interval that is as wide on both sides says
    found = paired_change(mine, theirs)
    assert -1.0 < found.low < found.mean < found.high


def test_intervals_over_seeds_cover_the_truth() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(1000):
        workload = rng.lognormal(0.0, 1.0, 5)
        found = paired_change(workload * 0.7 * rng.lognormal(0.0, 0.4, 5), workload)
        covered += found.low <= -0.3 <= found.high
    assert 0.93 <= covered / 1000 <= 0.97


def test_pairs_with_nothing_measured_are_left_out() -> None:
    found = paired_change([2.0, math.nan, 3.0, 0.0], [4.0, 1.0, 6.0, 5.0])
    assert found.mean == pytest.approx(-0.5) and found.n == 2
    assert math.isnan(paired_change([], []).mean) and math.isnan(bootstrap_change([], []).mean)
    assert math.isnan(bootstrap_change([1.0, 2.0], [0.0, 0.0]).mean)


def test_bootstrap_is_repeatable_and_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        theirs = rng.lognormal(0.0, 1.0, 200)
        found = bootstrap_change(theirs * 0.7 * rng.lognormal(-0.08, 0.4, 200), theirs)  # the mean of the luck is 1
        covered += found.low <= -0.3 <= found.high
    assert 0.91 <= covered / 400 <= 0.98
    some = [1.0, 5.0, 2.0], [2.0, 3.0, 4.0]
    assert bootstrap_change(*some) == bootstrap_change(*some)


def test_blocks_of_neighbours_widen_the_interval_of_dependent_jobs() -> None:
    rng = np.random.default_rng(2)
    luck = np.repeat(rng.lognormal(0.0, 0.3, 400), 50)  # fifty jobs in a row meet the same queue
    found = bootstrap_change(luck, np.ones(luck.size))
    as_if_independent = 2 * 1.96 * luck.std() / math.sqrt(luck.size)
    assert found.high - found.low > 4 * as_if_independent


def test_bootstrap_of_a_single_job() -> None:
    found = bootstrap_change([3.0], [1.0])
    assert found.mean == pytest.approx(2.0) and math.isnan(found.low)
