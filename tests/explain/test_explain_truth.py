"""Explanations are true on random workloads: the mechanism itself is asked whether they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from trial import starts

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.cluster.view import WHOLE
from argosy.explain.change import Change, smallest_change
from argosy.explain.pending import Situation, reasons
from argosy.mechanism.plan import Why
from argosy.mechanism.supply import Supply
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

machines = st.tuples(
    st.sampled_from([2, 4, 8]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([8.0, 16.0, 32.0]),
    st.sampled_from([32.0, 64.0]),
)
jobs = st.builds(
    Job,
    job_id=st.just(""),
    submit_s=st.integers(0, 40),
    duration_s=st.integers(1, 60),
    gpus=st.sampled_from([0, 0.25, 0.5, 1, 1, 2, 3, 4, 5, 8, 10]),
    gpu_type=st.sampled_from([None, None, "a", "b"]),
    cpus=st.sampled_from([None, None, 2.0, 6.0, 24.0]),
    memory_gib=st.sampled_from([None, 20.0]),
    queue=st.sampled_from(["p", "q"]),
    ps=st.sampled_from([None, None, None, 2]),
)
policies = st.sampled_from(["fifo", "fifo-backfill", "srtf", "las:quantum_s=7", "drf"])
QUEUES = (Queue("p", quota_gpus=4.0), Queue("q", limit_gpus=12.0))


def build(nodes: list[tuple[int, str, float, float]], *, queues: bool, reserved: bool) -> Cluster:
    named = [Node(f"n{i}", kind, gpus, cpus, memory) for i, (gpus, kind, cpus, memory) in enumerate(nodes)]
    named += [Node("z0", "a", 8, 32.0, 64.0), Node("z1", "b", 8, 32.0, 64.0)]
    booked = (Reservation(("z0",), "p", 10.0, 60.0),) if reserved else ()
    return Cluster(tuple(named), queues=QUEUES if queues else (), reservations=booked)


def after(change: Change, supply: Supply) -> Supply:
    """Return the supply after a change."""
    devices, cpus, memory = supply.devices.copy(), supply.cpus.copy(), supply.memory.copy()
    for node, count in change.gpus.items():
        taken = np.flatnonzero(devices[: supply.gpus[node], node] < WHOLE)
        devices[taken[:count], node] = WHOLE
    for node, milli in change.milli.items():
        devices[int(devices[: supply.gpus[node], node].argmax()), node] += milli
    for node, more in change.cpus.items():
        cpus[node] += more
    for node, more in change.memory_gib.items():
        memory[node] += more
    return replace(supply, devices=devices, cpus=cpus, memory=memory)


def trace_of(drawn: list[Job]) -> Trace:
    complete = [replace(job, job_id=f"j{i}") for i, job in enumerate(drawn)]
    complete = [j if j.gpus else replace(j, cpus=j.cpus or 4.0, ps=None, gpu_type=None) for j in complete]
    elastic = {job.job_id for job in complete if job.gpus > 2 and job.duration_s and job.duration_s > 40}
    return Trace.of_jobs(replace(j, min_gpus=2.0) if j.job_id in elastic else j for j in complete)


class Judge:
    """Checks waiting jobs after every decision."""

    def __init__(self) -> None:
        self.seen: list[Why] = []

    def __call__(self, engine: Engine) -> None:
        situation = Situation(engine)
        told = reasons(engine)
        assert set(told) == {int(situation.ids[row]) for row in situation.waiting()}
        for row in situation.waiting()[:4]:
            finding, reason = situation.finding(row), told[int(situation.ids[row])]
            self.seen.append(reason.why)
            fits_now = situation.supply.fits(finding.demand)
            assert fits_now == starts(engine, row, finding.demand), str(reason)
            assert "did not when its turn came" not in reason.evidence, "a job that fits must not wait"
            if reason.why in (Why.BEHIND, Why.QUOTA, Why.POLICY) or not finding.empty:
                continue
            assert not fits_now
            changed = smallest_change(finding.supply, finding.demand, finding.rules)
            assert after(changed, finding.supply).fits(finding.demand), str(reason)
            displaced = [r for r in range(situation.active) if finding.displaced[r]]
            blocking = [int(engine.world.so[index]) for index in reason.behind]
            assert starts(engine, row, finding.demand, [*displaced, *blocking]), str(reason)
            for spared in blocking:
                rest = [*displaced, *(r for r in blocking if r != spared)]
                assert not starts(engine, row, finding.demand, rest), f"{spared} is not needed: {reason}"


@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    nodes=st.lists(machines, max_size=3),
    drawn=st.lists(jobs, min_size=4, max_size=14),
    policy=policies,
    consolidation=st.sampled_from(["soft", "strict"]),
    min_run_s=st.sampled_from([0.0, 9.0]),
    queues=st.booleans(),
    reserved=st.booleans(),
    failing=st.booleans(),
)
def test_every_reason_is_true(
    nodes: list[tuple[int, str, float, float]],
    drawn: list[Job],
    policy: str,
    consolidation: str,
    min_run_s: float,
    queues: bool,
    reserved: bool,
    failing: bool,
) -> None:
    rules = Settings.ideal(
        consolidation=consolidation,
        min_run_s=min_run_s,
        oversized="skip",
        until_s=200.0,
        node_mtbf_h=0.02 if failing else None,
        node_repair_h=0.003,
    )
    cluster = build(nodes, queues=queues, reserved=reserved)
    Engine(trace_of(drawn), cluster, create(policy), rules, watch=Judge()).run()


def test_the_judge_has_something_to_judge() -> None:
    judge = Judge()
    queue = [Job(f"j{i}", float(i), 50.0, 8) for i in range(6)]
    Engine(Trace.of_jobs(queue), Cluster.uniform(2, 8), create("srtf"), Settings.ideal(), watch=judge).run()
    assert judge.seen.count(Why.OUTRANKED) > 5


def test_no_smaller_change_would_do() -> None:
    """One GPU less than promised, and the gang does not fit."""

    def look(engine: Engine) -> None:
        situation = Situation(engine)
        for row in situation.waiting():
            finding = situation.finding(row)
            change = smallest_change(finding.supply, finding.demand)
            node, count = next(iter(change.gpus.items()))
            less = replace(change, gpus={**change.gpus, node: count - 1})
            assert after(change, finding.supply).fits(finding.demand)
            assert not after(less, finding.supply).fits(finding.demand)
            checked.append(sum(change.gpus.values()))

    checked: list[int] = []
    queue = [Job("a", 0.0, 60.0, 3), Job("b", 0.0, 90.0, 6), Job("c", 1.0, 10.0, 8), Job("d", 2.0, 10.0, 16)]
    for consolidation in ("soft", "strict"):
        rules = Settings.ideal(consolidation=consolidation)
        trace, cluster = Trace.of_jobs(queue), Cluster.uniform(2, 8, cpus=0.0, memory_gib=0.0)
        Engine(trace, cluster, create("fifo-backfill"), rules, watch=look).run()
    assert {1, 3, 9} <= set(checked)
