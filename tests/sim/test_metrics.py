"""Each metric against figures worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_by_hand import HandJob, Stint, by_hand, list_scheduled

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.metrics import DEFINITIONS, metrics
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

TWO_BY_TWO = Cluster.uniform(2, 2)
# a runs at once, b is preempted for 3 s, c waits 4 s and fails, d never starts, e is too big, f withdrawn.
MIXED = [
    HandJob("a", 0.0, [Stint(0.0, 10.0, {0: [0, 1]})], gpus=2, alone_s=10.0),
    HandJob(
        "b",
        0.0,
        [Stint(0.0, 4.0, {1: [0, 1]}), Stint(7.0, 13.0, {1: [0, 1]})],
        gpus=2,
        alone_s=10.0,
        more={"preemptions": 1, "queue": "slow"},
    ),
    HandJob("c", 4.0, [Stint(8.0, 12.0, {0: [0]})], alone_s=4.0, status="failed"),
    HandJob("d", 6.0, alone_s=5.0, status="unfinished"),
    HandJob("e", 6.0, gpus=99.0, alone_s=5.0, status="refused"),
    HandJob("f", 1.0, alone_s=5.0, status="cancelled", more={"finish_s": 3.0}),
]


def test_every_metric_has_one_definition_and_a_value() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0))
    assert list(found) == list(DEFINITIONS)
    assert all(isinstance(value, float) for value in found.values())
    assert all(definition.text.endswith(".") and definition.unit for definition in DEFINITIONS.values())


def test_the_page_on_metrics_names_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name, definition in DEFINITIONS.items():
        assert f"| `{name}` | {definition.unit} |" in page, name
        assert definition.text in page, name


def test_outcomes_are_counted_and_nobody_is_lost() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0))
    outcomes = {"completed": 2, "failed": 1, "killed": 0, "cancelled": 1, "refused": 1, "unfinished": 1}
    assert {name: found[name] for name in outcomes} == outcomes
    assert found["jobs"] == sum(outcomes.values()) == 6


def test_completion_times_are_over_finished_jobs() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0))  # JCT: a 10, b 13, c 8
    assert found["jct_mean_s"] == pytest.approx(31 / 3)
    assert found["jct_p50_s"] == 10.0
    assert found["jct_p90_s"] == pytest.approx(10 + 0.8 * 3)
    assert found["jct_p99_s"] == pytest.approx(10 + 0.98 * 3)
    assert found["jct_floor_mean_s"] == pytest.approx((31 + 14) / 4)  # d is 14 s old when the run ends
    assert found["makespan_s"] == 13.0


def test_queueing_counts_the_pause_and_first_wait_does_not() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0))  # waited: a 0, b 3, c 4; at first: 0, 0, 4
    assert found["queueing_mean_s"] == pytest.approx(7 / 3)
    assert found["queueing_p50_s"] == 3.0
    assert found["queueing_p99_s"] == pytest.approx(3.98)
    assert found["first_wait_mean_s"] == pytest.approx(4 / 3)


def test_slowdown() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0))  # 1, 1.3, 2
    assert found["slowdown_mean"] == pytest.approx(4.3 / 3)
    assert found["slowdown_p99"] == pytest.approx(1.3 + 0.98 * 0.7)


def test_a_job_without_length_has_a_jct_but_no_slowdown() -> None:
    jobs = [HandJob("a", 0.0, [Stint(0.0, 0.0, {0: [0]})], alone_s=0.0)]
    found = metrics(by_hand(jobs, TWO_BY_TWO, end_s=5.0))
    assert found["jct_mean_s"] == 0.0
    assert math.isnan(found["slowdown_mean"]) and math.isnan(found["rho_max"])


def test_rho_when_two_jobs_share_what_each_could_fill() -> None:
    # Four GPUs, two jobs of four, one after the other. First: N = 2 for all of its life, share 2 GPUs, alone
    # on them 20 s, ρ = 10/20. Second: N = 2, then 1, on average 1.5; share 8/3, alone 15 s, ρ = 20/15.
    everything = {0: [0, 1], 1: [0, 1]}
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 10.0, everything)], gpus=4),
        HandJob("b", 0.0, [Stint(10.0, 20.0, everything)], gpus=4),
    ]
    found = metrics(by_hand(jobs, TWO_BY_TWO))
    assert found["rho_max"] == pytest.approx(4 / 3)
    assert found["rho_mean"] == pytest.approx((1 / 2 + 4 / 3) / 2)
    assert found["rho_over_1"] == 0.5


def test_rho_of_a_job_smaller_than_its_share_is_its_slowdown() -> None:
    jobs = [HandJob("a", 0.0, [Stint(5.0, 15.0, {0: [0]})], gpus=1, alone_s=10.0)]
    assert metrics(by_hand(jobs, TWO_BY_TWO))["rho_max"] == pytest.approx(1.5)


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_nobody_is_worse_off_where_nobody_waits(policy: str) -> None:
    lengths_s = (45.0, 60.0, 600.0, 7200.0)  # starting takes some 25 s
    jobs = [Job(f"j{i}", 30.0 * i, lengths_s[i % 4], 1 + i % 4) for i in range(60)]
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(40, 8), create(policy), Settings()).run()
    found = metrics(result)
    assert found["queueing_mean_s"] == 0.0 and found["overhead_gpu_h"] > 0.0
    assert found["rho_over_1"] == 0.0 and found["rho_max"] == pytest.approx(1.0)


def test_a_tenth_more_than_on_a_fair_share_is_worse_off_and_a_hundredth_is_not() -> None:
    jobs = [
        HandJob("late", 0.0, [Stint(10.0, 110.0, {0: [0]})], alone_s=100.0),
        HandJob("just", 0.0, [Stint(1.0, 101.0, {0: [1]})], alone_s=100.0),
    ]
    assert metrics(by_hand(jobs, TWO_BY_TWO))["rho_over_1"] == 0.5


def test_rho_gives_a_heavier_job_a_larger_share() -> None:
    # Weights 3 and 1 on four GPUs: fair shares 3 and 1. The heavy job wants 4; alone on 3: 40/3 s, ρ = 0.75.
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 10.0, {0: [0, 1], 1: [0, 1]})], gpus=4, more={"weight": 3.0}),
        HandJob("b", 0.0, status="unfinished"),
    ]
    assert metrics(by_hand(jobs, TWO_BY_TWO, end_s=10.0))["rho_max"] == pytest.approx(0.75)


def test_rho_of_a_job_without_gpus_is_its_slowdown() -> None:
    jobs = [HandJob("a", 0.0, [Stint(2.0, 12.0, {0: []})], gpus=0, alone_s=10.0)]
    assert metrics(by_hand(jobs, TWO_BY_TWO))["rho_max"] == pytest.approx(1.2)


def test_jain_index_between_queues() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0))
    x = (1 + 4 / 8) / 2, 10 / 13  # without a queue: a and c; queue slow: b
    assert found["queue_jain"] == pytest.approx(sum(x) ** 2 / (2 * sum(v * v for v in x)))


def test_utilisation_held_and_useful() -> None:
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 10.0, {0: [0, 1]})], gpus=2, more={"useful_gpu_s": 15.0}),
        HandJob("b", 5.0, [Stint(10.0, 20.0, {0: [0]}, milli=500)], gpus=0.5),
    ]
    found = metrics(by_hand(jobs, TWO_BY_TWO))
    assert found["utilisation_held"] == pytest.approx((20 + 5) / (4 * 20))
    assert found["utilisation_useful"] == pytest.approx((15 + 5) / (4 * 20))


def test_fragmentation_looks_only_while_somebody_waits() -> None:
    # b waits on [0, 10). Idle then: one GPU beside a on node 0, two on the empty node 1. Later nobody waits.
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 20.0, {0: [0]})]),
        HandJob("b", 0.0, [Stint(10.0, 20.0, {1: [0]})]),
    ]
    assert metrics(by_hand(jobs, TWO_BY_TWO))["fragmentation"] == pytest.approx(1 / 3)
    nobody_waits = [HandJob("a", 0.0, [Stint(0.0, 20.0, {0: [0]})])]
    assert math.isnan(metrics(by_hand(nobody_waits, TWO_BY_TWO))["fragmentation"])


def test_restarts_and_gpu_hours() -> None:
    jobs = [
        HandJob(
            "a",
            0.0,
            [Stint(0.0, 3600.0, {0: [0, 1]})],
            gpus=2,
            more={
                "preemptions": 1,
                "migrations": 2,
                "resizes": 3,
                "faults": 4,
                "useful_gpu_s": 3600.0,
                "overhead_gpu_s": 1800.0,
                "interference_gpu_s": 1440.0,
                "lost_gpu_s": 360.0,
            },
        ),
        HandJob("b", 0.0, [Stint(0.0, 3600.0, {1: [0]})]),
        HandJob("c", 0.0, gpus=99, status="refused"),
    ]
    found = metrics(by_hand(jobs, TWO_BY_TWO))
    assert found["restarts_per_job"] == 10 / 2
    counts = ("preemptions", "migrations", "resizes", "faults")
    assert [found[name] for name in counts] == [1, 2, 3, 4]
    hours = ("held_gpu_h", "useful_gpu_h", "overhead_gpu_h", "interference_gpu_h", "lost_gpu_h")
    assert [found[name] for name in hours] == pytest.approx([3.0, 2.0, 0.5, 0.4, 0.1])


def test_money_and_energy() -> None:
    cluster = Cluster(
        (
            Node("dear", gpus=2, price_per_hour=10.0, watts_idle=100.0, watts_busy=1100.0),
            Node("cheap", gpus=4, price_per_hour=2.0),
        )
    )
    jobs = [
        HandJob("a", 0.0, [Stint(0.0, 7200.0, {0: [0]})]),  # half of the dear node for two hours
        HandJob("b", 0.0, [Stint(0.0, 3600.0, {1: [0]})]),  # a quarter of the cheap one for one
    ]
    found = metrics(by_hand(jobs, cluster))
    assert found["cost_held"] == pytest.approx(10.0 + 0.5)
    assert found["cost_cluster"] == pytest.approx(24.0)
    assert found["energy_kwh"] == pytest.approx((100 * 2 + 1000 * 1) / 1000)  # two hours on, half of it busy
    bare = metrics(by_hand(jobs, TWO_BY_TWO))
    assert all(math.isnan(bare[name]) for name in ("cost_held", "cost_cluster", "energy_kwh"))


def test_deadlines() -> None:
    def job(name: str, deadline_s: float, status: str = "completed") -> HandJob:
        stints = [Stint(0.0, 10.0, {0: [0]})] if status == "completed" else []
        return HandJob(name, 0.0, stints, status=status, more={"deadline_s": deadline_s})

    jobs = [job("met", 10.0), job("missed", 9.0), job("late", 15.0, "unfinished")]
    jobs += [job("open", 99.0, "unfinished"), job("gone", 5.0, "cancelled")]
    jobs += [HandJob("none", 0.0, [Stint(0.0, 10.0, {0: [1]})])]
    assert metrics(by_hand(jobs, TWO_BY_TWO, end_s=20.0))["deadlines_met"] == pytest.approx(1 / 3)


def test_decision_latency() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0, decision_ns=[1000, 2000, 3000]))
    assert (found["decisions"], found["decision_p50_us"]) == (3, 2.0)
    assert found["decision_p99_us"] == pytest.approx(2.98)


def test_window_keeps_jobs_submitted_inside_and_averages_over_it() -> None:
    found = metrics(by_hand(MIXED, TWO_BY_TWO, end_s=20.0), window=(2.0, 6.0))  # only c
    assert found["jobs"] == 1
    assert found["jct_mean_s"] == 8.0
    assert found["utilisation_held"] == pytest.approx((4 * 2 + 2 * 2) / (4 * 4))  # 4 GPUs, from 4 s on 2
    assert found["held_gpu_h"] == pytest.approx(4 / 3600)


def test_an_empty_window_is_refused_and_one_without_jobs_gives_nan() -> None:
    result = by_hand(MIXED, TWO_BY_TWO, end_s=20.0)
    with pytest.raises(InputError, match=r"9\.\.9 s is empty"):
        metrics(result, window=(9.0, 9.0))
    found = metrics(result, window=(15.0, 16.0))
    assert found["jobs"] == 0
    assert all(math.isnan(found[name]) for name in ("jct_mean_s", "makespan_s", "restarts_per_job"))


@given(st.integers(0, 10_000))
def test_relations_that_always_hold(seed: int) -> None:
    result = list_scheduled("fifo", seed, jobs=30)
    found = metrics(result)
    assert found["jct_p50_s"] <= found["jct_p90_s"] <= found["jct_p99_s"] <= found["makespan_s"] + 1e-6
    assert found["queueing_mean_s"] == pytest.approx(found["first_wait_mean_s"], abs=1e-6)  # no preemptions
    assert found["rho_mean"] <= found["slowdown_mean"] + 1e-9
    assert found["slowdown_mean"] >= 1 - 1e-9
    assert 0 <= found["utilisation_useful"] <= found["utilisation_held"] + 1e-9 <= 1 + 2e-9
    assert 0 < found["queue_jain"] <= 1 + 1e-9
    offered_gpu_h = result.cluster.total_gpus * found["makespan_s"] / 3600
    assert found["held_gpu_h"] == pytest.approx(found["utilisation_held"] * offered_gpu_h)
