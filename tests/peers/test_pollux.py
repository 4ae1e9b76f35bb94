"""Pollux, and Tiresias and Optimus as Pollux' authors read them, take as long as in the authors' own simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pollux_rivals import CLOSE, PAIRS, TypeBlind, agreement, of_one_type

from argosy.cluster.cluster import Cluster, Node
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


@pytest.mark.slow(60)
@pytest.mark.parametrize(("policy", "workload"), PAIRS)
def test_mean_completion_time(policy: str, workload: str, shared_data: Path) -> None:
    found = agreement(str(shared_data), workload, policy, [0])
    assert abs(found["off"]) <= CLOSE, found


def test_of_a_mixed_allocation_a_job_keeps_the_type_of_which_it_has_most() -> None:
    of_type = np.array([0, 0, 1])
    assert of_one_type({0: 1, 1: 2, 2: 2}, of_type) == {0: 1, 1: 2}
    assert of_one_type({0: 1, 2: 4}, of_type) == {2: 4}
    assert of_one_type({}, of_type) == {}


def test_pollux_that_does_not_know_gpu_types_ends_all_jobs() -> None:
    cluster = Cluster((Node("a", "t4", 4), Node("b", "a100", 4), Node("c", "a100", 4)))
    jobs = [
        Job(f"j{i}", 50.0 * i, None, 1, model="cifar10", work=1e6, batch_size=128, max_batch=4096.0, max_gpus=8)
        for i in range(6)
    ]
    run = Engine(Trace.of_jobs(jobs), cluster, TypeBlind(), Settings(measurement_noise=0.0)).run()
    assert set(run.jobs["status"]) == {"completed"}
