"""Which jobs may run where: types, servers, queues, reservations, placers."""

from __future__ import annotations

import pytest
from audit import books, ends, simulate

from argosy.cluster.cluster import Cluster, Drain, Node, Queue, Reservation
from argosy.errors import ClusterError
from argosy.perf import gpus
from argosy.policies.fifo import FifoBackfill
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

IDEAL = Settings.ideal()


class SlowBackfill(FifoBackfill):
    """The same policy without the short-cuts of static policies."""

    name = "slow backfill"
    static = eager = False


def where(result: Result, job: int) -> list[tuple[int, int]]:
    """Return the nodes and devices of a job's first placement."""
    events = result.events.filter((result.events["job"] == job) & (result.events["kind"] == EventKind.START))
    return sorted(zip(events["node"].to_list(), events["devices"].to_list()))


def test_the_fastest_gpus_come_first() -> None:
    cluster = Cluster((Node("old", "k80", 2), Node("new", "v100", 2)))
    result = simulate([Job("a", 0, 1000, 2), Job("b", 0, 1000, 2)], cluster, "fifo", IDEAL)
    assert where(result, 0) == [(1, 3)] and where(result, 1) == [(0, 3)]
    faster = gpus.speed("v100") / gpus.speed("k80")  # durations are told for the cluster's first type
    assert ends(result)["a"] == pytest.approx(1000 / faster) and ends(result)["b"] == pytest.approx(1000)


def test_a_job_takes_only_types_it_accepts() -> None:
    cluster = Cluster((Node("old", "k80", 2), Node("new", "v100", 2)))
    jobs = [Job("a", 0, 100, 2, gpu_type="v100"), Job("b", 0, 100, 2, gpu_type="V100")]
    jobs.append(Job("c", 0, 100, 1, gpu_type="k80|v100"))
    result = simulate(jobs, cluster, "fifo-backfill", IDEAL)
    assert ends(result)["b"] == 200 and where(result, 2) == [(0, 1)]


@pytest.mark.parametrize("nodes, each, wanted", [(3, 3, 8), (3, 3, 7), (4, 3, 11), (5, 4, 18), (2, 3, 5), (6, 5, 28)])
def test_a_gang_that_fits_is_placed_whatever_is_left_over(nodes: int, each: int, wanted: int) -> None:
    """The remainder of a gang may have to sit on a node that is as roomy as the full ones."""
    for consolidation in ("soft", "strict"):
        settings = Settings.ideal(consolidation=consolidation)
        result = simulate([Job("a", 0, 100, wanted)], Cluster.uniform(nodes, each), "fifo", settings)
        assert result.jobs["status"].to_list() == ["completed"]


@pytest.mark.parametrize("policy", [FifoBackfill, SlowBackfill])
def test_strict_consolidation_does_not_hide_a_larger_gang(policy: type[FifoBackfill]) -> None:
    """With 3 + 2 GPUs free a job of 4 finds no node, but one of 5 may use two nodes and does."""
    jobs = [Job("gap", 0, 5, 3), Job("x", 0, 100, 1), Job("y", 0, 100, 2), Job("four", 1, 10, 4), Job("five", 2, 10, 5)]
    result = simulate(jobs, Cluster.uniform(2, 4), policy(), Settings.ideal(consolidation="strict"))
    assert where(result, 1) == [(0, 8)] and where(result, 2) == [(1, 3)]
    assert result.jobs["first_start_s"].to_list() == [0, 0, 0, 100, 5]


def test_parameter_servers_take_cpus_and_memory() -> None:
    """Two workers and two servers need four units of 2 CPUs: beside the workers there is room for one server."""
    cluster = Cluster((Node("a", gpus=2, cpus=6.0), Node("b", gpus=0, cpus=4.0)))
    seen: list[list[tuple[int, int]]] = []

    def watch(engine: Engine) -> None:
        assert books(engine) == []
        if len(engine.view.jobs):
            seen.append(sorted((p.node, p.servers) for p in engine.parts_of(0)))

    trace = Trace.of_jobs([Job("a", 0, 100, 2, cpus=4.0, memory_gib=1.0, ps=2)])
    Engine(trace, cluster, SlowBackfill(), Settings.ideal(perf="auto"), watch=watch).run()
    assert seen[0] == [(0, 1), (1, 1)]


def test_a_queue_never_exceeds_its_limit() -> None:
    cluster = Cluster((Node("a", gpus=8),), queues=(Queue("red", 0.0, 3.0),))
    jobs = [Job(f"r{i}", 0, 100, 1, queue="red") for i in range(5)] + [Job("b", 0, 100, 4, queue="blue")]
    result = simulate(jobs, cluster, "fifo-backfill", IDEAL)
    assert [ends(result)[f"r{i}"] for i in range(5)] == [100, 100, 100, 200, 200] and ends(result)["b"] == 100


def test_a_queue_borrows_beyond_its_quota_and_gives_back() -> None:
    """Blue uses all four GPUs while red is away; then red's two are its own, and blue's later job waits."""
    cluster = Cluster((Node("a", gpus=4),), queues=(Queue("red", 2.0), Queue("blue", 2.0)))
    jobs = [Job("b0", 0, 100, 2, queue="blue"), Job("b1", 0, 100, 2, queue="blue"), Job("r", 10, 50, 2, queue="red")]
    result = simulate(jobs, cluster, "fifo-backfill", IDEAL)
    assert ends(result) == {"b0": 100, "r": 60, "b1": 60 + 90}
    assert result.jobs["preemptions"].to_list() == [0, 1, 0]


def test_what_is_within_a_quota_is_not_taken() -> None:
    cluster = Cluster((Node("a", gpus=4),), queues=(Queue("red", 2.0), Queue("blue", 2.0)))
    jobs = [Job("b", 0, 100, 2, queue="blue"), Job("r0", 0, 100, 2, queue="red"), Job("r1", 10, 5, 2, queue="red")]
    result = simulate(jobs, cluster, "fifo-backfill", IDEAL)
    assert ends(result) == {"b": 100, "r0": 100, "r1": 105}


def test_a_reservation_sends_others_away_and_lets_its_own_in() -> None:
    cluster = Cluster((Node("a", gpus=1),), reservations=(Reservation(("a",), "red", 50.0, 80.0),))
    jobs = [Job("b", 0, 100, 1, queue="blue"), Job("r", 60, 10, 1, queue="red")]
    result = simulate(jobs, cluster, "srtf", IDEAL)
    assert ends(result) == {"r": 70, "b": 80 + 50}
    assert result.jobs["lost_gpu_s"].to_list() == [0, 0]


def test_reservations_may_follow_each_other_at_once() -> None:
    reservations = (Reservation(("a",), "red", 0.0, 50.0), Reservation(("a",), "blue", 50.0, 100.0))
    cluster = Cluster((Node("a", gpus=1),), reservations=reservations)
    result = simulate([Job("r", 10, 45, 1, queue="red"), Job("b", 20, 10, 1, queue="blue")], cluster, "srtf", IDEAL)
    assert ends(result) == {"b": 60, "r": 100 + 5}


def test_a_node_is_not_reserved_twice_at_the_same_time() -> None:
    reservations = (Reservation(("a",), "red", 0.0, 100.0), Reservation(("a",), "red", 20.0, 40.0))
    with pytest.raises(ClusterError, match="two at the same time"):
        Cluster((Node("a", gpus=1),), reservations=reservations)


def test_a_drained_node_finishes_what_it_runs_and_starts_nothing() -> None:
    cluster = Cluster((Node("a", gpus=1),), drains=(Drain(("a",), 5.0, 50.0),))
    jobs = [Job("runs", 0, 10, 1), Job("waits", 0, 10, 1)]
    assert ends(simulate(jobs, cluster, "fifo", IDEAL)) == {"runs": 10, "waits": 60}


def test_shares_of_a_device_are_filled_before_another_is_opened() -> None:
    result = simulate([Job(f"s{i}", 0, 10, 0.5) for i in range(3)], Cluster.uniform(1, 2), "fifo", IDEAL)
    assert [where(result, i) for i in range(3)] == [[(0, 1)], [(0, 1)], [(0, 2)]]


def test_islands_keep_a_gang_together() -> None:
    cluster = Cluster((Node("a", gpus=4, islands=(1, 3)),))
    result = simulate([Job("a", 0, 10, 2), Job("b", 0, 10, 1)], cluster, "fifo", IDEAL)
    assert where(result, 0) == [(0, 0b0110)]


@pytest.mark.parametrize(
    "placer, expected",
    [("consolidate", [(0, 3)]), ("spread", [(0, 1), (1, 1)]), ("first-fit", [(0, 3)]), ("rack-aware", [(0, 3)])],
)
def test_placers(placer: str, expected: list[tuple[int, int]]) -> None:
    result = simulate([Job("a", 0, 10, 2)], Cluster.uniform(2, 2), "fifo", Settings.ideal(placer=placer))
    assert where(result, 0) == expected


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_more_jobs_than_slots(policy: str) -> None:
    """The matrices grow during a run."""
    jobs = [Job(f"j{i:04}", 0, 10, 1) for i in range(3000)]
    assert simulate(jobs, Cluster.uniform(10, 10), policy, IDEAL).jobs["finish_s"].max() == 300


def test_a_type_that_could_never_hold_a_gang_strictly_is_not_waited_for() -> None:
    """Five v100s on four nodes hold no gang of four on two of them: it runs on the p100s."""
    nodes = (*(Node(f"v{i}", "v100", 1) for i in range(3)), Node("v3", "v100", 2), Node("p", "p100", 4))
    settings = Settings.ideal(consolidation="strict")
    result = simulate([Job("a", 0.0, 10.0, 4)], Cluster(nodes), "gavel-allox", settings)
    assert result.jobs["status"].to_list() == ["completed"]
