"""DL2's exploration: each bad state has its remedy, and the mixture is what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from argosy.learn.training.exploration import CHANCE, JobAware, helping

TYPES, ROWS, CAP = 2, 3, 16


def state(*sizes: tuple[int, int]) -> np.ndarray:
    """Rows with these workers and servers."""
    table = np.zeros((1, ROWS, TYPES + 5), np.float32)
    for row, (w, u) in enumerate(sizes):
        table[0, row, 0] = 1.0
        table[0, row, -2:] = w / CAP, u / CAP
    return table


EVERYTHING = np.ones((1, 3 * ROWS + 1), np.bool_)


@pytest.mark.parametrize(
    ("sizes", "actions"),
    [
        (((1, 0), (1, 1), (2, 2)), [1]),  # workers and no server: a server
        (((1, 1), (0, 2), (2, 2)), [3]),  # servers and no worker: a worker
        (((11, 1), (1, 1), (2, 2)), [1]),  # more than ten workers for one server
        (((1, 1), (1, 11), (2, 2)), [3]),
        (((10, 1), (1, 10), (2, 2)), []),  # ten are not too many
        (((0, 0), (0, 0), (0, 0)), []),
        (((1, 0), (0, 1), (2, 2)), [1, 3]),
    ],
)
def test_each_bad_state_has_its_remedy(sizes: tuple[tuple[int, int], ...], actions: list[int]) -> None:
    assert np.flatnonzero(helping(state(*sizes), EVERYTHING, TYPES)[0]).tolist() == actions


def test_what_is_not_possible_is_no_remedy() -> None:
    mask = EVERYTHING.copy()
    mask[0, 1] = False
    assert not helping(state((1, 0)), mask, TYPES).any()


class Fixed(nn.Module):
    """Always the same logits."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(observation), -1)


def test_it_helps_as_often_as_it_says_and_notes_the_right_probabilities() -> None:
    never = [-1e9] * (3 * ROWS)
    act = JobAware(Fixed([*never, 0.0]), TYPES, seed=1)  # the network would always stop
    seen = np.repeat(state((1, 0)), 4000, axis=0)
    action, log_prob = act(seen, np.repeat(EVERYTHING, 4000, axis=0))
    assert set(action.tolist()) == {1, 3 * ROWS}
    assert (action == 1).mean() == pytest.approx(CHANCE, abs=0.03)
    assert np.allclose(np.exp(log_prob), np.where(action == 1, CHANCE, 1 - CHANCE), atol=1e-6)


def test_where_all_is_well_the_network_decides() -> None:
    logits = np.linspace(-1, 1, 3 * ROWS + 1)
    act = JobAware(Fixed(logits.tolist()), TYPES, seed=1)
    action, log_prob = act(np.repeat(state((1, 1)), 50, axis=0), np.repeat(EVERYTHING, 50, axis=0))
    chances = np.exp(logits) / np.exp(logits).sum()
    assert np.allclose(np.exp(log_prob), chances[action], atol=1e-6)
