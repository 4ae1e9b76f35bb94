"""A gang that a host starts on nodes of its choice."""

from __future__ import annotations

import pytest

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.cluster.view import View
from argosy.errors import InvalidPlan
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Policy
from argosy.sim.engine import Engine
from argosy.sim.gang_start import start_gang
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


class Arrivals(Policy):
    """Is asked at every event; its answers are not carried out."""

    name = "arrivals"

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted


def begun(*jobs: Job, queues: tuple[Queue, ...] = ()) -> Engine:
    """Return an engine on three nodes of four GPUs in which all jobs have arrived."""
    cluster = Cluster(tuple(Node(name, "a", 4, 8.0) for name in "xyz"), queues=queues)
    engine = Engine(Trace.of_jobs(list(jobs)), cluster, Arrivals(), Settings.ideal())
    while engine.advance() and len(engine.view.jobs) < len(jobs):
        pass
    return engine


def start(engine: Engine, row: int, taken: dict[int, int]) -> bool:
    return start_gang(engine, row, list(taken.items()))


@pytest.mark.parametrize(
    ("job", "taken"),
    [
        (Job("wide", 0, 100, 6), {0: 4, 2: 2}),
        (Job("share", 0, 100, 0.25), {1: 1}),
        (Job("cpus", 0, 100, 0, cpus=2), {2: 0}),
    ],
)
def test_it_is_what_a_plan_would_do(job: Job, taken: dict[int, int]) -> None:
    one, other = begun(job), begun(job)
    assert start(one, 0, taken)
    plan = Plan.keep(other.view)
    plan.run(0, taken)
    other.decide(plan)
    assert one.parts_of(0) == other.parts_of(0) != []
    assert one.result().events.equals(other.result().events)


def test_a_job_that_does_not_fit_is_refused() -> None:
    engine = begun(Job("a", 0, 100, 3), Job("b", 0, 100, 2))
    assert start(engine, 0, {0: 3})
    with pytest.raises(InvalidPlan, match=r"'b' does not fit on these nodes \(GPUs by node\): \{0: 2\}"):
        start(engine, 1, {0: 2})


def test_a_job_that_runs_is_not_started_again() -> None:
    engine = begun(Job("a", 0, 100, 2))
    assert start(engine, 0, {0: 2})
    with pytest.raises(InvalidPlan, match="'a' cannot be started: it does not wait"):
        start(engine, 0, {1: 2})


def test_a_job_waits_while_its_queue_is_at_its_limit() -> None:
    jobs = [Job(name, 0, 100, 2, queue="q") for name in "ab"]
    engine = begun(*jobs, queues=(Queue("q", limit_gpus=3),))
    assert start(engine, 0, {0: 2})
    assert not start(engine, 1, {1: 2})
    assert engine.jobs.held.tolist() == [2, 0]
