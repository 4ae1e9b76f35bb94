"""Tesserae's matchings: the fewest moves between two arrangements, and the pairs that do most together."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from by_hand import finish, simulate

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.common.matching import decreasing, fewest_moves, most_weight, move_costs
from argosy.scenario import read_scenario
from argosy.sim.metrics import metrics
from argosy.sim.run import simulate as run
from argosy.workload.trace import Job

A, B, C, D = range(4)


def test_an_arrangement_is_laid_over_the_nodes_with_the_fewest_moves() -> None:
    """Before {A, A}, {B, C}; then {B, D}, {A, A}: swapping the nodes moves nobody, the same order moves A and B."""
    old, new, ran = [{A: 2}, {B: 1, C: 1}], [{B: 1, D: 1}, {A: 2}], {A: 2, B: 1, C: 1}
    costs = move_costs(new, old, ran)
    assert costs.tolist() == [[1, 0], [0, 1]]
    assert fewest_moves(costs).tolist() == [1, 0]
    assert costs[[0, 1], [0, 1]].sum() == 2


def test_the_cost_of_two_nodes_is_that_of_the_best_assignment_of_their_gpus() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        v, u = (rng.choice([-1, *range(4)], 4).tolist() for _ in range(2))  # the job on each GPU, -1: none
        ran = {j: max(v.count(j), u.count(j)) for j in range(4) if j in u}
        best = min(
            sum(1 / ran[j] for j, here in zip(v, order) if j in ran and j != here)
            for order in itertools.permutations(u)
        )
        new, old = ({j: row.count(j) for j in row if j >= 0} for row in (v, u))
        assert move_costs([new], [old], ran)[0, 0] == pytest.approx(best)


def test_the_pairs_that_do_most_together() -> None:
    """Taking the best pair first gives 1.50 + 1.10; the best pairs together give 1.45 + 1.40."""
    weight = np.array([[1.50, 1.45, 0.90], [1.40, 1.05, 1.10]])
    pairs = most_weight(weight, 1.0)
    assert pairs == [(0, 1), (1, 0)]
    assert sum(weight[pair] for pair in pairs) == pytest.approx(2.85)
    assert most_weight(weight, 1.5) == []


def test_gangs_are_packed_from_the_largest_down() -> None:
    assert decreasing({0: 1, 1: 6, 2: 2, 3: 3}, [4, 4, 4]) == [{1: 4}, {1: 2, 2: 2}, {3: 3, 0: 1}]
    assert decreasing({0: 3, 1: 3}, [4, 2]) is None


def test_a_small_job_moves_so_that_a_gang_fits() -> None:
    """Two nodes of 2: two jobs end, and one of the other two moves beside the other for the gang."""
    jobs = [
        Job("short0", 0, 10, 1),
        Job("long0", 0, 100, 1),
        Job("short1", 0, 10, 1),
        Job("long1", 0, 100, 1),
        Job("gang", 5, 50, 2),
    ]
    for policy, moves in (("tesserae:inner=fifo", 1), ("tesserae:inner=fifo:most_moves=0", 0)):
        result = simulate(jobs, Cluster.uniform(2, 2), policy)
        assert result.jobs["migrations"].sum() == moves
        assert finish(result)[:4] == [10, 100, 10, 100]


def test_it_helps_the_order_that_it_is_under() -> None:
    """The claim, where networks leave each other room: mean completion time 1.62, makespan 1.15 times as good."""
    scenario = read_scenario("packed", quick=True)
    gain = []
    for seed in (0, 1):
        trace = scenario.trace(seed)
        found = [
            metrics(run(trace, scenario.cluster, p, scenario.settings.with_seed(seed)))["queueing_mean_s"]
            for p in ("tiresias-las", "tesserae")
        ]
        gain.append(found[0] / found[1])
    assert min(gain) > 1.6


@pytest.mark.parametrize(
    "spec", ["inner=gavel-max-min", "inner=gandiva", "least_together=0.5", "most_moves=-1", "guests=-1"]
)
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="tesserae"):
        create(f"tesserae:{spec}")
