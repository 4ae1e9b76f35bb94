"""Impossible actions have no probability, gradient or entropy, and are never chosen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from toolbox_help import actor

from argosy.errors import InputError
from argosy.learn.algorithms import masked
from argosy.learn.algorithms.acting import NetworkActs
from argosy.learn.errors import TrainingError

LOGITS = torch.tensor([[5.0, 1.0, -2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
MASK = torch.tensor([[False, True, True, False], [True, True, True, False]])


def test_masked_actions_have_exactly_no_probability() -> None:
    chances = masked.log_probabilities(LOGITS, MASK).exp()
    assert torch.equal(chances == 0.0, ~MASK)
    assert torch.allclose(chances.sum(-1), torch.ones(2))
    assert chances[0, 1] / chances[0, 2] == pytest.approx(math.exp(3.0))


@pytest.mark.parametrize("what", ["log_prob", "entropy"])
def test_masked_actions_have_exactly_no_gradient(what: str) -> None:
    logits = LOGITS.clone().requires_grad_()
    if what == "entropy":
        masked.entropy(logits, MASK).sum().backward()
    else:
        masked.log_probabilities(logits, MASK)[:, 1].sum().backward()
    assert logits.grad is not None
    assert (logits.grad[~MASK] == 0.0).all()
    assert (logits.grad[0, 1:3] != 0.0).all()


@pytest.mark.parametrize("valid", [1, 2, 3, 4])
def test_entropy_counts_valid_actions(valid: int) -> None:
    mask = (torch.arange(4) < valid)[None]
    assert float(masked.entropy(torch.zeros(1, 4), mask)) == pytest.approx(math.log(valid), abs=1e-6)


def test_samples_follow_the_probabilities_and_the_seed() -> None:
    logits, mask = LOGITS[:1].expand(20_000, -1), MASK[:1].expand(20_000, -1)

    def draw(seed: int) -> torch.Tensor:
        return masked.sample(logits, mask, torch.Generator().manual_seed(seed))

    drawn = draw(0)
    assert set(drawn.tolist()) == {1, 2}
    assert float((drawn == 2).float().mean()) == pytest.approx(1 / (1 + math.exp(3.0)), abs=0.005)
    assert torch.equal(drawn, draw(0))
    assert not torch.equal(drawn, draw(1))


def test_the_best_is_the_best_of_the_possible() -> None:
    assert masked.best(LOGITS, MASK).tolist() == [1, 0]


def test_masks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="the mask has the shape"):
        masked.mask_logits(LOGITS, MASK[:, :3])
    act = NetworkActs(actor(1, 4))
    with pytest.raises(InputError, match="no action is possible in 1 of 2 states"):
        act(np.zeros((2, 1), np.float32), np.array([[True] * 4, [False] * 4]))
    with pytest.raises(TrainingError, match="logits are not finite"):
        act(np.full((2, 1), np.nan, np.float32), np.ones((2, 4), bool))


def test_a_network_acts_by_its_seed_and_tells_its_chances() -> None:
    network, seen, mask = actor(1, 4), np.ones((50, 1), np.float32), np.tile([True, True, False, True], (50, 1))
    action, log_prob = NetworkActs(network, seed=3)(seen, mask)
    again, _ = NetworkActs(network, seed=3)(seen, mask)
    assert (action == again).all()
    logs = masked.log_probabilities(network(torch.from_numpy(seen)), torch.from_numpy(mask)).detach().numpy()
    assert np.allclose(log_prob, logs[np.arange(50), action])
    assert set(action.tolist()) == {0, 1, 3}


def test_acting_goes_on_from_its_state() -> None:
    network, seen, mask = actor(1, 4), np.ones((50, 1), np.float32), np.ones((50, 4), bool)
    act = NetworkActs(network, seed=3)
    act(seen, mask)
    other = NetworkActs(network)
    other.restore(act.state())
    assert (other(seen, mask)[0] == act(seen, mask)[0]).all()
