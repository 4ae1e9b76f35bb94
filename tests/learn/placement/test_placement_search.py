"""The placement of one gang's tasks: the step-time oracle, and the two searches on problems whose optimum is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from argosy.errors import InputError
from argosy.learn.errors import TrainingError
from argosy.learn.placement import mirhoseini, spotlight
from argosy.learn.placement.decoding import sample
from argosy.learn.placement.descent import descend
from argosy.learn.placement.mirhoseini import SequencePolicy
from argosy.learn.placement.problem import Gpu, Meter, PlacementProblem, chain, draw_problem, of_gang
from argosy.learn.placement.spotlight import StagePolicy

FOUR_OPS = chain([4, 1, 1, 4], [1, 5, 1])  # on two devices


class TestOracle:
    def test_the_busiest_device_sets_the_pace(self) -> None:
        assert FOUR_OPS.step_time_s([0, 0, 0, 0]) == 10
        assert FOUR_OPS.step_time_s([0, 0, 1, 1]) == 4 + 1 + 5
        assert FOUR_OPS.step_time_s([0, 1, 1, 1]) == 6 + 1
        assert FOUR_OPS.step_time_s([0, 1, 1, 0]) == 8 + 2

    def test_the_optimum_is_the_best_of_all(self) -> None:
        placement, time_s = FOUR_OPS.optimum()
        assert time_s == 7 and placement in {(0, 0, 0, 1), (0, 1, 1, 1)}

    def test_a_fast_device_takes_more(self) -> None:
        assert chain([4, 1, 1, 4], [1, 5, 1], speed=(2.0, 1.0)).optimum() == ((0, 0, 0, 0), 5.0)

    def test_a_placement_that_needs_too_much_memory_fails(self) -> None:
        tight = chain([1, 1], [1], task_gib=10.0)
        assert tight.step_time_s([0, 0]) == np.inf
        assert tight.optimum()[1] == 2

    def test_a_gang_has_the_times_of_the_iteration_model(self) -> None:
        near = [Gpu("v100", 0, 0), Gpu("v100", 0, 0), Gpu("v100", 1, 0), Gpu("v100", 2, 1)]
        gang = of_gang("resnet-50", near, workers=2)
        same_node, same_rack, two_racks = (gang.step_time_s(p) for p in ([0, 1], [0, 2], [0, 3]))
        assert same_node < same_rack < two_racks
        assert gang.optimum()[0] == (0, 1)
        served = of_gang("resnet-50", near, workers=2, servers=1)
        assert served.tasks == 3 and served.traffic[0, 1] == 0 and served.traffic[0, 2] == 1

    def test_random_problems_have_a_placement_that_fits(self) -> None:
        assert all(np.isfinite(draw_problem(seed, 5, 3).optimum()[1]) for seed in range(10))
        assert np.array_equal(draw_problem(3).compute_s, draw_problem(3).compute_s)

    def test_only_different_placements_are_counted(self) -> None:
        meter = Meter(FOUR_OPS)
        meter.measure(np.array([[0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]]))
        assert meter.measured == 2 and meter.best == (0, 1, 1, 1) and meter.curve == [10, 7]
        assert meter.measured_until(7.0) == 2 and meter.measured_until(6.0) is None

    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            (lambda: chain([1, 1], [1, 1]), "1 links"),
            (lambda: chain([1, -1], [1]), "≥ 0"),
            (lambda: chain([1, np.nan], [1]), "finite"),
            (lambda: chain([1, 1], [1], speed=(1.0, 0.0)), "> 0"),
            (lambda: FOUR_OPS.step_time_s([0, 0, 0, 2]), "0..1"),
            (lambda: FOUR_OPS.step_time_s([0, 0]), "4 tasks"),
            (lambda: chain([1] * 30, [1] * 29).optimum(), "enumerate"),
            (lambda: of_gang("no such network", [Gpu()], 2), "no iteration model"),
            (lambda: of_gang("resnet-50", [], 2), "at least one"),
        ],
    )
    def test_what_cannot_be_is_refused(self, bad: object, why: str) -> None:
        with pytest.raises(InputError, match=why):
            bad()  # type: ignore[operator]

    def test_arrays_that_do_not_belong_together(self) -> None:
        two = np.ones(2)
        with pytest.raises(InputError, match="traffic has the shape"):
            PlacementProblem(two, two, np.zeros((3, 3)), two, two, np.zeros((2, 2)))


@pytest.mark.parametrize("module", [mirhoseini, spotlight])
class TestSearch:
    @pytest.mark.parametrize("seed", range(3))
    def test_a_chain_of_four_operations_on_two_devices(self, module: Any, seed: int) -> None:
        meter = module.search(FOUR_OPS, seed=seed, budget=14)
        assert meter.best_s == FOUR_OPS.optimum()[1]
        assert meter.measured == 8  # of 16 placements; the others only exchange the devices

    def test_it_learns_where_random_placements_do_not_get(self, module: Any) -> None:
        """One of 3^7 placements is best: all tasks on the fast device, which has room for them."""
        problem = chain([1] * 7, [3] * 6, speed=(1.0, 8.0, 1.0))
        meter = module.search(problem, seed=0, budget=150)
        assert meter.best == (1,) * 7

    def test_the_same_seed_measures_the_same(self, module: Any) -> None:
        first, again = (module.search(draw_problem(4, 4, 3), seed=7, budget=20) for _ in range(2))
        assert first.known == again.known

    def test_what_fits_nowhere_is_measured_and_fails(self, module: Any) -> None:
        meter = module.search(chain([1, 1, 1], [1, 1], speed=(1.0, 2.0), task_gib=10.0), budget=20)
        assert meter.measured and meter.best_s == np.inf

    @pytest.mark.slow
    @pytest.mark.parametrize(("tasks", "devices"), [(5, 4), (6, 3)])
    def test_random_problems_are_solved_from_nothing(self, module: Any, tasks: int, devices: int) -> None:
        problems = [draw_problem(seed, tasks, devices) for seed in range(6)]
        found = [module.search(problem, seed=1).measured_until(problem.optimum()[1]) for problem in problems]
        assert sum(count is not None for count in found) >= 5

    def test_learning_changes_the_search_but_not_the_trained_network(self, module: Any) -> None:
        torch.manual_seed(0)
        network, problem = StagePolicy(4, 3), draw_problem(2, 5, 4)  # such weights serve problems of other sizes, too
        before = [parameter.clone() for parameter in network.parameters()]
        still = module.Settings(lr=0.0, table_lr=0.0)
        learnt, fixed = (module.search(problem, s, budget=60, network=network) for s in (None, still))
        assert all(torch.equal(a, b) for a, b in zip(before, network.parameters()))
        assert list(learnt.known)[:8] == list(fixed.known)[:8] and learnt.known != fixed.known


def test_a_sequence_network_is_for_one_size() -> None:
    with pytest.raises(InputError, match="4 tasks on 3 devices"):
        mirhoseini.search(draw_problem(0, 5, 3), network=SequencePolicy(4, 3))


@pytest.fixture(scope="module")
def trained() -> dict[Any, Any]:
    return {
        spotlight: spotlight.pretrain(4, 3, updates=60, samples=8),
        mirhoseini: mirhoseini.pretrain(4, 3, updates=60, samples=8),
    }


@pytest.mark.slow
class TestTraining:
    def test_ppo_on_stages_measures_fewer_than_reinforce_on_a_sequence(self, trained: dict[Any, Any]) -> None:
        counts: dict[Any, list[int]] = {module: [] for module in trained}
        for seed in range(20):
            problem = draw_problem(seed, 4, 3)
            for module, network in trained.items():
                meter = module.search(problem, seed=seed, budget=60, network=network)
                counts[module].append(meter.measured_until(problem.optimum()[1]) or 60)
        assert sum(counts[spotlight]) < sum(counts[mirhoseini])

    def test_a_network_that_was_trained_before_begins_better(self, trained: dict[Any, Any]) -> None:
        rng, better = np.random.default_rng(0), dict.fromkeys(trained, 0)
        for seed in range(20):
            problem = draw_problem(seed, 4, 3)
            usual = np.median(problem.step_times_s(rng.integers(3, size=(64, 4))))
            for module, network in trained.items():
                better[module] += np.median(problem.step_times_s(sample(network, problem, 64, rng))) < usual
        assert min(better.values()) >= 13


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(TrainingError, match="the loss is"):
        descend(torch.optim.Adam([weight]), (weight / 0.0).sum(), 1.0)
    assert weight.item() == 1
