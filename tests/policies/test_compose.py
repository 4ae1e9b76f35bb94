"""Policies that choose nodes themselves: a small one, end to end, and the corner cases of the walk."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from by_hand import finish, first_places, gpus_by_node, simulate, starts
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.cluster.view import View
from argosy.errors import InvalidPlan
from argosy.mechanism.compose import compose
from argosy.mechanism.plan import Plan, Why
from argosy.policies.base import Policy
from argosy.sim.check import check_policy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

Ints = NDArray[np.int64]


def anywhere(view: View, row: int, gpus: int, free: Ints) -> Mapping[int, int] | None:
    """Choose nodes from the last one backwards."""
    chosen = {}
    for node in range(len(free) - 1, -1, -1):
        here = min(gpus, int(free[node]))
        if here:
            chosen[node] = here
            gpus -= here
    return chosen


def not_on_node_zero(view: View, row: int, gpus: int, free: Ints) -> Mapping[int, int] | None:
    """Put the whole job on one node, but never on the first."""
    for node in range(1, len(free)):
        if free[node] >= gpus:
            return {node: gpus}
    return None


class Composed(Policy):
    """First come, first served, on nodes that the policy chooses."""

    name = "composed"
    uses = frozenset({"demand", "placement", "nodes"})

    def __init__(
        self,
        place: Callable[[View, int, int, Ints], Mapping[int, int] | None] = anywhere,
        *,
        strict: bool = False,
        preempts: bool = False,
        sizes: Callable[[View], Ints] | None = None,
    ) -> None:
        self.place, self.strict, self.preempts, self.sizes = place, strict, preempts, sizes
        self.plans: list[Plan] = []

    def plan(self, view: View) -> Plan:
        key = -view.jobs.priority  # higher priority first; ties by arrival
        sizes = self.sizes(view) if self.sizes else None
        plan = compose(view, key, self.place, sizes=sizes, preemptive=self.preempts, backfill=not self.strict)
        self.plans.append(plan)
        return plan


def test_a_policy_that_avoids_node_zero() -> None:
    jobs = [Job(f"j{i}", i, 10, gpus) for i, gpus in enumerate((2, 1, 2, 1))]
    result = simulate(jobs, Cluster.uniform(3, 2), Composed(not_on_node_zero))
    # j0 n1, j1 n2, j2 waits (n0 is empty, n2 has one GPU), j3 n2; at 10 j2 on n1
    assert gpus_by_node(result) == {"j0": {1: 2}, "j1": {2: 1}, "j2": {1: 2}, "j3": {2: 1}}
    assert starts(result) == [0, 1, 10, 3]


def test_it_keeps_the_contract() -> None:
    assert check_policy(Composed()).decisions > 0
    assert check_policy(Composed(preempts=True)).unread == ()


def test_strict_order_blocks_and_says_so() -> None:
    jobs = [Job("a", 0, 10, 1), Job("wide", 1, 5, 2), Job("small", 2, 4, 1)]
    two = Cluster.uniform(1, 2)
    strict = Composed(strict=True)
    assert finish(simulate(jobs, two, strict)) == [10, 15, 19]
    assert finish(simulate(jobs, two, Composed())) == [10, 15, 6]
    waiting = next(plan for plan in strict.plans if len(plan.reasons) == 2)
    assert [reason.why for reason in waiting.reasons.values()] == [Why.NO_GPUS, Why.BEHIND]
    assert waiting.reasons[2].behind == (1,)


def test_better_jobs_take_from_the_last_and_no_more_than_needed() -> None:
    jobs = [
        Job("low", 0, 10, 2, priority=10),
        Job("lower", 0, 10, 2, priority=5),
        Job("high", 2, 3, 2, priority=90),
    ]
    result = simulate(jobs, Cluster.uniform(2, 2), Composed(preempts=True))
    # `lower` goes for 2–5 and resumes: 13; `low` is left alone
    assert finish(result) == [10, 13, 5]
    assert result.jobs["preemptions"].to_list() == [0, 1, 0]
    assert finish(simulate(jobs, Cluster.uniform(2, 2), Composed())) == [10, 10, 13]


def test_nobody_is_taken_off_in_vain() -> None:
    jobs = [
        Job("low", 0, 10, 1, priority=5),
        Job("vip", 0, 10, 1, priority=99),
        Job("wide", 1, 2, 2, priority=50),
    ]
    result = simulate(jobs, Cluster.uniform(1, 2), Composed(preempts=True))
    # wide needs both GPUs and vip is not to be had: low runs on
    assert finish(result) == [10, 10, 12]


def test_sizes_grow_and_shrink_what_runs() -> None:
    def halves(view: View) -> Ints:
        return np.full(len(view.jobs), 4 // max(len(view.jobs), 1))

    jobs = [Job("a", 0, 16, 1, min_gpus=1, max_gpus=4), Job("b", 2, 4, 1, min_gpus=1, max_gpus=4)]
    result = simulate(jobs, Cluster.uniform(1, 4), Composed(sizes=halves))
    # a alone on 4: 8 of 16 by 2; then 2 + 2: b ends at 4, a has 4 left, on 4 GPUs: 5
    assert finish(result) == [5, 4]
    assert result.jobs["resizes"].to_list() == [2, 0]


def test_size_zero_means_not_now() -> None:
    def only_the_last(view: View) -> Ints:
        return np.where(view.jobs.index == view.jobs.index.max(initial=0), 1, 0)

    jobs = [Job("a", 0, 4, 1), Job("b", 1, 2, 1)]
    result = simulate(jobs, Cluster.uniform(1, 2), Composed(sizes=only_the_last))
    assert finish(result) == [6, 3]


def test_shares_meet_on_one_device_and_cpu_jobs_need_none() -> None:
    jobs = [
        Job("half", 0, 9, 0.5),
        Job("other", 1, 9, 0.5),
        Job("third", 2, 9, 0.5),
        Job("cpu", 3, 9, 0, cpus=1),
    ]
    result = simulate(jobs, Cluster.uniform(2, 1, cpus=64), Composed())
    # half of n1, then its other half; then n0; a CPU-only job where fewest GPUs are free, of equals the first
    assert first_places(result) == {
        "half": {1: (1, 500)},
        "other": {1: (1, 500)},
        "third": {0: (1, 500)},
        "cpu": {0: (0, 1000)},
    }


@pytest.mark.parametrize("sizes", [(1, 0.25), (2,)], ids=["a-gpu-and-a-share", "all-gpus"])
def test_a_device_whose_last_share_leaves_is_free_for_anybody(sizes: tuple[float, ...]) -> None:
    def without_the_first(view: View) -> Ints:
        return np.where((view.jobs.index == 0) & (len(view.jobs) > 1), 0, np.ceil(view.jobs.gpus)).astype(np.int64)

    jobs = [Job("share", 0, 9, 0.5), *(Job(f"next-{gpus:g}", 1, 4, gpus) for gpus in sizes)]
    result = simulate(jobs, Cluster.uniform(1, 2), Composed(sizes=without_the_first))
    assert starts(result) == [0, *(1 for _ in sizes)]  # the share makes way for them at 1 …
    assert finish(result) == [13, *(5 for _ in sizes)]  # … and resumes at 5


def test_types_reservations_cpus_and_servers_need_no_attention() -> None:
    nodes = (Node("a", "a100", 2, cpus=8), Node("b", "t4", 2, cpus=8), Node("c", "t4", 2, cpus=8))
    reserved = (Reservation(("c",), "vip", 0.0, 100.0),)
    cluster = Cluster(nodes, queues=(Queue("vip"),), reservations=reserved)
    jobs = [
        Job("t4", 1, 5, 1, gpu_type="t4", cpus=2, memory_gib=1),
        Job("vip", 1, 5, 2, queue="vip", gpu_type="t4", cpus=4, memory_gib=1),
        Job("big", 1, 5, 1, gpu_type="t4", cpus=5, memory_gib=1),
        Job("ps", 1, 5, 1, gpu_type="a100", cpus=2, memory_gib=1, ps=2),
    ]
    result = simulate(jobs, cluster, Composed(), perf="ps")
    # every job has a server beside each worker (`ps` two), which takes CPUs like a worker. t4 must not use c;
    # vip may; big finds a GPU on b, but 4 CPUs beside t4's worker and server, and its worker needs 5: it waits
    places = gpus_by_node(result)
    assert places["t4"] == {1: 1} and places["vip"] == {2: 2} and places["ps"] == {0: 1}
    begun = starts(result)
    assert begun[0] == begun[1] == begun[3] == 1 and begun[2] > 1
    assert None not in result.jobs["finish_s"].to_list()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({0: 1}, "that is not 2 GPUs"),
        ({0: 1, 7: 1}, "there is no node 7"),
        ({0: 3, 1: -1}, "node"),
        ({1: 2}, "there is no node 1 for it"),
    ],
)
def test_impossible_places_are_refused_with_a_message(answer: dict[int, int], problem: str) -> None:
    nodes = (Node("a", "a100", 2), Node("b", "t4", 4))
    policy = Composed(lambda view, row, gpus, free: answer)
    engine = Engine(Trace.of_jobs([Job("j", 0, 5, 2, gpu_type="a100")]), Cluster(nodes), policy, Settings.ideal())
    with pytest.raises(InvalidPlan, match=problem):
        engine.run()
