"""Each reason for waiting, shown on a small cluster of its own."""

from __future__ import annotations

from typing import ClassVar

import pytest

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.cluster.view import View
from argosy.errors import ArgosyError
from argosy.explain.pending import ExplainedEngine, Situation, reason, reasons
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.policies.base import Floats, Ints, Policy, Sizes, create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


def explain(
    jobs: list[Job], cluster: Cluster, policy: str | Policy, at: float, settings: Settings | None = None
) -> dict[str, Reason]:
    """Reasons of the waiting jobs, by id, at the decision at time `at`."""
    found: dict[str, Reason] = {}

    def look(engine: Engine) -> None:
        if engine.now == at:
            names = engine.trace.frame["job_id"]
            found.update({names[index]: why for index, why in reasons(engine).items()})

    chosen = create(policy) if isinstance(policy, str) else policy
    ExplainedEngine(Trace.of_jobs(jobs), cluster, chosen, settings or Settings.ideal(), watch=look).run()
    return found


LEAN = Cluster.uniform(2, 8, cpus=0.0, memory_gib=0.0)


def test_not_enough_gpus_and_the_estimate() -> None:
    jobs = [Job("a", 0.0, 50.0, 8), Job("b", 0.0, 5000.0, 6), Job("c", 1.0, 10.0, 4), Job("d", 2.0, 9.0, 2)]
    told = explain(jobs, LEAN, "fifo-backfill", 1.0)
    assert told["c"] == Reason(
        Why.NO_GPUS, "needs 4 GPUs; 2 free", "2 more free GPUs; first possible when b ends", (1,)
    )


def test_the_time_is_told_where_the_policy_may_know_it() -> None:
    jobs = [Job("a", 0.0, 3600.0, 16), Job("b", 1.0, 7200.0, 4)]
    told = explain(jobs, LEAN, "srtf", 1.0)
    assert told["b"].why is Why.OUTRANKED
    assert told["b"].evidence == "needs 4 GPUs; 0 free; 1 better ranked job holds 16"
    assert told["b"].remedy == "4 more free GPUs; first possible when a ends, at ~01:00:00 by the estimate"


def test_those_to_whom_the_clock_means_nothing_are_told_how_long_it_is() -> None:
    jobs = [Job("a", 0.0, 3600.0, 16), Job("b", 600.0, 7200.0, 4)]
    told: list[str] = []

    def look(engine: Engine) -> None:
        if engine.now == 600.0:
            told.append(Situation(engine, from_now=True).reason(1).remedy)

    ExplainedEngine(Trace.of_jobs(jobs), LEAN, create("srtf"), Settings.ideal(), watch=look).run()
    assert told == ["4 more free GPUs; first possible when a ends, in ~00:50:00 by the estimate"]


def test_fragmented() -> None:
    jobs = [Job("a", 0.0, 50.0, 5), Job("b", 0.0, 60.0, 4), Job("c", 1.0, 10.0, 6)]
    told = explain(jobs, LEAN, "fifo", 1.0, Settings.ideal(consolidation="strict"))
    assert told["c"] == Reason(
        Why.FRAGMENTED,
        "needs 6 GPUs on one node; 7 free in the cluster, at most 4 on one node",
        "2 more free GPUs on n1; first possible when b ends",
        (1,),
    )


def test_a_share_that_fits_on_no_device() -> None:
    cluster = Cluster((Node("n0", "gpu", 2, 8.0, 8.0),))
    jobs = [Job("a", 0.0, 50.0, 0.7), Job("b", 0.0, 60.0, 0.6), Job("c", 1.0, 10.0, 0.5)]
    told = explain(jobs, cluster, "fifo", 1.0)
    assert told["c"].why is Why.FRAGMENTED
    assert told["c"].evidence == "needs 0.5 of a GPU; at most 0.4 is free on one device"
    assert told["c"].remedy.startswith("0.1 more of one GPU free on n0; first possible when ")


@pytest.mark.parametrize(
    ("resource", "why", "missing"),
    [
        ({"cpus": 12.0}, Why.NO_CPUS, "6 more free CPUs on n0"),
        ({"memory_gib": 12.0}, Why.NO_MEMORY, "6 more free GiB on n0"),
    ],
)
def test_too_little_beside_the_gpus(resource: dict[str, float], why: Why, missing: str) -> None:
    cluster = Cluster((Node("n0", "gpu", 8, 16.0, 16.0),))
    free = {"cpus": 0.0, "memory_gib": 0.0}
    jobs = [
        Job("a", 0.0, 50.0, 1, **{**free, **dict.fromkeys(resource, 10.0)}),
        Job("b", 1.0, 10.0, 4, **{**free, **resource}),
    ]
    told = explain(jobs, cluster, "fifo", 1.0)
    assert told["b"].why is why
    assert "7 free, but with 3" in told["b"].evidence and "there is room for 2" in told["b"].evidence
    assert told["b"].remedy == f"{missing}; first possible when a ends"


def test_the_wrong_type() -> None:
    cluster = Cluster((Node("n0", "v100", 4), Node("n1", "k80", 8)))
    jobs = [Job("a", 0.0, 50.0, 3, gpu_type="v100"), Job("b", 1.0, 10.0, 2, gpu_type="v100")]
    told = explain(jobs, cluster, "fifo", 1.0)
    assert told["b"].why is Why.GPU_TYPE
    assert "1 free of an accepted type; free of others: 8 k80" in told["b"].evidence
    assert told["b"].remedy.startswith("accepting k80, or 1 more free GPU")


def test_behind_a_head_that_does_not_fit() -> None:
    jobs = [Job("a", 0.0, 50.0, 8), Job("b", 1.0, 50.0, 12), Job("c", 2.0, 5.0, 2), Job("d", 3.0, 5.0, 16)]
    told = explain(jobs, LEAN, "fifo", 3.0)
    assert told["b"].why is Why.NO_GPUS
    assert told["c"].why is Why.BEHIND and told["c"].behind == (1,)
    assert told["c"].evidence.startswith("number 2 of 3 that wait; b at the head needs 12 GPUs; 8 free")
    assert told["c"].evidence.endswith("this job itself would fit")
    assert told["d"].evidence.endswith("this job itself would not fit")


def test_victims_within_their_minimum_run_time() -> None:
    jobs = [Job("long", 0.0, 5000.0, 16), Job("short", 10.0, 20.0, 4)]
    told = explain(jobs, LEAN, "srtf", 10.0, Settings.ideal(min_run_s=300.0))
    assert told["short"].why is Why.NO_GPUS
    held_up = "1 lower ranked job with 16 GPUs may not be taken before 00:05:00 (minimum run time of long)"
    assert held_up in told["short"].evidence
    assert told["short"].remedy == "4 more free GPUs; first possible when long may be taken, at 00:05:00"


def test_the_limit_of_a_queue() -> None:
    cluster = Cluster(LEAN.nodes, queues=(Queue("q", limit_gpus=8.0),))
    jobs = [Job("a", 0.0, 50.0, 6, queue="q"), Job("b", 1.0, 10.0, 4, queue="q")]
    told = explain(jobs, cluster, "fifo", 1.0)
    assert told["b"] == Reason(
        Why.QUOTA,
        "needs 4 GPUs; queue 'q' holds 6 of at most 8",
        "2 GPUs less in use by queue 'q', or a limit of 10",
        (0,),
    )


def test_reserved_nodes() -> None:
    cluster = Cluster(LEAN.nodes, reservations=(Reservation(("n1",), "vip", 0.0, 7200.0),))
    jobs = [Job("a", 0.0, 9000.0, 6), Job("b", 1.0, 10.0, 4)]
    told = explain(jobs, cluster, "fifo", 1.0)
    assert told["b"].why is Why.RESERVED
    assert told["b"].evidence == "needs 4 GPUs; 2 free on open nodes; n1 is reserved for 'vip'"
    assert told["b"].remedy.startswith("n1 open again (reserved until 02:00:00), or 2 more free GPUs on n0")


def test_nodes_that_are_down() -> None:
    told: list[Reason] = []

    def look(engine: Engine) -> None:
        told.extend(reasons(engine).values())

    rules = Settings.ideal(node_mtbf_h=0.1, node_repair_h=0.1, until_s=5000.0)
    jobs = [Job("all", 0.0, 1e6, 16)]
    Engine(Trace.of_jobs(jobs), LEAN, create("fifo"), rules, watch=look).run()
    assert told and {t.why for t in told} == {Why.NODES_DOWN}
    names = {t.remedy for t in told}
    assert names <= {"n0 open again", "n1 open again", "n0 and n1 open again"}


class Stingy(Policy):
    """A policy that gives the second job nothing."""

    name: ClassVar[str] = "stingy"

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted

    def size(self, view: View) -> Sizes:
        wants: Ints = view.jobs.gpus.astype(int) * (view.jobs.index != 1)
        return Sizes(wants)


def test_a_policy_that_gives_nothing() -> None:
    jobs = [Job("a", 0.0, 50.0, 4), Job("b", 1.0, 10.0, 4)]
    told = explain(jobs, LEAN, Stingy(), 1.0, Settings.ideal(until_s=60.0))
    assert told["b"] == Reason(Why.POLICY, "stingy gives it 0 GPUs; 12 GPUs free")


class Planner(Policy):
    """A policy that runs the first job only, and gives a reason in one of two cases."""

    name: ClassVar[str] = "planner"

    def plan(self, view: View) -> Plan:
        plan = Plan.keep(view)
        for row, index in enumerate(view.jobs.index):
            if index == 0:
                plan.run(row, {0: 4})
            elif index == 1:
                plan.reasons[row] = Reason(Why.POLICY, "its sibling does better", behind=(0,))
        return plan


def test_the_plans_own_reasons_come_first() -> None:
    jobs = [Job("a", 0.0, 50.0, 4), Job("b", 1.0, 10.0, 4), Job("c", 1.0, 10.0, 4), Job("d", 1.0, 10.0, 16)]
    told = explain(jobs, LEAN, Planner(), 1.0, Settings.ideal(until_s=60.0))
    assert told["b"] == Reason(Why.POLICY, "its sibling does better", behind=(0,))
    assert told["c"].evidence == "it would fit (12 GPUs free), but the plan of planner leaves it out"
    assert told["d"].why is Why.NO_GPUS and told["d"].behind == (0,)


def test_only_waiting_jobs_have_reasons() -> None:
    def look(engine: Engine) -> None:
        with pytest.raises(ArgosyError, match="'a' does not wait"):
            reason(engine, 0)

    trace = Trace.of_jobs([Job("a", 0.0, 50.0, 4)])
    Engine(trace, LEAN, create("srtf"), Settings.ideal(), watch=lambda e: e.now or look(e)).run()
    with pytest.raises(ArgosyError, match="watched"):
        reasons(Engine(trace, LEAN, create("fifo"), Settings.ideal()))
