"""Gandiva-fair gives users equal GPU time, and trades GPU types so that nobody loses."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from by_hand import simulate

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.gavel.allocation import Problem
from argosy.policies.gavel.fairness import isolated
from argosy.policies.gavel.gandiva_fair import GandivaFair, equal_time
from argosy.workload.trace import Job


def problem(speed: list[list[float]], gpus: list[float], capacity: list[float], holder: list[int]) -> Problem:
    n = len(gpus)
    return Problem(
        np.array(speed),
        np.array(gpus),
        np.ones(n),
        np.zeros(n, np.int64),
        np.arange(n),
        np.array(capacity),
        np.arange(len(capacity)),
        {"holder": np.array(holder, float)},
    )


def test_the_shares_of_the_code() -> None:
    """Gangs of 4, 2 and 1 on 4 GPUs all run all the time: 7 GPUs of 4. Gavel's own isolated shares fit."""
    found = problem([[1.0]] * 3, [4, 2, 1], [4], [0, 1, 2])
    assert GandivaFair(authors=True).solve(found)[:, 0].tolist() == [1, 1, 1]
    assert isolated(found)[:, 0] == pytest.approx([1 / 3, 2 / 3, 1])


def test_a_user_who_cannot_use_the_share() -> None:
    """8 GPUs, three users: 2.67 each, but one has a single job of 2 GPUs; the others get 3 each."""
    time = equal_time(np.array([2.0, 4, 4, 8]), np.ones(4), np.array([0, 1, 1, 2]), 8.0)
    gpu_time = time * [2, 4, 4, 8]
    assert gpu_time == pytest.approx([2, 1.5, 1.5, 3])


def test_two_users_trade() -> None:
    """Ann's two jobs are 4 times as fast on the fast GPU, Bob's twice, and each has half of both GPUs.

    Bob takes all of the slow GPU (1.0) and needs a quarter of the fast one to do as much as before (1.5); Ann has the
    rest: 0.75 · 4 = 3.0 instead of 2.5.
    """
    found = problem([[4.0, 1.0]] * 2 + [[2.0, 1.0]] * 2, [1] * 4, [1, 1], [0, 0, 1, 1])
    alone = GandivaFair(trade=False).solve(found)
    assert alone == pytest.approx(np.full((4, 2), 0.25))
    before, after = ((found.speed * x).sum(axis=1) for x in (alone, GandivaFair().solve(found)))
    assert before == pytest.approx([1.25, 1.25, 0.75, 0.75])
    assert after == pytest.approx([1.5, 1.5, 0.75, 0.75], rel=1e-5)


def test_users_get_equal_time_whatever_they_submit() -> None:
    """Ann has six jobs, Bob one: on two GPUs Bob's runs all the time, and Ann's share the other."""
    jobs = [Job(f"ann{i}", 0, 3600, 1, user="ann") for i in range(6)] + [Job("bob", 0, 7200, 1, user="bob")]
    cluster = Cluster.uniform(1, 2)
    by_user = simulate(jobs, cluster, "gandiva-fair").jobs["finish_s"][-1]
    by_job = simulate(jobs, cluster, "gandiva-fair:by=job").jobs["finish_s"][-1]
    assert by_user == pytest.approx(7200, abs=400) and by_job > 1.5 * by_user


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="by must be"):
        create("gandiva-fair:by=team")
