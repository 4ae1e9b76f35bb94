"""The solver of the authors' form: optimal where there is one optimum, in the middle where there are many."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.policies.gavel import central_path
from argosy.policies.gavel.central_path import shares
from argosy.policies.gavel.fairness import bisected
from argosy.policies.gavel.share_rows import ByJob, ShareRows, Whole

SPEED = np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]])
ONES, TWO = np.ones(3), np.ones(2)
TYPES = np.array([0, 1])


def test_a_program_with_one_optimum() -> None:
    """One GPU for the half of a job that is twice as fast."""
    x = shares(np.array([[1.0], [2.0]]), np.ones(2), np.ones(1), np.zeros(1, np.int64), value=np.array([[1.0], [2.0]]))
    assert x is not None and x.ravel() == pytest.approx([0.0, 1.0], abs=1e-6)


@pytest.mark.parametrize("jobs", [1, 90])
def test_no_solution_is_none(jobs: int) -> None:
    """Twice the speed that a job can have."""
    speed = np.ones((jobs, 3))
    assert shares(speed, np.ones(jobs), np.full(3, 9.0), np.arange(3), least=np.full(jobs, 2.0)) is None


def test_both_ways_to_factorise_solve_the_same_system() -> None:
    """The blocks of the jobs alone, or the whole matrix; and both are right."""
    rng = np.random.default_rng(5)
    for unit in (None, rng.random(7)):
        g = ShareRows(-rng.random((7, 3)), rng.random((2, 7, 3)), rng.random((7, 3)), -rng.random((7, 3)), unit)
        count = 21 + 2 + 7 + 7
        dense = np.stack([g.times(e) for e in np.eye(21 + (unit is not None))], axis=1)
        assert np.stack([g.transposed_times(e) for e in np.eye(count)]) == pytest.approx(dense)
        weight, r_z, r_x = rng.random(count) + 0.1, rng.random(count), rng.random(dense.shape[1])
        expected = np.linalg.solve((dense.T / weight) @ dense, r_x + dense.T @ (r_z / weight))
        for factors in (ByJob(g, weight), Whole(g, weight)):
            x, z = factors.solve(r_x, r_z)
            assert x == pytest.approx(expected) and z == pytest.approx((dense @ expected - r_z) / weight)
        rows, columns = g.largest()
        assert rows == pytest.approx(np.abs(dense).max(axis=1)) and columns == pytest.approx(np.abs(dense).max(axis=0))
        divided = g.divided(rows, columns)
        assert np.stack([divided.times(e) for e in np.eye(dense.shape[1])], axis=1) == pytest.approx(
            dense / rows[:, None] / columns
        )


@pytest.mark.parametrize("wanted", ["due", "least"])
def test_many_jobs_get_what_few_would(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large programs are solved job by job where that is exact, with the same shares as by the whole matrix."""
    rng = np.random.default_rng(6)
    speed, gpus = rng.random((100, 3)) + 0.1, 2.0 ** rng.integers(0, 3, 100)
    ask = {wanted: speed.max(axis=1) * (0.05 if wanted == "least" else 1.0)}
    many = shares(speed, gpus, np.full(3, 40.0), np.arange(3), **ask)
    monkeypatch.setattr(central_path, "FEW", 1000)
    whole = shares(speed, gpus, np.full(3, 40.0), np.arange(3), **ask)
    assert many is not None and whole is not None and many == pytest.approx(whole, abs=1e-6)


def test_max_min_of_the_paper() -> None:
    due = SPEED @ np.array([0.5, 0.5])
    x = shares(SPEED, ONES, TWO, TYPES, due=due)
    assert x is not None
    assert ((SPEED * x).sum(axis=1) / due).min() == pytest.approx(0.7273, abs=1e-4)
    assert x == pytest.approx(np.array([[0.4545, 0.0], [0.4545, 0.0909], [0.0909, 0.9091]]), abs=1e-3)


def test_most_steps() -> None:
    x = shares(SPEED, ONES, TWO, TYPES, value=SPEED)
    assert x is not None and (SPEED * x).sum() == pytest.approx(110.0, rel=1e-6)


def test_any_shares_that_are_enough_are_in_the_middle() -> None:
    """Two equal jobs that need a quarter of one GPU each get equal shares, inside of all limits."""
    x = shares(np.ones((2, 1)), np.ones(2), np.ones(1), np.zeros(1, np.int64), least=np.full(2, 0.25))
    assert x is not None and x[0] == pytest.approx(x[1], rel=1e-6)
    assert 0.26 < x[0, 0] < 0.49


@pytest.mark.parametrize("shortest_s", [50.0, 571.4, 123456.0, 3e6])
def test_bisection_stops_within_five_per_cent(shortest_s: float) -> None:
    found = bisected(shortest_s)
    assert found >= shortest_s and found <= max(shortest_s * 1.06, 106.0)
