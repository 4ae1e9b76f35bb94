from __future__ import annotations

import math

import numpy as np
import pytest

from argosy.report.stats import bootstrap_difference, interval, paired_difference


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


def test_bootstrap_is_repeatable_and_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        difference = rng.normal(0.5, 2.0, 120)
        found = bootstrap_difference(difference, np.zeros(120))
        covered += found.low <= 0.5 <= found.high
    assert 180 <= covered <= 198  # 95 % of 200, within three standard errors
    some = [1.0, 5.0, 2.0], [0.0, 0.0, 0.0]
    assert bootstrap_difference(*some) == bootstrap_difference(*some)


def test_blocks_of_neighbours_widen_the_interval_of_dependent_jobs() -> None:
    rng = np.random.default_rng(2)
    luck = np.repeat(rng.normal(0.0, 1.0, 400), 50)  # fifty jobs in a row meet the same queue
    found = bootstrap_difference(luck, np.zeros(luck.size))
    as_if_independent = 2 * 1.96 * luck.std() / math.sqrt(luck.size)
    assert found.high - found.low > 4 * as_if_independent


def test_bootstrap_of_a_single_job() -> None:
    found = bootstrap_difference([3.0], [1.0])
    assert found.mean == 2.0 and math.isnan(found.low)
