"""The messages that a planner receives, and the decisions that follow."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.cluster.view import Overhead, View
from argosy.errors import InputError
from argosy.live.backends.base import Part, Placement
from argosy.live.planner import planner as planner_module
from argosy.live.planner.messages import Account, Active, Ended, JobFacts, Report, Setup, Snapshot, Update
from argosy.live.planner.planner import Planner
from argosy.live.spec import JobSpec
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Policy
from argosy.sim.settings import Settings

PAIR = Cluster.uniform(1, 2)
FREE = Settings(min_run_s=0.0, overheads="none", perf="rigid")


def job(id: int, gpus: float = 1.0, at: float = 0.0, **more: object) -> Active:
    return Active(replace(JobFacts(id, gpus, at), **more))  # type: ignore[arg-type]


def planner(policy: str = "fifo", cluster: Cluster = PAIR, settings: Settings = FREE, **more: bool) -> Planner:
    return Planner(Setup(cluster, policy, settings, **more))


class ByPriority(Policy):
    """A policy that orders jobs by priority alone."""

    name = "by-priority"
    preemptive = True

    def rank(self, view: View) -> Floats:
        return np.asarray(-view.jobs.priority)


class NewestOnly(Policy):
    """A policy that plans: only the latest job runs."""

    name = "newest-only"
    uses = frozenset({"demand", "placement", "nodes"})

    def plan(self, view: View) -> Plan:
        plan = Plan.fresh(view)
        if len(view.jobs):
            newest = int(np.argmax(view.jobs.index))
            plan.run(newest, {0: int(view.jobs.gpus[newest])})
        return plan


BY_PRIORITY = f"{Path(__file__)}:ByPriority"


def test_nobody_ends_because_it_was_expected() -> None:
    made = planner()
    made.update(Update(0.0, (job(1, expected_s=10.0),)))
    assert set(made.update(Update(1000.0, ask=True)).running) == {1}
    assert not made.update(Update(1001.0, ended={1: "completed"})).running


@pytest.mark.parametrize("policy", ["fifo", "gandiva", "drf"])
def test_a_large_node_is_taken_over_device_by_device(policy: str) -> None:
    cluster = Cluster.uniform(1, 130)
    made = planner(policy, cluster)
    jobs = (job(1, 60.0), job(2, 60.0), job(3, 0.5), job(4, 60.0))
    running = made.update(Update(0.0, jobs)).running
    held = [device for id in (1, 2) for part in running[id].parts for device in part.devices]
    assert len(set(held)) == 120 and running[3].parts[0].devices[0] not in held
    after = Planner(Setup(cluster, policy, FREE), made.snapshot()).update(Update(1.0))
    assert after.running == running


def test_a_plan_for_a_large_node_is_guarded() -> None:
    made = planner(f"{Path(__file__)}:NewestOnly", Cluster.uniform(1, 130))
    made.update(Update(0.0, (job(1, 100.0, min_runtime_s=50.0),)))
    both = made.update(Update(10.0, (job(2, 20.0, 10.0),))).running
    assert set(both) == {1, 2} and both[2].parts[0].devices == tuple(range(100, 120))


def test_who_outlives_an_estimate_is_expected_to_need_as_much_again() -> None:
    made = planner("srtf", Cluster.uniform(1, 1))
    made.update(Update(0.0, (job(1, expected_s=10.0),)))
    taken = made.update(Update(100.0, (job(2, at=100.0, expected_s=50.0),)))  # the first has another 100 s to go
    assert set(taken.running) == {2}


def test_a_report_counts_more_than_an_estimate() -> None:
    made = planner("srtf", Cluster.uniform(1, 1))
    made.update(Update(0.0, (job(1, expected_s=10000.0),)))
    report = Report(1, progress=0.9, rate=0.01)  # ten more seconds
    stays = made.update(Update(90.0, (job(2, at=90.0, expected_s=50.0),), reports=(report,)))
    assert set(stays.running) == {1}
    again = made.update(Update(91.0, (job(3, at=91.0, expected_s=50.0),), reports=(Report(1, 0.1, 0.001),)))
    assert set(again.running) != {1}  # now it says that it has 900 s to go


def test_a_job_that_reports_its_progress_declares_its_work() -> None:
    """Policies that go by declared work then know it; before, nobody has declared anything."""
    made = planner("joint", Cluster.uniform(1, 2))
    made.update(Update(0.0, (job(1), job(2))))
    made.update(Update(90.0, reports=(Report(1, progress=0.9, rate=0.01),)))
    first, second = made._engine.jobs.declared_s[[made._row(1), made._row(2)]]
    assert first == pytest.approx(100.0) and np.isnan(second)


def test_a_users_estimate_is_declared_work_until_it_is_outlived() -> None:
    made = planner("joint", Cluster.uniform(1, 1))
    taken = made.update(Update(0.0, (job(1, expected_s=5000.0), job(2, expected_s=100.0), job(3))))
    assert set(taken.running) == {2}
    declared = made._engine.jobs.declared_s[[made._row(1), made._row(2), made._row(3)]]
    assert declared[:2].tolist() == [5000.0, 100.0] and np.isnan(declared[2])
    later = made.update(Update(9000.0))  # the second said 100 s: it no longer counts as nearly done
    assert 2 not in later.running


@pytest.mark.parametrize("exclusive", [False, True])
def test_bids_do_not_pack_jobs_that_want_their_gpus_for_themselves(exclusive: bool) -> None:
    made = planner("joint:pack=yes", Cluster.uniform(1, 1, "v100"), replace(FREE, perf="auto"))
    small = {"model": "cifar10", "cpus": 1.0, "memory_gib": 1.0}
    made.update(Update(0.0, (job(1, **small),)))
    taken = made.update(Update(10.0, (job(2, at=10.0, exclusive=exclusive, **small),)))
    assert set(taken.running) == ({1} if exclusive else {1, 2})


def test_where_estimates_come_from() -> None:
    made = planner("sjf", Cluster.uniform(1, 1))
    made.update(Update(0.0, (job(1, name="net-1", user="ann"), job(2, name="net-2", user="ann", expected_s=7.0))))
    made.update(Update(0.0, (job(3, name="net-3", user="ann"), job(4, user="bob"))))
    assert "a guess" in made.why([3])[3].evidence
    made.update(Update(120.0, ended={2: "completed"}))
    made.update(Update(120.0, (job(5, at=120.0, name="net-77", user="ann"), job(6, at=120.0, user="zoe", queue="new"))))
    told = made.why([5, 6])
    assert "00:02:00 (learned from the user's jobs of this name and size)" in told[5].evidence
    assert "00:02:00 (learned from all jobs that have ended)" in told[6].evidence
    made.update(Update(121.0, (job(7, at=121.0, expected_s=99.0),)))
    assert "00:01:39 (the user's estimate)" in made.why([7])[7].evidence


def test_a_new_planner_learns_from_the_database() -> None:
    ended = (Ended(JobFacts(1, 1.0, 0.0, user="ann"), 60.0), Ended(JobFacts(2, 1.0, 0.0, user="ann"), 60.0))
    made = Planner(Setup(Cluster.uniform(1, 1), "sjf", FREE), Snapshot(5.0, (job(3), job(4, user="ann")), ended))
    assert set(made.decide().running) == {3} or "00:01:00" in made.why([4])[4].evidence
    assert "00:01:00" in (made.why([3]) | made.why([4])).popitem()[1].evidence


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias-las"])
def test_jobs_that_wait_when_a_planner_takes_over_get_devices_of_their_own(policy: str) -> None:
    made = Planner(Setup(Cluster.uniform(1, 2), policy, FREE), Snapshot(5.0, (job(3), job(4), job(5))))
    running = made.decide().running
    assert sorted(part.devices for placement in running.values() for part in placement.parts) == [(0,), (1,)]


def test_reasons_name_jobs_by_their_numbers() -> None:
    made = planner()
    made.update(Update(0.0, (job(41, 2.0), job(42, 1.0), job(43, 1.0))))
    told = made.why([41, 42, 43, 99])
    assert told.keys() == {42, 43}
    assert told[42].category == "no-gpus" and "needs 1 GPU" in told[42].evidence
    assert told[42].behind == (41,) and "job 41" in told[42].change
    assert told[42].as_dict()["evidence"]["behind"] == [41]


def test_what_can_never_run_is_refused_and_the_rest_arrives() -> None:
    made = planner(cluster=Cluster((Node("a", "v100", 4, 8.0, 16.0), Node("b", "v100", 4, 8.0, 16.0))))
    jobs = (job(1, 9.0), job(2, gpu_types=("h100",)), job(3, 1.0, cpus=9.0), job(4, 8.0), job(5, 1.0, memory_gib=17.0))
    decision = made.update(Update(0.0, jobs))
    assert decision.refused.keys() == {1, 2, 3, 5} and set(decision.running) == {4}
    assert "asks for 9 GPUs" in decision.refused[1] and "h100" in decision.refused[2]
    assert not made.update(Update(1.0, (job(4, 8.0),))).refused  # told twice, known once


def test_a_drained_node_gets_nobody_new_and_a_lost_one_loses_all() -> None:
    made = planner(cluster=Cluster.uniform(2, 1))
    first = made.update(Update(0.0, (job(1),)))
    node = first.running[1].parts[0].node
    other = "n1" if node == "n0" else "n0"
    drained = made.update(Update(1.0, (job(2, at=1.0),), nodes={other: "draining"}))
    assert set(drained.running) == {1} and made.why([2])[2].category == "nodes-down"
    assert set(made.update(Update(2.0, nodes={node: "down"})).running) == set()
    back = made.update(Update(3.0, nodes={node: "up"}))
    assert back.running[1] == first.running[1]
    assert set(made.update(Update(4.0, nodes={other: "down"})).running) == {1}
    assert set(made.update(Update(5.0, nodes={other: "draining"})).running) == {1}
    assert set(made.update(Update(6.0, nodes={other: "up"})).running) == {1, 2}
    with pytest.raises(InputError, match="no node is named 'moon'"):
        made.update(Update(7.0, nodes={"moon": "up"}))


def test_who_falls_waits_again_and_who_is_withdrawn_is_gone() -> None:
    made = planner(cluster=Cluster.uniform(1, 1))
    made.update(Update(0.0, (job(1), job(2, at=1.0))))
    assert set(made.update(Update(5.0, stopped=(1, 77))).running) == {1}  # first come, first served again
    assert set(made.update(Update(6.0, ended={1: "withdrawn"})).running) == {2}
    account = Account(attained_gpu_s=6.0, executed_s=6.0, runs=2, faults=1, waiting_since_s=6.0)
    made.update(Update(8.0, (replace(job(1), account=account),)))
    assert set(made.update(Update(9.0, ended={2: "cancelled"})).running) == {1}


def test_service_before_a_wait_is_not_forgotten() -> None:
    made = planner("las", Cluster.uniform(1, 1))
    old = replace(job(1), account=Account(attained_gpu_s=5000.0, executed_s=5000.0, runs=1, waiting_since_s=9000.0))
    assert set(made.update(Update(9000.0, (old, job(2, at=8999.0)))).running) == {2}


def test_a_minimum_run_time_holds() -> None:
    made = planner(BY_PRIORITY, Cluster.uniform(1, 1))
    made.update(Update(0.0, (job(1, min_runtime_s=60.0),)))
    barred = made.update(Update(10.0, (job(2, at=10.0, priority=90.0),)))
    assert set(barred.running) == {1} and barred.wake_at_s == 60.0
    assert set(made.update(Update(60.0)).running) == {2}
    assert set(made.update(Update(61.0, priorities={1: 95.0})).running) == {1}


def test_a_minimum_run_time_holds_against_a_plan() -> None:
    made = planner(f"{Path(__file__)}:NewestOnly", Cluster.uniform(1, 3))
    assert set(made.update(Update(0.0, (job(1, min_runtime_s=60.0),))).running) == {1}
    assert set(made.update(Update(1.0, (job(2, at=1.0),))).running) == {1, 2}  # what it may do is done
    assert set(made.update(Update(2.0, (job(3, 2.0, at=2.0),))).running) == {1, 3}
    large = made.update(Update(3.0, (job(4, 3.0, at=3.0),)))
    assert set(large.running) == {1} and large.wake_at_s == 60.0
    assert set(made.update(Update(60.0)).running) == {4}


def test_among_equals_those_who_lose_least_are_taken() -> None:
    made = planner(BY_PRIORITY, Cluster.uniform(1, 3))
    made.update(Update(0.0, (job(1), job(2), job(3))))
    saved = (Report(1, checkpoint_s=10.0), Report(2, checkpoint_s=95.0), Report(3, checkpoint_s=50.0))
    urgent = job(4, at=100.0, priority=90.0)
    assert set(made.update(Update(100.0, (urgent,), reports=saved)).running) == {1, 3, 4}
    plain = planner(BY_PRIORITY, Cluster.uniform(1, 3), by_stake=False)
    plain.update(Update(0.0, (job(1), job(2), job(3))))
    assert set(plain.update(Update(100.0, (urgent,), reports=saved)).running) == {1, 2, 4}


def test_turns_are_taken_by_the_clock() -> None:
    made = planner("gandiva", Cluster.uniform(1, 1))
    made.update(Update(0.0, (job(1), job(2))))
    served: list[set[int]] = []
    now, wake = 0.0, made.decide().wake_at_s
    for _ in range(12):
        assert wake is not None and wake > now
        decision = made.update(Update(wake))
        now, wake = wake, decision.wake_at_s
        served.append({id for id, place in decision.running.items() if not place.paused})
        paused = [place for place in decision.running.values() if place.paused]
        assert all(place.parts == (Part("n0", (0,)),) for place in paused)
    assert {1} in served and {2} in served


def test_queue_limits_and_new_queues() -> None:
    cluster = Cluster(PAIR.nodes, queues=(Queue("small", limit_gpus=1.0),))
    made = planner(cluster=cluster)
    decision = made.update(Update(0.0, (job(1, queue="small"), job(2, queue="small"), job(3, queue="new"))))
    assert set(decision.running) == {1, 3} and made.why([2])[2].category == "quota"


def test_new_kinds_of_jobs_change_nothing_for_the_old_ones() -> None:
    made = planner("fifo-backfill", Cluster.uniform(2, 4), replace(FREE, perf="auto"))
    before = made.update(Update(0.0, tuple(job(i, 1.0 + i % 3) for i in range(1, 5)))).running
    new = (job(9, 1.0, 50.0, model="resnet50"), job(10, 1.0, 50.0, model="vgg16", queue="q", batch_size=64.0))
    after = made.update(Update(50.0, new)).running
    assert {id: after[id] for id in before} == dict(before)


def test_measured_costs_are_charged() -> None:
    made = planner("fifo", Cluster.uniform(1, 1), Settings(min_run_s=0.0, perf="rigid"))
    costs = {None: {"start": 3.0, "resize": 0.5}, "mine": {"start": 5.0, "unheard-of": 1.0}}
    made.update(Update(0.0, overheads=costs))
    made.update(Update(0.0, (job(1, expected_s=100.0),)))
    made.update(Update(10.0, reports=(Report(1),)))
    work = made.snapshot()
    assert work.jobs[0].account.attained_gpu_s == 10.0
    charged = made._engine.world.ov[0]  # the mean of those without a table of their own
    assert charged[L.O_START] == 4.0 and charged[L.O_RESIZE_COLD] == 0.5


def test_measured_costs_reach_policies_that_read_them() -> None:
    made = planner("joint", Cluster.uniform(1, 1), Settings(min_run_s=0.0, perf="rigid"))
    made.update(Update(0.0, (job(1, expected_s=100.0), job(2, expected_s=100.0))))

    def value_of_waiting() -> float:
        bids = made._engine.policy.bid(made._engine.view)
        assert bids is not None
        return float(bids.value[bids.job == made._row(2)][0])

    before = value_of_waiting()
    made.update(Update(0.0, overheads={None: {"start": 3.0, "resize": 0.5}}))
    assert made._engine.context.costs()[0, [Overhead.START, Overhead.RESIZE]].tolist() == [3.0, 0.5]
    assert value_of_waiting() > before  # a start costs less than was assumed


def test_losses_reach_policies_that_read_them() -> None:
    made = planner("optimus", Cluster.uniform(1, 4), replace(FREE, perf="auto"))
    made.update(Update(0.0, (job(1, 1.0, min_gpus=1.0, max_gpus=4.0), job(2, 1.0, min_gpus=1.0, max_gpus=4.0))))
    for epoch in range(1, 15):
        reports = (Report(1, progress=epoch / 20, epoch=epoch, loss=1 / epoch), Report(2, epoch=epoch, loss=5.0))
        made.update(Update(60.0 * epoch, reports=reports))
    told = made._engine.losses_of(made._row(1))
    assert told.epochs.tolist() == list(range(1, 15)) and told.losses[1] == 0.5
    assert set(made.update(Update(3600.0, ask=True)).running) == {1, 2}


def test_ended_jobs_are_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "MOST_ENDED", 50)
    made = planner("las")
    for i in range(1, 200):
        decision = made.update(Update(float(i), (job(i, at=float(i)),), {i - 2: "completed"} if i > 2 else {}))
        assert set(decision.running) <= {i, i - 1}
    assert len(made._engine.job_names) < 100


def test_a_memory_that_can_not_be_read_is_left_behind() -> None:
    policy = f"{Path(__file__).with_name('planner_policies.py')}:Forgetful"
    made = planner(policy)
    made.update(Update(0.0, (job(1), job(2), job(3))))
    taken_over = Planner(made.setup, made.snapshot())
    decision = taken_over.update(Update(1.0, ask=True))
    assert set(decision.running) == {1, 2} and "starts without it" in decision.notes[0]


def test_who_can_not_be_where_the_snapshot_says_waits() -> None:
    here = (Part("n0", (0,)),)
    jobs = tuple(
        replace(job(i), parts=where, started_s=1.0)
        for i, where in ((1, here), (2, here), (3, (Part("moon", (0,)),)), (4, (Part("n0", (1,)),)))
    )
    made = Planner(Setup(PAIR, "fifo", FREE), Snapshot(5.0, jobs))
    decision = made.decide()
    assert decision.running == {1: Placement(here), 4: Placement((Part("n0", (1,)),))}
    assert "2, 3" in decision.notes[0]


def test_what_can_never_run_is_refused_by_a_new_planner_too() -> None:
    jobs = (job(1), job(2, 3.0), job(3, gpu_types=("h100",)), job(4, cpus=1000.0))
    decision = Planner(Setup(PAIR, "fifo", FREE), Snapshot(5.0, jobs)).update(Update(6.0, ask=True))
    assert decision.refused.keys() == {2, 3, 4} and set(decision.running) == {1}


def test_packed_jobs_are_found_again() -> None:
    half = (Part("n0", (0,), 500),)
    jobs = tuple(replace(job(i), parts=half, started_s=1.0) for i in (1, 2))
    made = Planner(Setup(PAIR, "gandiva", FREE), Snapshot(5.0, jobs))
    assert made.decide().running.keys() == {1, 2}
    alone = made.update(Update(6.0, ended={2: "completed"})).running[1]
    assert sum(part.milli for part in alone.parts) == 1000


def test_a_cluster_without_gpus() -> None:
    made = planner(cluster=Cluster((Node("a", gpus=0, cpus=2.0),)))
    decision = made.update(Update(0.0, (job(1, 0.0, cpus=1.0), job(2, 0.0, cpus=2.0), job(3, 1.0))))
    assert decision.running == {1: Placement((Part("a", ()),))} and decision.refused.keys() == {3}
    assert made.why([2])[2].category in ("no-cpus", "no-gpus", "behind")
    assert Planner(made.setup, made.snapshot()).decide().running == decision.running


def test_shares_of_a_device_and_servers_survive_a_take_over() -> None:
    made = planner("fifo-backfill", Cluster.uniform(2, 2), replace(FREE, perf="auto"))
    small = {"cpus": 2.0, "memory_gib": 2.0}
    jobs = (
        job(1, 0.4, **small),
        job(2, 0.6, **small),
        job(3, 2.0, servers=2, model="resnet50", **small),
        job(4, 1.0, **small),
        job(5, 1.0, **small),
    )
    before = made.update(Update(0.0, jobs)).running
    assert before[1].parts == (Part(before[1].parts[0].node, before[2].parts[0].devices, 400),)
    assert sum(part.servers for part in before[3].parts) == 2
    snapshot = made.snapshot()
    assert Planner(made.setup, snapshot).decide().running == before
    assert Planner(made.setup, replace(snapshot, memory=None)).decide(ask=True).running == before


def test_facts_of_a_job_file() -> None:
    spec = JobSpec.model_validate(
        {"run": "python x.py", "resources": {"gpus": "2..8", "cpus_per_gpu": 3}, "min_runtime": "1m", "priority": 70}
    )
    facts = JobFacts.of(spec, 7, submitted_s=5.0, user="ann")
    assert (facts.gpus, facts.min_gpus, facts.max_gpus, facts.cpus, facts.memory_gib) == (2, 2, 8, 6, None)
    assert (facts.min_runtime_s, facts.priority, facts.deadline_s) == (60, 70, float("inf"))
    alone = JobSpec.model_validate({"run": "x", "resources": {"gpus": 0.5}, "exclusive": True})
    assert JobFacts.of(alone, 8, submitted_s=0.0).gpus == 1
    assert JobFacts.of(JobSpec.model_validate({"run": "x", "resources": {"gpus": 0}}), 9, submitted_s=0.0).cpus == 1


def test_of_a_range_one_size_is_asked_for() -> None:
    asks = JobSpec.model_validate({"run": "true", "resources": {"gpus": "1..4..8", "cpus_per_gpu": 3}})
    facts = JobFacts.of(asks, 8, submitted_s=9.0)
    assert (facts.gpus, facts.min_gpus, facts.max_gpus, facts.cpus) == (4, 1, 8, 12)


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ("4..1", "4..1 is not a range; write the smaller number first"),
        ("4..1..8", "4..1..8 is not a range; write the smaller number first"),
        ({"low": 1, "high": 8, "asks": 9}, "1..9..8 is not a range"),
        ("0..2", "0..2 is not a range; an elastic job keeps at least one GPU: write 1..2"),
        ({"low": 0.5, "high": 2}, "0.5..2 is not a range"),
        ("1.5", "1.5 is not a whole number of GPUs; only a share below 1 is allowed"),
        ({"low": 1, "high": 2.5}, "1..2.5 is not a whole number"),
        ("1..2..4..8", "not a number of GPUs, 0 to 4096; write 2, or 1..8"),
        ("-1", "not a number of GPUs"),
        ("nan", "not a number of GPUs"),
        ("5000", "not a number of GPUs, 0 to 4096"),
        ("", "not a number of GPUs"),
    ],
)
def test_numbers_of_gpus_that_make_no_sense(gpus: object, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        JobSpec.model_validate({"run": "true", "resources": {"gpus": gpus}})


def test_many_jobs_grow_the_tables() -> None:
    made = planner("las", Cluster.uniform(4, 8))
    for batch in range(6):
        made.update(Update(float(batch), tuple(job(1000 * batch + i, at=float(batch)) for i in range(1000))))
    assert len(made.decide().running) == 32
    ended = {i: "completed" for i in range(6000) if i % 2}
    assert len(made.update(Update(10.0, ended=ended)).running) == 32  # type: ignore[arg-type]
