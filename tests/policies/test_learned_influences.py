"""Learned policies say which features moved a job's score: occlusion against the mean job, checked by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.explain.pending import ExplainedEngine, reasons
from argosy.policies.base import create
from argosy.policies.common.influences import Feature, in_words, occluded, seconds
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

JOBS = [
    Job("a", 0, 30_000, 4, min_gpus=1, max_gpus=8, model="resnet50"),
    Job("b", 100, 3_000, 8, min_gpus=8, max_gpus=8),
    Job("c", 200, 90_000, 8),
    Job("d", 300, 600, 2, min_gpus=1, max_gpus=4, model="vgg16"),
    Job("e", 20_000, 600, 8),
]


def engine_of(policy: str, until: float = 20_500.0, jobs: list[Job] = JOBS) -> ExplainedEngine:
    """Run a policy on eight GPUs until then."""
    made = create(policy)
    engine = ExplainedEngine(
        Trace.of_jobs(jobs), Cluster.uniform(1, 8), made, Settings.ideal(), watch=lambda engine: None
    )
    while engine.now < until and engine.advance():
        engine.ask()
        engine.apply()
    return engine


def told_in(text: str) -> list[str]:
    return re.findall(r"\(([+-]\d+\.\d\d)\)", text)


def top(moved: Any) -> list[str]:
    """Return the three numbers that are furthest from 0, as they are told."""
    most = np.argsort(-np.abs(moved), kind="stable")[:3]
    return [f"{moved[i]:+.2f}" for i in most if abs(moved[i]) >= 0.005]


def test_each_feature_has_the_mean_once() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    assert occluded(rows, 0).tolist() == [[2.0, 1.0], [0.0, 3.0]]


def test_words_say_value_mean_and_direction() -> None:
    features = (Feature("waiting time", seconds), Feature("GPUs"), Feature("nothing"))
    moved, values, means = np.array([0.5, -1.25, 0.001]), np.array([7200.0, 8, 1]), np.array([90.0, 2.5, 1])
    assert in_words(features, moved, values, means, 4) == (
        "what moved its score most, against the mean of 4 jobs: GPUs 8 (mean 2.5) holds it back (-1.25), "
        "waiting time 2 h (mean 1.5 min) brings it forward (+0.50)"
    )
    assert in_words(features, np.zeros(3), values, means, 4) == ""


@pytest.mark.parametrize("policy", ["rltune", "dl2", "dl2+", "dual-agent", "argonaut"])
def test_a_waiting_job_is_told_which_features_moved_its_score(policy: str) -> None:
    engine = engine_of(policy)
    told = {engine.job_name(i): reason.evidence for i, reason in reasons(engine).items()}
    assert told
    assert any("what moved its score most" in text or "what moves its value most" in text for text in told.values()), (
        told
    )


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias-las"])
def test_others_have_nothing_to_add(policy: str) -> None:
    assert create(policy).because(0) == ""
    assert all("score" not in reason.evidence for reason in reasons(engine_of(policy)).values())


def test_rltune_by_hand() -> None:
    """Its score, less the score with one feature at the mean of the jobs shown, is what is told."""
    policy: Any = create("rltune")
    table = np.random.default_rng(0).random((5, 7)).astype(np.float32)
    policy._seen = np.array([10, 11, 12, 13, 14]), table
    changed = [table[2].copy() for _ in range(7)]
    for i in range(7):
        changed[i][i] = table[:, i].mean()
    moved = policy.actor.scores(table[2:3])[0] - policy.actor.scores(np.array(changed))
    assert told_in(policy.because(12)) == top(moved)
    assert policy.because(99) == ""


def test_the_dual_agents_by_hand() -> None:
    policy: Any = engine_of("dual-agent:belief=off:communicate=false").policy
    index, features, around = policy._seen
    for row in range(len(index)):
        key = policy.network.order(features, around, False)[0][row]
        moved = []
        for column in range(features.shape[1]):
            other = features.copy()
            other[row, column] = features[:, column].mean()
            moved.append(policy.network.order(other, around, False)[0][row] - key)
        assert told_in(policy.because(int(index[row]))) == top(np.array(moved))


@pytest.mark.parametrize("policy", ["rltune", "dl2", "dl2+", "dual-agent"])
def test_nothing_is_said_before_the_first_decision_or_of_a_single_job(policy: str) -> None:
    engine = engine_of(policy, 50.0, JOBS[:1])
    assert engine.policy.because(0) == ""
    assert engine.policy.because(7) == ""
