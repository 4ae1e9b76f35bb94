"""What starting, preempting, failing and cancelling cost, in numbers that a person can check."""

from __future__ import annotations

import math

import numpy as np
import pytest
from audit import ends, simulate

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.errors import TraceError
from argosy.perf.fluctuation import MachineSpeeds
from argosy.perf.overhead import Overheads
from argosy.seeding import stream
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job

ONE = Cluster.uniform(1, 1)
COST = Overheads.realistic()


def real(**changes: object) -> Settings:
    """Realistic overheads, no damping unless asked for."""
    return Settings(**{"perf": "rigid", "min_run_s": 0.0, **changes})  # type: ignore[arg-type]


def times(result: Result, kind: EventKind) -> list[float]:
    return result.events.filter(result.events["kind"] == kind)["t"].to_list()


def test_a_start_takes_its_time() -> None:
    job = simulate([Job("a", 0, 100, 2)], Cluster.uniform(1, 2), "fifo", real()).jobs.row(0, named=True)
    assert job["finish_s"] == COST.start_s + 100 == 125
    assert (job["held_gpu_s"], job["overhead_gpu_s"], job["useful_gpu_s"]) == (250, 50, 200)


def test_a_preemption_costs_a_suspend_and_a_resume() -> None:
    result = simulate([Job("long", 0, 1000, 1), Job("short", 200, 100, 1)], ONE, "srtf", real())
    long = result.jobs.row(0, named=True)
    assert ends(result)["short"] == 200 + 25 + 100
    assert long["finish_s"] == 325 + (5 + 25) + (1000 - 175)
    assert (long["overhead_gpu_s"], long["useful_gpu_s"], long["preemptions"]) == (55, 1000, 1)


def test_a_young_job_is_not_preempted_and_the_policy_is_woken_when_it_may_be() -> None:
    result = simulate([Job("long", 0, 1000, 1), Job("short", 200, 100, 1)], ONE, "srtf", real(min_run_s=300.0))
    assert times(result, EventKind.PREEMPT) == [300]
    assert ends(result) == {"short": 300 + 25 + 100, "long": 425 + 30 + (1000 - 275)}


def test_a_job_is_preempted_only_so_often() -> None:
    jobs = [Job("long", 0, 1000, 1), Job("first", 200, 100, 1), Job("second", 600, 100, 1)]
    assert ends(simulate(jobs, ONE, "srtf", real(max_preemptions=0)))["long"] == 1025
    once = simulate(jobs, ONE, "srtf", real(max_preemptions=1))
    assert times(once, EventKind.PREEMPT) == [200]
    assert ends(once) == {"first": 325, "long": 325 + 30 + 825, "second": 1180 + 125}
    assert times(simulate(jobs, ONE, "srtf", real()), EventKind.PREEMPT) == [200, 600]


@pytest.mark.parametrize("overheads", ["none", "realistic"])
def test_a_node_failure_takes_the_work_since_the_last_checkpoint(overheads: str) -> None:
    settings = Settings.ideal(overheads=overheads, node_mtbf_h=1.0, node_repair_h=0.1, checkpoint_every_s=600.0, seed=5)
    result = simulate([Job("a", 0, 20_000, 2)], Cluster.uniform(1, 2), "srtf", settings)
    start_s, resume_s = (COST.start_s, COST.resume_s) if overheads == "realistic" else (0.0, 0.0)
    begin, left, lost, faults = start_s, 20_000.0, 0.0, 0
    for down, up in zip(times(result, EventKind.NODE_DOWN), [*times(result, EventKind.NODE_UP), math.inf]):
        if begin + left <= down:
            break
        worked = max(down - begin, 0.0)
        saved = worked // 600.0 * 600.0
        lost, left, faults = lost + worked - saved, left - saved, faults + 1
        begin = up + resume_s
    job = result.jobs.row(0, named=True)
    assert faults >= 2 and job["faults"] == faults
    assert job["lost_gpu_s"] == pytest.approx(2 * lost)
    assert job["finish_s"] == pytest.approx(begin + left)


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "srtf", "las"])
def test_jobs_return_after_a_fault_whatever_the_policy(policy: str) -> None:
    settings = Settings.ideal(node_mtbf_h=1.0, node_repair_h=0.1, checkpoint_every_s=60.0, until_s=1e6)
    result = simulate([Job(f"j{i}", 60.0 * i, 5000, 1) for i in range(6)], Cluster.uniform(2, 1), policy, settings)
    assert result.jobs["faults"].sum() > 0
    assert set(result.jobs["status"]) == {"completed"}


def test_a_crash_is_final_after_so_many_retries() -> None:
    def crashes(max_retries: int) -> Result:
        settings = Settings.ideal(job_mtbf_h=0.2, max_retries=max_retries, checkpoint_every_s=100.0, seed=1)
        return simulate([Job("a", 0, 100_000, 1)], ONE, "fifo", settings)

    for retries in (0, 1, 3):
        result = crashes(retries)
        at = times(result, EventKind.CRASH)
        job = result.jobs.row(0, named=True)
        assert len(at) == retries and job["status"] == "failed" and job["faults"] == retries
        lost = sum((b - a) % 100.0 for a, b in zip([0.0, *at], at))  # it resumes at once
        assert job["lost_gpu_s"] == pytest.approx(lost)
        assert job["held_gpu_s"] == pytest.approx(job["finish_s"])


def test_cancelled_jobs_leave_whether_they_wait_or_run() -> None:
    jobs = [Job("runs", 0, 100, 1), Job("waits", 0, 100, 1), Job("next", 0, 10, 1)]
    result = simulate(jobs, ONE, "fifo", Settings.ideal(), {"runs": 30.0, "waits": 20.0})
    assert ends(result) == {"runs": 30, "waits": 20, "next": 40}
    assert result.jobs["status"].to_list() == ["cancelled", "cancelled", "completed"]


def test_a_job_cancelled_when_it_is_submitted_never_runs() -> None:
    result = simulate([Job("a", 5, 100, 1)], ONE, "fifo", Settings.ideal(), {"a": 5.0})
    assert result.jobs["status"].to_list() == ["cancelled"] and ends(result) == {"a": 5}


def test_a_run_may_be_cut_off() -> None:
    jobs = [Job("a", 0, 100, 1), Job("b", 10, 100, 1), Job("late", 60, 1, 1)]
    result = simulate(jobs, ONE, "fifo", Settings.ideal(until_s=50.0))
    assert result.end_s == 50 and result.jobs["held_gpu_s"].to_list() == [50, 0, 0]
    assert result.jobs["status"].to_list() == ["unfinished"] * 3
    assert ends(simulate(jobs, ONE, "fifo", Settings.ideal(until_s=100.0)))["a"] == 100


TOO_MUCH = {
    "GPUs": (Job("a", 0, 1, 3), ONE),
    "CPUs": (Job("a", 0, 1, 1, cpus=100.0), ONE),
    "memory": (Job("a", 0, 1, 0, memory_gib=1000.0), ONE),
    "a queue's limit": (Job("a", 0, 1, 2, queue="q"), Cluster((Node("n", gpus=4),), queues=(Queue("q", 0, 1.0),))),
    "servers": (Job("a", 0, 1, 1, cpus=1.0, ps=2), Cluster((Node("n", gpus=1, cpus=2.0),))),
}


@pytest.mark.parametrize("what", list(TOO_MUCH))
def test_a_job_that_can_never_run_is_an_error_or_refused(what: str) -> None:
    job, cluster = TOO_MUCH[what]
    with pytest.raises(TraceError, match="can never run"):
        simulate([job], cluster, "fifo", Settings(min_run_s=0.0, until_s=1e5))
    settings = Settings.ideal(perf="auto", oversized="skip", until_s=1e5)
    result = simulate([job, Job("b", 0, 10, 1)], cluster, "fifo", settings)
    assert result.jobs["status"].to_list() == ["refused", "completed"]


def test_a_share_too_small_to_count_does_not_corrupt_the_books() -> None:
    """Thousandths are the smallest share of a device."""
    jobs = [Job("a", 0, 10, 0.0004), Job("b", 0, 10, 0.0004), Job("c", 20, 10, 1)]
    try:
        result = simulate(jobs, ONE, "fifo-backfill", Settings.ideal(until_s=1000.0))
    except TraceError:
        return
    assert ends(result) == {"a": 10, "b": 10, "c": 30}


def test_estimates_decide_the_order() -> None:
    jobs = [Job(f"j{i}", 0, 100.0 + i, 1, user="u", expected_s=200.0 - i if i < 4 else None) for i in range(6)]

    def order(estimator: str) -> list[int]:
        result = simulate(jobs, ONE, "srtf", Settings.ideal(estimator=estimator, seed=3))
        assert times(result, EventKind.PREEMPT) == [] or estimator != "oracle"
        started: list[int] = np.argsort(result.jobs["first_start_s"].to_numpy(), kind="stable").tolist()
        return started

    assert order("oracle") == order("none") == [0, 1, 2, 3, 4, 5]
    assert order("user")[:4] == [3, 2, 1, 0]
    z = stream(3, "estimate.noisy").standard_normal(6)
    told = np.array([100.0 + i for i in range(6)]) * np.exp(0.5 * z)
    assert order("noisy:0.5")[0] == int(np.argmin(told))


def test_history_learns_from_what_has_finished() -> None:
    """Ann's jobs have been short and Bob's long: the next ones are told apart."""
    past = [Job(f"a{i}", 0, 10, 1, user="ann", name="x") for i in range(3)]
    past += [Job(f"b{i}", 0, 1000, 1, user="bob", name="y") for i in range(3)]
    later = [Job("bob", 20_000, 5, 1, user="bob", name="y"), Job("ann", 20_000, 5, 1, user="ann", name="x")]
    result = simulate([*past, *later], ONE, "srtf", Settings.ideal(estimator="history"))
    assert ends(result)["ann"] == 20_005 and ends(result)["bob"] == 20_010


def test_a_gang_runs_at_the_speed_of_its_slowest_machine() -> None:
    settings = Settings.ideal(drifting=True, seed=7)
    result = simulate([Job("a", 0, 5000, 2)], Cluster.uniform(2, 1, nodes_per_rack=1), "fifo", settings)
    speeds = MachineSpeeds(2, 7).speeds(0, 100).min(axis=1)  # a gang across racks is the request's own best
    done = np.concatenate([[0.0], np.cumsum(speeds * 600.0)])
    tick = int(np.searchsorted(done, 5000.0)) - 1
    job = result.jobs.row(0, named=True)
    assert job["finish_s"] == pytest.approx(600.0 * tick + (5000.0 - done[tick]) / speeds[tick])
    assert job["useful_gpu_s"] == pytest.approx(2 * 5000.0)
    assert job["interference_gpu_s"] == pytest.approx(2 * (job["finish_s"] - 5000.0))
