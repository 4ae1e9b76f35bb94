"""Dominant resource fairness: the paper's example, weights, bundles, slots; filling against a slow twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import finish, jct, simulate, starts, view_of
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.common.filling import fill, fill_singly
from argosy.policies.drf import Drf
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Ghodsi et al.: 9 CPUs and 18 GB (no GPUs); a task of A takes <1, 4>, one of B <3, 1>
CAPACITY = np.array([0.0, 9.0, 18.0])
TASKS = np.array([[0.0, 0.0], [1.0, 3.0], [4.0, 1.0]])
MANY = np.array([100, 100])


def grants(*weight: float) -> list[int]:
    return list(fill(CAPACITY, CAPACITY, TASKS, TASKS, MANY, np.array(weight)))


def test_the_papers_example() -> None:
    # A: 3 tasks = 12 of 18 GB; B: 2 tasks = 6 of 9 CPUs: both shares 2/3
    assert grants(1, 1) == [3, 2]


def test_weights_divide_the_share() -> None:
    # per task A 4/18/3 = 2/27, B 1/3. A 1, B 1 (1/3), A 2 (4/27), 3 (6/27), 4 (8/27 < 1/3), A's fifth is
    # refused (20 GB), and B's second (4 + 6 = 10 CPUs)
    assert grants(3, 1) == [4, 1]
    # weight 2: after A's third task 3 · 1/9 = 1/3 = B's share: A came first. Then A has 4 tasks, B 1
    assert grants(2, 1) == [4, 1]


def test_a_job_that_is_refused_is_passed_over_unless_that_ends_the_filling() -> None:
    # A needs 4 GB more than the 2 GB there are: B goes on alone, 3 · 3 = 9 CPUs
    there = np.array([0.0, 9.0, 3.0])
    assert fill(CAPACITY, there, TASKS, TASKS, MANY, np.ones(2)).tolist() == [0, 3]
    assert fill(CAPACITY, there, TASKS, TASKS, MANY, np.ones(2), stop_at_refusal=True).tolist() == [0, 0]


def slow_fill(capacity: Floats, first: Floats, step: Floats, most: Ints, weight: Floats, stop: bool) -> list[int]:
    """Fill as the definition says, step by step."""
    given = np.zeros(len(most), np.int64)
    allocated, free, candidates = np.zeros_like(first), capacity * (1 + 1e-9), list(range(len(most)))
    while candidates:
        share = (allocated / capacity[:, None]).max(axis=0) / weight
        j = min(candidates, key=lambda j: (round(share[j], 12), j))
        demand = first[:, j] if given[j] == 0 else step[:, j]
        served = bool((demand <= free).all())
        if served:
            free = free - demand
            allocated[:, j] += demand
            given[j] += 1
        elif stop:
            break
        if not served or given[j] == most[j]:
            candidates.remove(j)
    return given.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_filling_in_bulk_equals_filling_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = int(rng.integers(1, 12))
    capacity = np.array([rng.integers(1, 40), rng.integers(8, 200), rng.integers(8, 400)], float)
    step = np.stack([np.ones(jobs), rng.integers(0, 9, jobs), rng.integers(1, 40, jobs)]).astype(float)
    first, most = step * rng.integers(1, 5, jobs).astype(float), rng.integers(1, 30, jobs)
    weight = rng.choice([0.5, 1.0, 2.0], jobs)
    for stop in (False, True):
        given = fill(capacity, capacity, first, step, most, weight, stop_at_refusal=stop)
        assert given.tolist() == slow_fill(capacity, first, step, most, weight, stop)


def test_the_papers_example_as_a_simulation() -> None:
    cluster = Cluster((Node("n", gpus=16, cpus=9, memory_gib=18),))
    jobs = [
        Job("a", 0, 12, 1, cpus=1, memory_gib=4, min_gpus=1, max_gpus=16),
        Job("b", 0, 8, 1, cpus=3, memory_gib=1, min_gpus=1, max_gpus=16),
    ]
    # 12 s of work on 3 workers and 8 s on 2: both end at 4
    assert finish(simulate(jobs, cluster, "drf")) == [4, 4]


def test_three_elastic_jobs_on_eight_gpus() -> None:
    jobs = [Job(name, 0, 24, 1, min_gpus=1, max_gpus=8) for name in "abc"]
    # 3 + 3 + 2 GPUs until 8; then c, which has 24 − 16 left, has all 8: ends at 9
    assert finish(simulate(jobs, Cluster.uniform(1, 8), "drf")) == [8, 8, 9]


def test_weights_in_a_simulation() -> None:
    weights = {"heavy": 3.0, "light": 1.0}
    jobs = [Job(name, 0, 24, 1, min_gpus=1, max_gpus=8, weight=weight) for name, weight in weights.items()]
    # 6 + 2 GPUs until 4; then light, with 24 − 8 left, has all 8: ends at 6
    assert finish(simulate(jobs, Cluster.uniform(1, 8), "drf")) == [4, 6]


def test_identical_jobs_end_within_one_slot() -> None:
    slot_s = 10.0
    jobs = [Job(f"j{i}", 0, 100, 1, min_gpus=1, max_gpus=8) for i in range(5)]
    times = jct(simulate(jobs, Cluster.uniform(1, 8), f"drf:slot_s={slot_s:g}"))
    # 2 + 2 + 2 + 1 + 1 GPUs: three end at 50, the two others have 50 left, and 4 GPUs each from 50 on: 62.5
    assert times == [50, 50, 50, 62.5, 62.5]
    assert max(times) - min(times) > slot_s  # the first division is not equal: 8 GPUs among 5
    even = jct(simulate(jobs[:4], Cluster.uniform(1, 8), f"drf:slot_s={slot_s:g}"))
    assert max(even) - min(even) <= slot_s and even == [50] * 4


def test_between_slots_newcomers_wait_and_nobody_changes() -> None:
    jobs = [Job("a", 0, 40, 1, min_gpus=1, max_gpus=4), Job("b", 3, 8, 1, min_gpus=1, max_gpus=4)]
    result = simulate(jobs, Cluster.uniform(1, 4), "drf:slot_s=8")
    # a has 4 GPUs until 8 (8 left); then 2 + 2: both have 8 left and end at 12
    assert starts(result) == [0, 8]
    assert finish(result) == [12, 12]
    # without slots: b joins at 3 with 2 GPUs and ends at 7; a: 12 + 8 done by 7, 20 left on 4 GPUs, 12
    assert finish(simulate(jobs, Cluster.uniform(1, 4), "drf")) == [12, 7]


def test_rigid_gangs_count_as_one_unit() -> None:
    jobs = [Job("first", 0, 4, 2), Job("wide", 0, 4, 4), Job("small", 0, 4, 1), Job("late", 0, 4, 1)]
    # shares are all 0: by arrival first (2 of 4), wide does not fit, small, late; then wide
    assert starts(simulate(jobs, Cluster.uniform(1, 4), "drf")) == [0, 4, 0, 0]
    # DL2's code stops at wide
    assert starts(simulate(jobs, Cluster.uniform(1, 4), "drf:stop_at_refusal=yes")) == [0, 4, 8, 8]


def test_parameter_server_jobs_get_bundles() -> None:
    cluster = Cluster((Node("n", gpus=8, cpus=12, memory_gib=1000),))
    jobs = [Job(f"j{i}", 0, 50, 1, cpus=1, memory_gib=1, ps=1, min_gpus=1, max_gpus=8) for i in range(2)]
    seen = []

    def look(engine: Engine) -> None:
        columns = engine.view.jobs
        seen.append([(int(h), int(s)) for h, s in zip(columns.held, columns.servers)])

    class Watched(Drf):
        uses = Drf.uses | {"placement"}

    settings = Settings.ideal(perf="ps")
    Engine(Trace.of_jobs(jobs), cluster, Watched(), settings, watch=look).run()
    # a bundle takes 1 GPU and 2 CPUs: 12 CPUs make 6 bundles, 3 each (workers, servers)
    assert seen[0] == [(3, 3), (3, 3)]


def test_nobody_is_promised_more_than_one_gpu_type_has() -> None:
    cluster = Cluster((Node("a", "a100", 4), Node("b", "t4", 4)))
    jobs = [
        Job("any", 0, 8, 1, min_gpus=1, max_gpus=8),
        Job("t4", 20, 8, 1, gpu_type="t4", min_gpus=1, max_gpus=8),
    ]
    # 4 GPUs of one type each: 8 s of work take 2 s (a type named alone is the job's reference: speed 1 there)
    assert finish(simulate(jobs, cluster, "drf")) == [2, 22]


def test_nobody_is_promised_more_than_cpus_beside_the_gpus_allow() -> None:
    # by totals 8 GPUs could be had, but beside the 8 GPUs there are CPUs for 2 workers
    cluster = Cluster((Node("gpus", gpus=8, cpus=8), Node("cpus", gpus=0, cpus=64)))
    jobs = [Job("a", 0, 8, 1, cpus=4, memory_gib=1, min_gpus=1, max_gpus=8)]
    assert finish(simulate(jobs, cluster, "drf")) == [4]


@pytest.mark.parametrize("spec", ["drf:slot_s=-1", "drf:slot_s=inf"])
def test_nonsense_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match="slot_s"):
        create(spec)


def test_a_division_among_a_thousand_jobs_grants_nearly_all_units_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last units, which may be refused, are granted one by one; this keeps a decision fast."""
    singly: list[int] = []

    def counted(*arguments: Any) -> Any:
        grants = fill_singly(*arguments)
        singly.append(int(grants.sum()))
        return grants

    monkeypatch.setattr("argosy.policies.common.filling.fill_singly", counted)
    rng = np.random.default_rng(0)
    policy, count = Drf(), 1000
    columns = {
        "gpus": np.full(count, 2.0),
        "min_gpus": np.ones(count),
        "max_gpus": np.full(count, 64.0),
        "cpus": rng.integers(4, 24, count).astype(float),
        "memory_gib": rng.integers(16, 128, count).astype(float),
    }
    view = view_of(policy, Cluster.uniform(1250, 8), columns)
    assert policy.size(view).workers.sum() > 9_000
    assert len(singly) == 1 and singly[0] < 1000
