"""Draws of placements: which choices are left out, and that beams are the most probable or true random samples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from argosy.learn.placement.decoding import beam, choices, sample, unknown
from argosy.learn.placement.mirhoseini import SequencePolicy
from argosy.learn.placement.problem import Ints, PlacementProblem, chain, draw_problem
from argosy.learn.placement.search import Learner, advantages
from argosy.learn.placement.spotlight import StagePolicy


def every(problem: PlacementProblem) -> Ints:
    return np.array(list(itertools.product(range(problem.devices), repeat=problem.tasks)), np.int64)


def new(network: type[Learner], problem: PlacementProblem, spread: float = 1.0) -> Learner:
    """Return a network with random weights, also in its table."""
    torch.manual_seed(3)
    policy: Learner = network(problem.tasks, problem.devices)  # type: ignore[call-arg]
    with torch.no_grad():
        for parameter in policy.table.parameters():
            parameter.normal_(0.0, spread)
    return policy


def log_p(policy: Learner, problem: PlacementProblem, placements: Ints) -> Any:
    with torch.no_grad():
        found, _ = policy(torch.from_numpy(placements), policy.inputs(problem, placements))
    return found.sum(1).numpy()


class TestSymmetries:
    def test_two_nodes_of_two_equal_gpus(self) -> None:
        near = np.where(np.array([[0, 0, 1, 1]]) == np.array([[0], [0], [1], [1]]), 1.0, 4.0) * (1 - np.eye(4))
        problem = chain([1, 2], [1], speed=(1.0,) * 4)
        nodes = PlacementProblem(
            problem.compute_s, problem.task_gib, problem.traffic, problem.speed, problem.device_gib, near
        )
        assert len(problem.symmetries) == 24
        assert len(nodes.symmetries) == 8  # the GPUs of either node, and the nodes
        assert nodes.symmetries[0].tolist() == [0, 1, 2, 3]
        assert len(chain([1], [], speed=(1.0, 2.0, 1.0)).symmetries) == 2

    @pytest.mark.parametrize("seed", range(6))
    def test_step_times_stay_the_same(self, seed: int) -> None:
        problem = draw_problem(seed, 4, 4)
        times = problem.step_times_s(every(problem))
        for symmetry in problem.symmetries:
            np.testing.assert_allclose(problem.step_times_s(symmetry[every(problem)]), times)

    def test_many_devices_take_no_time(self) -> None:
        assert len(chain([1], [], speed=(1.0,) * 12).symmetries) == 720
        assert len(chain([1], [], speed=(1.0,) * 500).symmetries) == 1


class TestChoices:
    @pytest.mark.parametrize("seed", range(8))
    def test_one_placement_of_each_set_of_equal_ones_is_left_if_it_fits(self, seed: int) -> None:
        problem = draw_problem(seed, 4, 4)
        fitting = every(problem)[np.isfinite(problem.step_times_s(every(problem)))]
        first = {min(map(tuple, problem.symmetries[:, row].tolist())) for row in fitting}
        found, complete = beam(new(StagePolicy, problem), problem, 10_000)
        assert complete and len(found) == len(first) and set(map(tuple, found.tolist())) == first

    def test_a_task_without_room_may_get_any_device_and_says_so(self) -> None:
        tight = chain([1, 1, 1], [1, 1], speed=(1.0, 2.0), task_gib=10.0)  # room for two of three
        allowed, stuck = choices(tight, np.array([[0, 1]]))
        assert stuck.all() and allowed.all()
        allowed, stuck = choices(tight, np.array([[0], [1]]))
        assert not stuck.any() and allowed.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("network", [SequencePolicy, StagePolicy])
class TestDraws:
    def test_a_beam_has_the_most_probable_placements(self, network: type[Learner]) -> None:
        problem = draw_problem(1, 4, 3)
        policy = new(network, problem)
        found, _ = beam(policy, problem, 10_000)
        assert len(found) > 20
        probable = log_p(policy, problem, found)
        assert (np.diff(probable) <= 1e-5).all() and np.exp(probable).sum() <= 1 + 1e-5

    def test_random_beams_are_samples_without_replacement(self, network: type[Learner]) -> None:
        problem, rng, times = chain([1, 2], [1], speed=(1.0, 2.0)), np.random.default_rng(5), 3000
        policy = new(network, problem)
        p = np.exp(log_p(policy, problem, every(problem)))
        assert p.sum() == pytest.approx(1.0, abs=1e-5)
        pairs = np.zeros((4, 4))
        for _ in range(times):
            found, complete = beam(policy, problem, 2, rng)
            pairs[tuple(found @ np.array([2, 1]))] += 1
            assert not complete
        expected = p[:, None] * p / (1 - p[:, None]) * (1 - np.eye(4))
        assert np.abs(pairs / times - expected).max() < 0.03

    def test_samples_have_the_probabilities_of_the_policy(self, network: type[Learner]) -> None:
        problem = chain([1, 2], [1], speed=(1.0, 2.0))
        policy = new(network, problem)
        drawn = sample(policy, problem, 4000, np.random.default_rng(6)) @ np.array([2, 1])
        p = np.exp(log_p(policy, problem, every(problem)))
        assert np.abs(np.bincount(drawn, minlength=4) / 4000 - p).max() < 0.03

    def test_unknown_placements_come_until_there_are_none(self, network: type[Learner]) -> None:
        problem, rng = draw_problem(1, 4, 3), np.random.default_rng(0)
        policy, known = new(network, problem, spread=5.0), set[tuple[int, ...]]()
        count = len(beam(policy, problem, 10_000)[0])
        while len(fresh := unknown(policy, problem, 7, known, rng)):
            assert known.isdisjoint(map(tuple, fresh.tolist())) and len(fresh) == min(7, count - len(known))
            known.update(map(tuple, fresh.tolist()))
        assert len(known) == count


class TestAdvantages:
    def test_they_are_ranks_relative_to_what_the_policy_draws(self) -> None:
        gains = advantages(np.array([3.0, 1.0, np.inf, 3.0]), np.array([0.25] * 4))
        assert gains[1] > gains[0] == gains[3] > gains[2] and gains.sum() == pytest.approx(0.0, abs=1e-5)
        sure = advantages(np.array([3.0, 1.0]), np.array([0.0, 1.0]))
        assert sure[1] == pytest.approx(0.0) and sure[0] < 0

    def test_equal_times_teach_nothing(self) -> None:
        assert not advantages(np.full(4, 2.0), np.full(4, 0.25)).any()
