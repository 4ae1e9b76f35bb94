"""Plans obey minimum run times, leases and limits of queues: what conflicts with them waits, and the plan says why."""

from __future__ import annotations

import pytest

from argosy.cluster.cluster import Cluster, Queue
from argosy.cluster.view import INFORMATION, View
from argosy.explain.pending import ExplainedEngine, reasons
from argosy.mechanism.plan import Plan, Why
from argosy.policies.base import Policy
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


class NewestFirst(Policy):
    """Runs as many of the newest jobs as fit, and nothing else; it may give each job a lease."""

    name = "newest-first"
    uses = frozenset(INFORMATION)

    def __init__(self, gpus: int, lease_s: float = 0.0) -> None:
        self.gpus, self.lease_s = gpus, lease_s

    def plan(self, view: View) -> Plan:
        plan, left = Plan.fresh(view), self.gpus
        for row in sorted(range(len(view.jobs)), key=lambda row: -view.jobs.submitted[row]):
            asked = int(view.jobs.gpus[row])
            if asked <= left:
                left -= asked
                plan.run(row, {0: asked})
                if self.lease_s and view.jobs.state[row] == 0:
                    plan.leases[row] = view.now + self.lease_s
        return plan


def run(jobs: list[Job], cluster: Cluster, policy: Policy, settings: Settings) -> tuple[list[float], list[str]]:
    """Return when each job first started, and every reason that was given."""
    told: list[str] = []

    def watch(engine: ExplainedEngine) -> None:
        told.extend(str(reason) for reason in engine.given.values())

    engine = ExplainedEngine(Trace.of_jobs(jobs), cluster, policy, settings, watch=watch)  # type: ignore[arg-type]
    return engine.run().jobs["first_start_s"].to_list(), told


@pytest.mark.parametrize("lease_s, min_run_s, starts_at", [(0.0, 0.0, 10.0), (0.0, 30.0, 30.0), (50.0, 30.0, 50.0)])
def test_a_job_that_may_not_be_stopped_stays(lease_s: float, min_run_s: float, starts_at: float) -> None:
    jobs = [Job("young", 0, 100, 2), Job("newer", 10, 100, 2)]
    policy, settings = NewestFirst(2, lease_s), Settings.ideal(min_run_s=min_run_s)
    starts, told = run(jobs, Cluster.uniform(1, 2), policy, settings)
    assert starts == [0, starts_at]
    assert any("may not be stopped yet" in reason for reason in told) == (starts_at > 10)


def test_what_does_not_conflict_is_carried_out() -> None:
    """Of the three GPUs the young job keeps two; the other old job makes way, and what fits beside it starts."""
    jobs = [Job("old", 0, 100, 1), Job("young", 20, 100, 2), Job("small", 30, 100, 1), Job("large", 30, 100, 2)]
    starts, _ = run(jobs, Cluster.uniform(1, 3), NewestFirst(3), Settings.ideal(min_run_s=15.0))
    assert starts == [0, 20, 30, 35]


def test_a_job_is_not_preempted_more_often_than_the_run_allows() -> None:
    jobs = [Job("stays", 0, 100, 2), Job("newer", 10, 100, 2)]
    starts, _ = run(jobs, Cluster.uniform(1, 2), NewestFirst(2), Settings.ideal(max_preemptions=0))
    assert starts == [0, 100]


def test_a_start_beyond_the_limit_of_its_queue_waits() -> None:
    cluster = Cluster(Cluster.uniform(1, 8).nodes, queues=(Queue("red", 0.0, 3.0), Queue("blue", 0.0)))
    jobs = [Job("a", 0, 50, 2, queue="red"), Job("b", 10, 50, 2, queue="red"), Job("c", 10, 50, 2, queue="blue")]
    engine = ExplainedEngine(Trace.of_jobs(jobs), cluster, NewestFirst(8), Settings.ideal(), watch=lambda engine: None)
    for _ in range(2):
        assert engine.advance()
        engine.ask()
        engine.apply()
    assert engine.jobs.held.tolist() == [2, 0, 2]
    assert reasons(engine)[1].why is Why.QUOTA
    assert engine.run().jobs["first_start_s"].to_list() == [0, 50, 10]
