"""Lyra gives back the servers that preempt fewest jobs, and shares out extra workers by a knapsack."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from by_hand import finish, simulate

from argosy.cluster.cluster import Cluster, Loan, Node
from argosy.errors import ClusterError, InputError
from argosy.policies.base import create
from argosy.policies.lyra.knapsack import choose
from argosy.policies.lyra.reclaim import Holder, cheapest, preemption_cost
from argosy.sim.result import EventKind
from argosy.workload.trace import Job

A, B, C = 0, 1, 2


def test_the_cost_of_a_server() -> None:
    """X is on both servers and Y only on B: A costs one half, B one and a half, and A goes back."""
    holders = {0: Holder({A: 4, B: 4}, 8), 1: Holder({B: 4}, 4)}
    assert [preemption_cost(server, holders) for server in (A, B)] == [0.5, 1.5]
    assert cheapest([A, B], 1, holders) == [A]
    assert sorted(cheapest([A, B], 2, holders)) == [A, B]


def test_a_job_that_is_lost_makes_its_other_servers_cheap() -> None:
    """X is on A and B, Y and Z on C: after A, B costs nothing more, although it is as full as before."""
    holders = {0: Holder({A: 2, B: 2}, 4), 1: Holder({C: 1}, 1), 2: Holder({C: 1}, 1)}
    assert cheapest([A, B, C], 2, holders) == [A, B]


def test_extra_workers_cost_nothing() -> None:
    """A job that needs 4 of its 8 GPUs shrinks, once: then it needs the rest."""
    holders = {0: Holder({A: 4, B: 4}, 4), 1: Holder({C: 1}, 1)}
    assert preemption_cost(A, holders) == 0
    assert cheapest([A, B, C], 2, holders)[0] in (A, B)
    assert preemption_cost(B, {0: Holder({B: 4}, 4)}) == 1


def test_the_knapsack_is_exact() -> None:
    """Three jobs and 4 GPUs, and random cases, against all combinations."""
    rng = np.random.default_rng(1)
    cases = [([(np.array([1, 2, 3]), np.array([5.0, 8.0, 9.0]))] * 3, 4)]
    for _ in range(30):
        groups = []
        for _ in range(int(rng.integers(1, 5))):
            count = int(rng.integers(1, 5))
            groups.append((np.sort(rng.integers(1, 6, count)), rng.uniform(-1, 9, count)))
        cases.append((groups, int(rng.integers(0, 12))))
    for groups, capacity in cases:
        best = 0.0
        for picks in itertools.product(*[range(-1, len(weights)) for weights, _ in groups]):
            taken = [(g, p) for g, p in zip(groups, picks) if p >= 0]
            if sum(int(weights[p]) for (weights, _), p in taken) <= capacity:
                best = max(best, sum(float(values[p]) for (_, values), p in taken))
        chosen = [(g, p) for g, p in zip(groups, choose(groups, capacity)) if p >= 0]
        assert sum(int(weights[p]) for (weights, _), p in chosen) <= capacity
        assert sum(float(values[p]) for (_, values), p in chosen) == pytest.approx(best)


def test_base_demands_come_before_extra_workers() -> None:
    """`long` has both GPUs until `short` arrives, then one; it gets the other back."""
    jobs = [Job("long", 0, 200, 1, min_gpus=1, max_gpus=2), Job("short", 20, 30, 1)]
    assert finish(simulate(jobs, Cluster.uniform(1, 2), "lyra")) == [115, 50]


LENT = Cluster(
    (Node("own", "v100", 2), Node("lent0", "v100", 2), Node("lent1", "v100", 2)),
    loans=(Loan(("lent0", "lent1"), "inference", (2, 1, 0), 100.0),),
)


@pytest.mark.parametrize("policy", ["lyra", "aryl", "srtf", "joint"])
def test_lent_nodes_go_back_on_time(policy: str) -> None:
    """From 0 to 100 s both nodes are lent, to 200 s one, to 300 s none; then it begins again."""
    jobs = [Job(f"j{i}", 0, 150, 2) for i in range(4)]
    result = simulate(jobs, LENT, policy)
    assert result.jobs["status"].to_list() == ["completed"] * 4
    lent, starts = {1: False, 2: False}, 0
    for event in result.events.iter_rows(named=True):
        if event["kind"] in (EventKind.NODE_RESERVE, EventKind.NODE_RELEASE):
            lent[event["node"]] = event["kind"] == EventKind.NODE_RELEASE
            assert sum(lent.values()) <= (2, 1, 0)[int(event["t"] // 100) % 3] or event["t"] % 100 == 0
        elif event["kind"] <= EventKind.RESIZE and event["node"] > 0:
            assert lent[event["node"]], "a job starts on a node that is not lent"
            starts += 1
    assert starts >= 2


def test_the_node_with_fewer_jobs_goes_back() -> None:
    """Four small jobs fill one lent node, a large one the other, which goes back; the own node is full."""
    cluster = Cluster(
        (Node("own", "v100", 4), Node("lent0", "v100", 4), Node("lent1", "v100", 4)),
        loans=(Loan(("lent0", "lent1"), "inference", (2, 1), 100.0),),
    )
    jobs = [Job("first", 0, 150, 4), *(Job(f"small{i}", 1 + i, 180, 2) for i in range(2)), Job("large", 5, 190, 4)]
    preempted = simulate(jobs, cluster, "lyra").jobs["preemptions"].to_list()
    assert preempted == [0, 0, 0, 1]


def test_elastic_jobs_shrink_when_nodes_go_back() -> None:
    """A job on two GPUs of two nodes that needs one goes on with one; nobody is preempted."""
    cluster = Cluster(
        (Node("own", "v100", 1), Node("lent", "v100", 1)), loans=(Loan(("lent",), "inference", (1, 0, 0, 0), 100.0),)
    )
    job = Job("elastic", 0, 400, 1, min_gpus=1, max_gpus=2)
    result = simulate([job], cluster, "lyra")
    resized = result.events.filter(result.events["kind"] == EventKind.RESIZE)
    assert set(resized["t"]) == {100.0} and set(resized["node"]) == {0}
    assert result.jobs["preemptions"].to_list() == [0] and finish(result)[0] >= 300


@pytest.mark.parametrize("spec", ["lyra:every_s=0", "lyra:reclaim=best", "lyra:every_s=-1"])
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match=spec[:4]):
        create(spec)


@pytest.mark.parametrize(
    ("loan", "text"),
    [
        (Loan(("other",), "q", (1,)), "other"),
        (Loan(("own",), "q", (2,)), "0..1"),
        (Loan(("own",), "q", ()), "counts"),
        (Loan(("own",), "q", (1,), 0.0), "step"),
    ],
)
def test_impossible_loans_are_refused(loan: Loan, text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        Cluster((Node("own"),), loans=(loan,))
