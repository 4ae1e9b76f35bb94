"""Evolution strategies climb by ranks alone, pair their arrivals, and go on exactly where they stopped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from toolbox_help import score
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from argosy.errors import InputError
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.algorithms.collect import episodes
from argosy.learn.algorithms.curriculum import Curriculum
from argosy.learn.algorithms.evolve import Evolution, shaped
from argosy.learn.algorithms.toy_envs import Queue
from argosy.learn.errors import TrainingError

GOAL = np.linspace(-1.0, 1.0, 20)


def near(vectors: NDArray[np.float64], seeds: Sequence[int]) -> NDArray[np.float64]:
    return -((vectors - GOAL) ** 2).sum(axis=1)


def test_a_quadratic_is_climbed() -> None:
    evolution = Evolution(np.zeros(20), pairs=8, sigma=0.1, lr=0.05)
    reports = [evolution.update(near) for _ in range(150)]
    assert reports[-1]["mean"] > -0.5 > reports[0]["mean"] + 5
    assert np.abs(evolution.vector - GOAL).max() < 0.15
    assert reports[-1]["worst"] <= reports[-1]["mean"] <= reports[-1]["best"]


class Scores(nn.Module):
    """The same small network for every job; the action that ends the slot has the score 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(self.rows(observation).squeeze(-1), (0, 1))


def test_a_toy_is_solved_by_its_score() -> None:
    def make() -> Queue:
        return Queue(limit=12)

    network, envs = Scores(), [make() for _ in range(4)]

    def evaluate(vectors: NDArray[np.float64], seeds: Sequence[int]) -> NDArray[np.float64]:
        totals = []
        for vector in vectors:
            vector_to_parameters(torch.from_numpy(vector).float(), network.parameters())
            totals.append(episodes(envs, NetworkActs(network, greedy=True), list(seeds)).totals())
        return np.array(totals)

    start = parameters_to_vector(network.parameters()).detach().numpy()
    evolution = Evolution(start, pairs=8, sigma=0.3, lr=0.1, arrivals=4)
    assert score(network, make) < make().best - 2
    for _ in range(12):
        evolution.update(evaluate)
    vector_to_parameters(torch.from_numpy(evolution.vector).float(), network.parameters())
    assert score(network, make) == make().best


def test_a_generation_is_mirrored_and_shares_its_arrivals() -> None:
    evolution = Evolution(np.ones(5), pairs=3, sigma=0.5, arrivals=2, seeds=(100, 200))
    vectors, seeds = evolution.ask()
    assert vectors.shape == (6, 5)
    assert np.allclose(vectors[:3] + vectors[3:], 2.0)
    assert len(seeds) == 2 and all(100 <= s < 200 for s in seeds)
    again, same_seeds = evolution.ask()
    assert np.array_equal(vectors, again) and seeds == same_seeds
    evolution.tell(np.arange(6.0))
    assert evolution.ask()[1] != seeds


def test_only_ranks_count() -> None:
    assert shaped(np.array([3.0, -1e9, 7.0, 3.0])).tolist() == pytest.approx([0.0, -0.5, 0.5, 0.0])
    results = []
    for scale in (1.0, 1e6):
        evolution = Evolution(np.zeros(5), pairs=4)
        evolution.tell(scale * np.array([4.0, 1, 8, 3, 2, 7, 6, 5]))
        results.append(evolution.vector)
    assert np.array_equal(*results)


def test_ranks_are_taken_by_arrivals() -> None:
    """A hard trace, on which all scores are low, counts as much as an easy one."""
    easy, hard = np.array([1.0, 2, 3, 4]), np.array([-400.0, -300, -200, -100])
    results = []
    for scores in (np.stack((easy, hard), axis=1), easy):
        evolution = Evolution(np.zeros(3), pairs=2)
        evolution.tell(scores)
        results.append(evolution.vector)
    assert np.array_equal(*results)


def test_weights_decay() -> None:
    evolution = Evolution(np.full(3, 10.0), pairs=2, lr=0.1, decay=0.5)
    evolution.tell(np.zeros(4))  # no rank, no gain
    assert evolution.vector.tolist() == pytest.approx([9.5] * 3)


def test_the_average_is_nearer_to_the_goal_than_weights_that_jump_around_it() -> None:
    draws = np.random.default_rng(0)
    evolution, plain = (Evolution(np.zeros(20), pairs=8, sigma=0.2, lr=0.1, average=share) for share in (0.9, 0.0))
    for _ in range(150):
        noise = 0.5 * draws.standard_normal(16)
        for one in (evolution, plain):
            one.update(lambda vectors, seeds, noise=noise: near(vectors, seeds) + noise)  # type: ignore[misc]
    assert np.abs(evolution.averaged - GOAL).mean() < 0.8 * np.abs(evolution.vector - GOAL).mean()
    assert np.array_equal(evolution.vector, plain.vector) and np.array_equal(plain.averaged, plain.vector)
    with pytest.raises(InputError, match="average must be"):
        Evolution(np.zeros(3), average=1.0)


def test_same_seed_same_vector_and_resuming_changes_nothing() -> None:
    whole, first = (Evolution(np.zeros(20), pairs=4, average=0.5) for _ in range(2))
    for _ in range(6):
        whole.update(near)
    for _ in range(3):
        first.update(near)
    second = Evolution(np.zeros(20), pairs=4, average=0.5)
    second.restore(first.state())
    for _ in range(3):
        second.update(near)
    assert np.array_equal(whole.vector, second.vector) and second.updates == 6
    assert np.array_equal(whole.averaged, second.averaged)
    other = Evolution(np.zeros(20), pairs=4, seed=1)
    other.update(near)
    assert not np.array_equal(other.vector, Evolution(np.zeros(20), pairs=4).vector)


def test_what_is_refused() -> None:
    evolution = Evolution(np.zeros(3), pairs=2)
    with pytest.raises(InputError, match="3 scores for 4 vectors"):
        evolution.tell(np.zeros(3))
    with pytest.raises(TrainingError, match="scores is nan at update 1"):
        evolution.tell(np.array([0.0, np.nan, 0, 0]))
    assert evolution.vector.tolist() == [0, 0, 0] and evolution.updates == 0
    with pytest.raises(InputError, match="the saved vector has 4 weights, but 3 are needed"):
        evolution.restore(Evolution(np.zeros(4), pairs=2).state())
    with pytest.raises(InputError, match="vector of finite numbers"):
        Evolution(np.zeros((2, 2)))
    with pytest.raises(InputError, match="sigma must be above 0"):
        Evolution(np.zeros(3), sigma=0.0)


def test_a_curriculum_grows_and_then_stays() -> None:
    course = Curriculum(100, load=(0.5, 1.0), length=(0.2, 1.0))
    assert course.difficulty(0) == (0.5, 0.2, None)
    assert course.difficulty(50).load == 0.75 and course.difficulty(50).length == pytest.approx(0.6)
    assert course.difficulty(100) == course.difficulty(5000) == (1.0, 1.0, None)


def test_episodes_of_a_curriculum_end_at_random_and_later() -> None:
    course = Curriculum(1000, mean_slots=(10.0, 100.0))
    early = [course.difficulty(0 * u).slots for u in range(3)]
    assert len(set(early)) == 1  # the same update, the same length
    first = [Curriculum(10**9, mean_slots=(10.0, 100.0)).difficulty(u).slots for u in range(400)]
    late = [course.difficulty(1000 + u).slots for u in range(400)]
    assert np.mean(first) == pytest.approx(10, rel=0.15) and np.mean(late) == pytest.approx(100, rel=0.15)
    assert min(first) >= 1 and len(set(first)) > 10


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"updates": 0}, "updates must"), ({"load": (0.0, 1.0)}, "load must"), ({"mean_slots": (0.5, 2.0)}, "at least 1")],
)
def test_curricula_that_are_wrong(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Curriculum(**({"updates": 10} | wrong))  # type: ignore[arg-type]
