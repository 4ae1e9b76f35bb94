"""Networks for training and for deciding are the same functions, to 1e-5."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.networks import ScoreActor, TableActor
from argosy.policies.learned.features import JobFeatures
from argosy.policies.learned.forward import NUMPY, score_embedding
from argosy.policies.learned.networks import ScoreNetwork, TableNetwork

ROWS, TYPES, CAP = 6, 8, 16


def test_the_score_network_sees_what_the_environment_shows() -> None:
    """Embeddings of an observation by the forward pass, and of the same jobs by the policy's kernel."""
    actor = ScoreActor(TYPES, CAP, torch.Generator().manual_seed(0))
    env = ClusterEnv("dl2-heavy", jobs=ROWS, context=True)
    observation, _ = env.reset(seed=4)
    here = observation[observation[:, -1] > 0]
    times = np.stack([here[:, TYPES], here[:, TYPES + 1], here[:, -3]], axis=1)
    types = here[:, :TYPES].argmax(axis=1)
    features = JobFeatures(types, times, float(here[0, -2]), float(here[0, -1]))
    ours = ScoreNetwork(actor.arrays(), env.types, CAP).embed(features)
    theirs = score_embedding(actor.arrays(), observation, TYPES, NUMPY)[: len(here)]
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.abs(ours).max() > 0.1


def scores(actor: ScoreActor, observation: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return actor(torch.from_numpy(observation)[None])[0].numpy()


def test_rows_are_alike_for_the_score_network() -> None:
    actor = ScoreActor(TYPES, CAP, torch.Generator().manual_seed(1))
    observation = np.random.default_rng(0).random((ROWS, TYPES + 8)).astype(np.float32)
    order = np.random.default_rng(1).permutation(ROWS)
    before, after = scores(actor, observation), scores(actor, observation[order])
    assert np.allclose(before[:-1].reshape(ROWS, 3)[order], after[:-1].reshape(ROWS, 3), atol=1e-5)
    assert before[-1] == after[-1] == 0.0


def test_empty_rows_change_nothing() -> None:
    actor = ScoreActor(TYPES, CAP, torch.Generator().manual_seed(2))
    observation = np.random.default_rng(0).random((ROWS, TYPES + 8)).astype(np.float32)
    longer = np.zeros((2 * ROWS, TYPES + 8), np.float32)
    longer[:ROWS] = observation
    assert np.allclose(scores(actor, observation)[:-1], scores(actor, longer)[: 3 * ROWS], atol=1e-5)


def test_numpy_and_torch_have_the_same_logits() -> None:
    names = tuple("abcdefgh")
    observation = np.random.default_rng(3).random((ROWS, TYPES + 8)).astype(np.float32)
    score = ScoreActor(TYPES, CAP, torch.Generator().manual_seed(3))
    ours = ScoreNetwork(score.arrays(), names, CAP).logits(observation)
    assert np.allclose(scores(score, observation), ours, atol=1e-5)
    table, plain = TableActor(ROWS, TYPES, 32, torch.Generator().manual_seed(3)), observation[:, :-3].copy()
    with torch.no_grad():
        expected = table(torch.from_numpy(plain)[None])[0].numpy()
    assert np.allclose(expected, TableNetwork(table.arrays(), names, CAP).logits(plain), atol=1e-5)


@pytest.mark.parametrize("kind", ["score", "table"])
def test_arrays_go_back_and_forth(kind: str) -> None:
    def make(seed: int) -> ScoreActor | TableActor:
        generator = torch.Generator().manual_seed(seed)
        return ScoreActor(TYPES, CAP, generator) if kind == "score" else TableActor(ROWS, TYPES, 32, generator)

    first, second = make(0), make(1)
    columns = TYPES + (8 if kind == "score" else 5)
    observation = torch.rand(4, ROWS, columns)
    assert first(observation).shape == (4, 3 * ROWS + 1)
    assert not torch.equal(first(observation), second(observation))
    second.take(first.arrays())
    assert torch.equal(first(observation), second(observation))
