"""Tetris: the aligned job first, the short one first, and DL2's sign."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import simulate, starts, view_of

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.tetris import Tetris
from argosy.workload.trace import Job

CLUSTER = Cluster((Node("n", gpus=4, cpus=16, memory_gib=64),))


def test_the_aligned_job_comes_first() -> None:
    # beside `running` 1/4 of the GPUs, 12/16 of the CPUs and 32/64 of the memory are free
    jobs = [
        Job("running", 0, 10, 3, cpus=4, memory_gib=32),
        Job("lean", 1, 5, 1, cpus=2, memory_gib=4),  # 1/4·1/4 + 3/4·1/8 + 1/2·1/16 = 0.1875
        Job("hungry", 1, 5, 1, cpus=12, memory_gib=4),  # 1/4·1/4 + 3/4·3/4 + 1/2·1/16 = 0.656
        Job("roomy", 1, 5, 1, cpus=2, memory_gib=32),  # 1/4·1/4 + 3/4·1/8 + 1/2·1/2 = 0.406
    ]
    # one GPU is free: hungry 1–6; then, at 6, roomy 6–11; lean when `running` ends at 10
    assert starts(simulate(jobs, CLUSTER, "tetris:weight=0")) == [0, 10, 1, 6]


def test_of_equals_the_short_one_comes_first() -> None:
    jobs = [Job("a", 0, 10, 4), Job("long", 1, 9, 4), Job("short", 2, 3, 4)]
    assert starts(simulate(jobs, CLUSTER, "tetris")) == [0, 13, 10]
    assert starts(simulate(jobs, CLUSTER, "tetris:weight=0")) == [0, 10, 19]


def test_the_score_by_hand() -> None:
    columns = {
        "gpus": [2.0, 4.0],
        "cpus": [8.0, 4.0],
        "memory_gib": [16.0, 16.0],
        "expected_left_s": [10.0, 30.0],
    }
    policy = Tetris(weight=2.0)
    nodes = {"free": np.array([4]), "free_cpus": np.array([8.0]), "free_memory_gib": np.array([32.0])}
    key = policy.rank(view_of(policy, CLUSTER, columns, nodes=nodes))
    # free (1, 1/2, 1/2); demands (1/2, 1/2, 1/4), (1, 1/4, 1/4)
    a = np.array([0.5 + 0.25 + 0.125, 1 + 0.125 + 0.125])
    p = np.array([1.25 * 10, 1.5 * 30])
    assert key == pytest.approx(-(a - 2.0 * a.mean() / p.mean() * p))


def test_dl2_adds_what_is_left_instead() -> None:
    columns = {"gpus": [2.0, 2.0], "cpus": [4.0, 4.0], "memory_gib": [16.0, 16.0]}
    columns |= {"done_s": [9.0, 5.0], "declared_s": [10.0, 50.0]}
    policy = create("tetris:dl2=true")
    nearly_done, hardly_begun = policy.rank(view_of(policy, CLUSTER, columns))
    # alignment 1/2 + 1/4 + 1/4 = 1 = size: −(1 + 0.1) against −(1 + 0.9)
    assert (nearly_done, hardly_begun) == pytest.approx((-1.1, -1.9))
    assert policy.uses == {"demand", "nodes", "progress", "declared"}


def test_jobs_without_an_estimate_count_as_the_longest() -> None:
    columns = {
        "gpus": [1.0] * 3,
        "cpus": [1.0] * 3,
        "memory_gib": [1.0] * 3,
        "expected_left_s": [5.0, np.inf, 50.0],
    }
    policy = Tetris()
    short, unknown, long = policy.rank(view_of(policy, CLUSTER, columns))
    assert short < unknown == long
    jobs = [Job("a", 0, 10, 4), Job("b", 0, 10, 4)]
    assert starts(simulate(jobs, CLUSTER, "tetris", estimator="none")) == [0, 10]


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(InputError, match="weight"):
        create("tetris:weight=-1")
