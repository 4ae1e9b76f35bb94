"""Results for reports come from the builder that the tests of metrics use too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sim"))

from results_by_hand import list_scheduled

from argosy.report.comparison import Comparison, SweepPoint
from argosy.sim.metrics import metrics
from argosy.sim.variation import Variation


@pytest.fixture(scope="session")
def comparison() -> Comparison:
    """Two policies, three seeds, a sweep."""
    results = [
        list_scheduled(policy, seed, shortest_first=policy == "sjf", jobs=60)
        for seed in (0, 1, 2)
        for policy in ("fifo", "sjf")
    ]
    sweep = [
        SweepPoint((Variation("load", load),), policy, seed, metrics(list_scheduled(policy, seed, jobs=30, load=load)))
        for load in (0.5, 1.0)
        for seed in (0, 1)
        for policy in ("fifo", "sjf")
    ]
    return Comparison(tuple(results), command="argosy compare --policies fifo,sjf", sweep=tuple(sweep))
