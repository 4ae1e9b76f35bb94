"""Measured speeds of parameter-server jobs are used unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.perf import catalogue
from argosy.perf.fit import fit_speed_sync
from argosy.perf.parameter_server import ParameterServerModel, TableParameterServer

POINTS = ((1.0, 1.0), (1.0, 3.0), (3.0, 1.0), (3.0, 3.0))
SPEEDS = (10.0, 20.0, 30.0, 60.0)
TABLE = TableParameterServer("measured", POINTS, SPEEDS)


def test_it_is_exact_where_it_was_measured_and_smooth_between() -> None:
    p, w = np.array(POINTS).T
    assert TABLE.samples_per_s(p, w) == pytest.approx(SPEEDS)
    # the middle is equally far from all four: Σ c_i · √2, and the c_i are known from the corners
    assert 10.0 < float(TABLE.samples_per_s(2, 2)) < 60.0


def test_it_stays_within_the_measurements() -> None:
    far = TABLE.samples_per_s(np.arange(1, 40)[:, None], np.arange(1, 40)[None, :])
    assert far.min() >= 0.02 * 60.0 and far.max() <= 60.0
    assert TABLE.samples_per_s([0, 1, 0], [1, 0, 0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("points", "speeds"),
    [(POINTS, SPEEDS[:3]), (((1.0, 1.0), (1.0, 1.0)), (1.0, 2.0)), (POINTS, (0.0, 1.0, 2.0, 3.0)), ((), ())],
)
def test_nonsense_is_refused(points: tuple[tuple[float, float], ...], speeds: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="parameter-server table 'bad'"):
        TableParameterServer("bad", points, speeds)


def test_it_can_be_registered() -> None:
    with catalogue.borrowed():
        catalogue.register(TableParameterServer("test-only table", POINTS, SPEEDS))
        found = catalogue.lookup_ps("test-only table")
        assert isinstance(found, TableParameterServer) and catalogue.lookup("test-only table") is None
    assert catalogue.lookup_ps("test-only table") is None


def test_a_ridge_shares_what_points_can_not_tell_apart() -> None:
    even = np.arange(1, 9)
    true = ParameterServerModel("true", (0.5, 0.2, 0.2, 0.01, 0.01), 1.0)
    speed = true.steps_per_s(even, even)
    plain, shared = fit_speed_sync(even, even, speed, 1.0), fit_speed_sync(even, even, speed, 1.0, ridge=1e-6)
    assert min(plain[1:3]) == pytest.approx(0, abs=1e-9)  # one term takes all
    assert shared == pytest.approx(true.theta, rel=0.01)
