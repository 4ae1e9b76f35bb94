"""KAI divides GPUs between queues as its source does, and takes back what queues have beyond their share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from by_hand import finish, simulate, starts

from argosy.cluster.cluster import Cluster, Queue
from argosy.errors import ClusterError, InputError
from argosy.policies.base import create
from argosy.policies.kai.shares import Claims, divide, down_the_tree
from argosy.workload.trace import Job


def claims(want: list[float], quota: list[float], weight: list[float], **more: list[float]) -> Claims:
    priority = np.array(more.get("priority", [0.0] * len(want)))
    return Claims(np.array(want), np.array(quota), np.array(weight), priority, np.array(more.get("usage", [])))


THREE = ([10.0, 10, 1], [2.0, 2, 3], [1.0, 2, 1])


@pytest.mark.parametrize(
    ("total", "found", "shares"),
    [
        (10, claims(*THREE), [4, 5, 1]),
        (10, claims(*THREE, usage=[0.5, 0.1, 0.0]), [3, 6, 1]),
        (10, claims(*THREE, priority=[0.0, 1, 0]), [2, 7, 1]),
        (12, claims([10.0, 10, 2], [0.0] * 3, [1.0, 1, 2]), [5, 5, 2]),
        (5, claims([5.0] * 3, [0.0] * 3, [1.0] * 3, priority=[1.0, 1, 0]), [2, 2, 1]),
        (16, claims([16.0, 16], [0.0, 0], [1.0, 1], usage=[1.0, 0.0]), [0, 16]),
    ],
)
def test_shares(total: float, found: Claims, shares: list[float]) -> None:
    assert divide(total, found).tolist() == shares


def test_children_share_what_their_parent_is_due() -> None:
    """Two departments with equal weights; the first has two teams with weights 3 and 1."""
    found = claims([8.0, 8, 8, 8], [0.0] * 4, [1.0, 1, 3, 1])
    assert down_the_tree(8, found, np.array([-1, -1, 0, 0])).tolist() == [4, 4, 3, 1]


def cluster(gpus: int, *queues: Queue) -> Cluster:
    return Cluster(Cluster.uniform(1, gpus).nodes, queues=queues)


def test_a_queue_takes_back_its_share_and_no_more() -> None:
    """`a` has all 10 GPUs; `b` has a weight of its own and takes back 5 of them, job by job."""
    jobs = [Job(f"a{i}", 0, 1000, 1, queue="a") for i in range(10)]
    jobs += [Job(f"b{i}", 10, 1000, 1, queue="b") for i in range(8)]
    result = simulate(jobs, cluster(10, Queue("a"), Queue("b")), "kai:window_s=0")
    assert starts(result)[10:].count(10) == 5
    assert result.jobs["preemptions"].sum() == 5


def test_a_quota_comes_before_weights() -> None:
    """`b` may always use 4 of 6 GPUs, whatever its weight."""
    jobs = [Job(f"a{i}", 0, 1000, 1, queue="a") for i in range(6)]
    jobs += [Job(f"b{i}", 10, 1000, 1, queue="b") for i in range(6)]
    found = simulate(jobs, cluster(6, Queue("a", weight=100), Queue("b", quota_gpus=4)), "kai:window_s=0")
    assert starts(found)[6:].count(10) == 4


def test_idle_gpus_are_lent() -> None:
    jobs = [Job(f"a{i}", 0, 100, 1, queue="a") for i in range(6)]
    assert starts(simulate(jobs, cluster(6, Queue("a", 1), Queue("b", 5)), "kai")) == [0] * 6


def test_a_queue_that_had_much_comes_last() -> None:
    """One GPU: `a` had it all the time, so `b`'s job comes before `a`'s, which was submitted earlier."""
    jobs = [
        Job("a0", 0, 1000, 1, queue="a"),
        Job("a1", 10, 100, 1, queue="a"),
        Job("b0", 20, 100, 1, queue="b"),
    ]
    with_usage = simulate(jobs, cluster(1, Queue("a"), Queue("b")), "kai:window_s=2000:against_usage=10")
    assert starts(with_usage)[2] < starts(with_usage)[1]


def test_priority_counts_inside_a_queue() -> None:
    """A job of higher priority stops one of its own queue; one of priority 100 is never stopped."""
    for priority, preempted in ((10.0, 1), (100.0, 0)):
        jobs = [Job("first", 0, 100, 2, priority=priority), Job("urgent", 10, 50, 2, priority=90.0)]
        result = simulate(jobs, Cluster.uniform(1, 2), "kai")
        assert result.jobs["preemptions"][0] == preempted
        assert finish(result) == ([150, 60] if preempted else [100, 150])


def test_jobs_move_together_for_a_gang() -> None:
    jobs = [Job(f"j{i}", 0, 10 if i % 2 else 100, 1) for i in range(4)] + [Job("gang", 20, 50, 2)]
    nodes = Cluster.uniform(2, 2)
    result = simulate(jobs, nodes, "kai")
    assert starts(result)[4] == 20 and result.jobs["migrations"].sum() in (0, 1)


@pytest.mark.parametrize("spec", ["window_s=-1", "half_life_s=-1", "most_moves=-1", "reclaim_multiplier=0.5"])
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="kai"):
        create(f"kai:{spec}")


@pytest.mark.parametrize(
    ("queues", "text"),
    [([Queue("a", parent="b")], "no parent 'b'"), ([Queue("a", parent="b"), Queue("b", parent="a")], "below itself")],
)
def test_impossible_trees_are_refused(queues: list[Queue], text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        cluster(1, *queues)
