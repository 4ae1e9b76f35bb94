"""The demands of jobs, read from a view: every kind of job, and the limits of its size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from argosy import Cluster, Job, Settings, Trace
from argosy.mechanism.kernels import layout as L
from argosy.policies.base import Policy
from argosy.policies.common.demands import DemandReader, Demands
from argosy.sim.engine import Engine


class Looker(Policy):
    name = "looker"
    uses = frozenset({"demand", "placement", "nodes"})

    def rank(self, view: Any) -> Any:
        return view.jobs.submitted


MACHINES = Cluster.uniform(2, gpus=8, cpus=32, memory_gib=10)


def read(*jobs: Job, cap: int = 16, rows: list[int] | None = None) -> Demands:
    engine = Engine(Trace.of_jobs(list(jobs)), MACHINES, Looker(), Settings())
    engine.advance()
    return DemandReader(engine.context, cap).read(engine.view, np.array(rows or range(len(jobs))))


def test_gangs_shares_and_jobs_without_gpus() -> None:
    jobs = [Job("gang", 0, 60, gpus=4, cpus=8), Job("half", 0, 60, gpus=0.5, cpus=2), Job("cpu", 0, 60, gpus=0, cpus=6)]
    needs = read(*jobs)
    assert needs.low.tolist() == [4, 1, 1] == needs.high.tolist()
    assert needs.first[:2].T.tolist() == [[4, 8], [0.5, 2], [0, 6]]
    assert needs.servers.tolist() == needs.fixed.tolist() == [0, 0, 0]


def test_an_elastic_job_grows_by_workers() -> None:
    needs = read(Job("e", 0, 60, gpus=2, cpus=6, min_gpus=1, max_gpus=6))
    assert (needs.low[0], needs.high[0]) == (1, 6)
    assert needs.first[:2, 0].tolist() == needs.worker[:2, 0].tolist() == [1, 3]
    assert needs.server[:2, 0].tolist() == [0, 3]


@pytest.mark.parametrize(("cap", "cpus", "high"), [(16, 1, 12), (5, 1, 5), (16, 20, 2), (1, 1, 2)])
def test_what_bounds_the_largest_size(cap: int, cpus: int, high: int) -> None:
    """The limits are the job's own, the cap, and what empty nodes can hold; never less than its smallest size."""
    job = Job("e", 0, 60, gpus=2, cpus=2 * cpus, min_gpus=2, max_gpus=12)
    assert read(job, cap=cap).high.tolist() == [high]


def test_parameter_servers_are_granted_to_elastic_jobs_and_come_with_rigid_ones() -> None:
    kind = {"model": "resnet-50", "cpus": 2.0, "ps": 1}
    needs = read(Job("e", 0, 60, gpus=1, min_gpus=1, max_gpus=8, **kind), Job("r", 0, 60, gpus=1, **kind), cap=4)
    assert needs.fixed.tolist() == [0, 1]
    assert needs.servers.tolist() == [4, 0]
    assert needs.first[1].tolist() == [2, 4]


def test_rows_are_in_the_order_asked_for() -> None:
    jobs = [Job(f"j{i}", 0, 60, gpus=i + 1) for i in range(4)]
    assert read(*jobs, rows=[3, 1]).low.tolist() == [4, 2]


def test_what_is_there_and_what_is_free() -> None:
    trace = Trace.of_jobs([Job("a", 0, 60, gpus=3, cpus=5, memory_gib=1)])
    engine = Engine(trace, MACHINES, Looker(), Settings())
    demand_reader = DemandReader(engine.context, 16)
    engine.advance()
    engine.ask()
    engine.kernel(L.OP_ADMIT)
    np.testing.assert_allclose(demand_reader.there(engine.view), [16, 64, 20])
    np.testing.assert_allclose(demand_reader.free(engine.view), [13, 59, 19])
    engine.world.ni[L.N_STATE, 1] = 2  # down: it had nothing to do
    np.testing.assert_allclose(demand_reader.there(engine.view), [8, 32, 10])
    np.testing.assert_allclose(demand_reader.free(engine.view), [5, 27, 9])
