"""Matrix completion recovers a low-rank matrix, and finds the class that a job resembles."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.perf.completion import complete, estimate_pairs, match, nearest
from argosy.perf.interference import pair_matrix

RNG = np.random.default_rng(1)
LOW_RANK = RNG.uniform(0.2, 1, (30, 2)) @ RNG.uniform(0.1, 0.5, (2, 20))
KNOWN = RNG.uniform(0, 1, LOW_RANK.shape) < 0.6


def test_a_matrix_of_low_rank_is_filled_in() -> None:
    filled = complete(np.where(KNOWN, LOW_RANK, 99.0), KNOWN, rank=2, damping=1e-6)
    assert np.array_equal(filled[KNOWN], LOW_RANK[KNOWN])
    assert np.abs(filled - LOW_RANK).max() < 1e-3


def test_the_usual_damping_keeps_many_factors_in_check() -> None:
    filled = complete(LOW_RANK, KNOWN)  # ten factors for a matrix of rank two
    assert np.abs(filled - LOW_RANK)[~KNOWN].mean() < 0.05 * LOW_RANK.mean()


def test_what_is_known_stays() -> None:
    everything = np.ones(LOW_RANK.shape, bool)
    assert np.array_equal(complete(LOW_RANK, everything), LOW_RANK)


def test_the_same_seed_gives_the_same() -> None:
    assert np.array_equal(complete(LOW_RANK, KNOWN, seed=3), complete(LOW_RANK, KNOWN, seed=3))


def test_nearest_is_by_direction() -> None:
    reference = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert nearest(reference, np.array([0.1, 0.09])) == 1
    assert nearest(reference, np.array([0.0, 5.0])) == 2
    assert nearest(np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([0.0, 2.0])) == 1  # a row of zeros is like nobody


def test_a_job_is_recognised_by_part_of_its_row() -> None:
    measured = np.zeros(20, bool)
    measured[::3] = True
    assert [match(LOW_RANK[:8], 0.98 * LOW_RANK[i], measured) for i in range(8)] == list(range(8))


def test_pairs_estimated_from_some_trials() -> None:
    """Classes that are known are exact; the others are close, closer than without trials."""
    names = ["resnet-18", "resnet-50", "transformer", "lm", "recommendation", "a3c", "cyclegan"]
    classes = [(name, batch) for name in names for batch in (16.0, 64.0, 256.0)]
    pair = pair_matrix(classes, "v100")
    reference = list(range(0, len(classes), 2))
    some, nothing = estimate_pairs(pair, reference, 0.5), estimate_pairs(pair, reference, 0.0)
    assert np.array_equal(some[np.ix_(reference, reference)], pair[np.ix_(reference, reference)])
    error, blind = np.abs(some - pair).mean(), np.abs(nothing - pair).mean()
    assert error < 0.5 * blind and error < 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: complete(LOW_RANK, KNOWN[:, :3]),
        lambda: complete(LOW_RANK, KNOWN, rank=0),
        lambda: complete(LOW_RANK, KNOWN, damping=0.0),
        lambda: match(LOW_RANK[:0], LOW_RANK[0], KNOWN[0]),
        lambda: estimate_pairs(LOW_RANK, [0], 1.5),
    ],
)
def test_nonsense_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
