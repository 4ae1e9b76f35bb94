"""Bids that know machines: where winners are placed, who moves to faster machines, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import View
from argosy.errors import InvalidPlan
from argosy.mechanism.bids import Bids
from argosy.policies.base import Policy
from argosy.sim.engine import Engine
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


class Believer(Policy):
    """Bids one for each job at the size that it asks for; its belief about machines is what the test says it is."""

    name = "believer"
    preemptive = True
    uses = frozenset({"demand", "placement", "nodes"})

    def __init__(self, speed: list[float], least_gain: float, later: list[float] | None = None) -> None:
        self.speed, self.least_gain, self.later = speed, least_gain, later

    def bid(self, view: View) -> Bids:
        n = len(view.jobs)
        speed = self.later if self.later and view.now >= 100 else self.speed
        sizes = view.jobs.gpus.astype(np.int64)
        gain = np.full(n, self.least_gain)
        return Bids(np.arange(n), np.zeros(n, np.int64), sizes, np.ones(n), speed=np.array(speed), least_gain=gain)

    def wake_at(self, view: View) -> float | None:
        return 100.0 if view.now < 100 else None


def nodes_of(jobs: list[Job], cluster: Cluster, policy: Believer, until: float) -> dict[int, set[int]]:
    """Return the nodes on which jobs run after all decisions up to a time."""
    engine = Engine(Trace.of_jobs(jobs), cluster, policy, Settings.ideal())
    found: dict[int, set[int]] = {}
    while engine.advance() and engine.now <= until:
        engine.ask()
        engine.apply()
        found = {int(j): {p.node for p in engine.jobs.parts(row)} for row, j in enumerate(engine.jobs.index)}
    return found


def test_a_winner_goes_to_the_machine_that_is_believed_to_be_fastest() -> None:
    jobs = [Job("a", 0, 5000, 2)]
    for fast in range(3):
        speed = [1.0, 1.0, 1.0]
        speed[fast] = 1.5
        assert nodes_of(jobs, Cluster.uniform(3, 4), Believer(speed, 9.0), 50) == {0: {fast}}


def test_a_gang_on_several_nodes_avoids_the_rack_with_a_slow_machine() -> None:
    """Four GPUs need two nodes; the first rack has a machine at half speed."""
    nodes = [Node(f"n{i}", "v100", 2, 8.0, rack=f"r{i // 2}") for i in range(4)]
    assert nodes_of([Job("a", 0, 5000, 4)], Cluster(tuple(nodes)), Believer([1, 0.5, 0.9, 0.9], 9.0), 50) == {0: {2, 3}}


@pytest.mark.parametrize(("least_gain", "node"), [(1.5, 1), (2.5, 0)])
def test_a_running_job_moves_if_the_other_machine_is_faster_by_enough(least_gain: float, node: int) -> None:
    """Its machine slows down by half at 100 s, so that the other one is twice as fast."""
    policy = Believer([1.0, 0.9], least_gain, later=[0.5, 1.0])
    assert nodes_of([Job("a", 0, 5000, 2)], Cluster.uniform(2, 2), policy, 150) == {0: {node}}


def test_a_move_is_in_the_log_and_nobody_is_preempted_for_it() -> None:
    jobs = [Job("a", 0, 5000, 2), Job("b", 0, 5000, 2)]
    result = simulate(Trace.of_jobs(jobs), Cluster.uniform(3, 2), Believer([1, 1, 0.5], 1.2, [0.4, 1, 0.9]))
    assert result.jobs["migrations"].to_list() == [1, 0]
    assert result.jobs["preemptions"].to_list() == [0, 0]


@pytest.mark.parametrize("speed", [[1.0], [1.0, 0.0], [1.0, float("nan")]])
def test_impossible_beliefs_are_refused(speed: list[float]) -> None:
    with pytest.raises(InvalidPlan, match="speed must"):
        simulate(Trace.of_jobs([Job("a", 0, 100, 1)]), Cluster.uniform(2, 2), Believer(speed, 1.1))
