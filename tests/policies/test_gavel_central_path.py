"""The solver of the authors' form: optimal where there is one optimum, in the middle where there are many."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from argosy.policies.gavel.central_path import shares, solve
from argosy.policies.gavel.fairness import bisected

SPEED = np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]])
ONES, TWO = np.ones(3), np.ones(2)
TYPES = np.array([0, 1])


def test_a_program_with_one_optimum() -> None:
    """min −x − 2y with x + y ≤ 1, x, y ≥ 0."""
    g = csr_matrix(np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]))
    x = solve(np.array([-1.0, -2.0]), g, np.array([1.0, 0.0, 0.0]))
    assert x is not None and x == pytest.approx([0.0, 1.0], abs=1e-6)


def test_no_solution_is_none() -> None:
    """x ≥ 1 and x ≤ 0."""
    assert solve(np.zeros(1), csr_matrix(np.array([[-1.0], [1.0]])), np.array([-1.0, 0.0])) is None


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
