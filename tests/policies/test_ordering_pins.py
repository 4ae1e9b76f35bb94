"""Three jobs under every policy that only orders, compared with times worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import finish, jct, simulate, starts

from argosy.cluster.cluster import Cluster
from argosy.policies.base import POLICIES
from argosy.seeding import stream
from argosy.workload.trace import Job

TWO = Cluster.uniform(1, 2)
ONE = Cluster.uniform(1, 1)
# Tiresias' example: three jobs at t = 0 on 2 GPUs
THREE = [Job("a", 0, 2, 2), Job("b", 0, 8, 1), Job("c", 0, 6, 2)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # a 0–2; b 2–10 (c does not fit beside it); c 10–16
        ("fifo", [2, 10, 16]),
        ("fifo-backfill", [2, 10, 16]),
        # durations 2, 8, 6: a 0–2, c 2–8, b 8–16
        ("sjf", [2, 16, 8]),
        # GPUs 2, 1, 2: b 0–8 (nothing fits beside it), a 8–10, c 10–16
        ("smallest-first", [10, 8, 16]),
        # time left 2, 8, 6: as sjf, since nobody arrives later
        ("srtf", [2, 16, 8]),
        # GPU-time left 4, 8, 12: a 0–2, b 2–10, c 10–16; mean 28/3 = 9.33
        ("srsf", [2, 10, 16]),
        # a 0–1 (2 GPU-s), b 1–2 (1), c 2–3 (2), b 3–4 (2): all three have 2, ties go by arrival. a 4–5, done.
        # b 5–6 (3), c 6–7 (4), b 7–8 (4); then by turns, b's two seconds to c's one: b 14, c 16
        ("las:quantum_s=1", [5, 14, 16]),
    ],
)
def test_the_three_jobs(policy: str, expected: list[float]) -> None:
    assert jct(simulate(THREE, TWO, policy)) == expected


def test_means_of_the_literature() -> None:
    assert np.mean(jct(simulate(THREE, TWO, "srsf"))) == pytest.approx(9.33, abs=0.005)
    assert np.mean(jct(simulate(THREE, TWO, "las:quantum_s=1"))) == pytest.approx(11.67, abs=0.005)
    assert np.mean(jct(simulate(THREE, TWO, "las:quantum_s=0.01"))) == pytest.approx(12.66, abs=0.01)


def test_back_filling_overtakes_and_strict_fifo_does_not() -> None:
    jobs = [Job("a", 0, 10, 1), Job("wide", 1, 5, 2), Job("small", 2, 4, 1)]
    # strict: wide waits for a (10–15), small behind it (15–19)
    assert finish(simulate(jobs, TWO, "fifo")) == [10, 15, 19]
    # back-fill: small runs beside a, 2–6; wide is not delayed
    assert finish(simulate(jobs, TWO, "fifo-backfill")) == [10, 15, 6]


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill"])
def test_the_first_job_under_fifo_is_as_fast_as_alone(policy: str) -> None:
    alone = jct(simulate(THREE[:1], TWO, policy))
    assert jct(simulate(THREE, TWO, policy))[:1] == alone == [2]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # not preemptive: whoever runs keeps the GPU; then short (2 s) before middle (5 s)
        ("sjf", [10, 17, 12]),
        ("fifo-backfill", [10, 15, 17]),
        # at 2 middle (5) beats long (8 left); at 4 short (2) beats middle (3 left); middle 6–9, long 9–17
        ("srtf", [17, 9, 6]),
        ("srsf", [17, 9, 6]),
    ],
)
def test_who_gives_way(policy: str, expected: list[float]) -> None:
    jobs = [Job("long", 0, 10, 1), Job("middle", 2, 5, 1), Job("short", 4, 2, 1)]
    assert finish(simulate(jobs, ONE, policy)) == expected


def test_srtf_and_srsf_differ_by_width() -> None:
    jobs = [Job("wide", 0, 3, 2), Job("narrow", 0, 5, 1), Job("narrow too", 0, 5, 1)]
    # time left 3 < 5: wide 0–3, then both narrow 3–8
    assert finish(simulate(jobs, TWO, "srtf")) == [3, 8, 8]
    # GPU-time 6 > 5: both narrow 0–5, then wide 5–8
    assert finish(simulate(jobs, TWO, "srsf")) == [8, 5, 5]


def test_sjf_believes_the_estimator() -> None:
    jobs = [
        Job("a", 0, 1, 1, expected_s=1),
        Job("b", 0, 2, 1, expected_s=9),
        Job("c", 0, 8, 1, expected_s=3),
    ]
    assert finish(simulate(jobs, ONE, "sjf", estimator="user")) == [1, 11, 9]
    assert finish(simulate(jobs, ONE, "sjf", estimator="oracle")) == [1, 3, 11]


def test_srsf_without_estimates_still_knows_that_cpu_jobs_need_no_gpus() -> None:
    jobs = [Job("a", 0, 4, 1, cpus=1), Job("b", 0, 4, 1, cpus=1), Job("cpu", 0, 4, 0, cpus=2)]
    assert finish(simulate(jobs, ONE, "srsf", estimator="none")) == [4, 8, 4]


def test_las_shares_one_gpu_by_turns() -> None:
    jobs = [Job("a", 0, 4, 1), Job("b", 0, 4, 1), Job("c", 0, 1, 1)]
    # quantum 1: a, b, c (done at 3), a, b, a, b, a (done at 8), b (done at 9)
    result = simulate(jobs, ONE, "las:quantum_s=1")
    assert starts(result) == [0, 1, 2]
    assert finish(result) == [8, 9, 3]


def test_random_order_comes_from_the_seed() -> None:
    jobs = [Job(f"j{i}", 0, 1, 1) for i in range(12)]
    for seed in (1, 2):
        ranks = stream(seed, "policy.random").random(12).argsort().argsort()
        # one GPU, one second each: the job with the k-th smallest number ends at k
        assert finish(simulate(jobs, ONE, "random", seed=seed)) == [float(k + 1) for k in ranks]
    assert finish(simulate(jobs, ONE, "random", seed=1)) != finish(simulate(jobs, ONE, "random", seed=2))


def test_random_numbers_do_not_depend_on_who_else_came() -> None:
    jobs = [Job(f"j{i}", float(i), 5, 1) for i in range(40)]
    few = simulate(jobs[:20], Cluster.uniform(1, 3), "random", seed=3)
    many = simulate([*jobs[:20], Job("late", 500, 1, 1)], Cluster.uniform(1, 3), "random", seed=3)
    assert finish(many)[:20] == finish(few)


def test_every_policy_explains_itself() -> None:
    headings = ("Decision:", "State used:", "Parameters:", "Differences from the paper:", "References:")
    for name in POLICIES:
        cls = POLICIES[name]
        document = __import__(cls.__module__, fromlist=["_"]).__doc__ or ""
        places = [document.find(heading) for heading in headings]
        assert places == sorted(places) and places[0] > 0, name
        formula = document[places[-1] :].partition("\n    ")[2]
        assert any(sign in formula for sign in "=≥>"), name
        assert cls.summary, name
