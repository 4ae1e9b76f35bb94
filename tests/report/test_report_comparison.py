from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
from results_by_hand import HandJob, Stint, by_hand

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError, UnknownName
from argosy.report.comparison import SIZE_NAMES, Comparison, sees_future, size_class

CLUSTER = Cluster.uniform(1, 8)


def run(policy: str, jcts: list[float], *, seed: int = 0, status: str = "completed"):  # type: ignore[no-untyped-def]
    jobs = [
        HandJob(f"j{i}", 0.0, [Stint(0.0, jct, {0: [i]})], gpus=1 + i, more={"queue": "ab"[i % 2]})
        for i, jct in enumerate(jcts)
    ]
    jobs += [HandJob("last", 0.0, [Stint(0.0, 50.0, {0: [7]})], status=status)]
    return by_hand(jobs, CLUSTER, policy=policy, seed=seed, end_s=60.0)


def test_groups_by_policy_and_seed_in_order() -> None:
    found = Comparison((run("b", [1.0], seed=2), run("a", [1.0], seed=1), run("b", [1.0], seed=1)))
    assert found.policies == ("b", "a")
    assert found.baseline == "b"
    assert found.seeds == (1, 2)
    assert list(found.runs["b"]) == [1, 2]


def test_refuses_nothing_duplicates_and_unknown_baselines() -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        Comparison(())
    with pytest.raises(InputError, match="'a' appears twice with seed 0"):
        Comparison((run("a", [1.0]), run("a", [2.0])))
    with pytest.raises(UnknownName, match="did you mean fifo"):
        Comparison((run("fifo", [1.0]),), baseline="fiffo")


def test_summary_and_best() -> None:
    found = Comparison((run("a", [10.0, 30.0]), run("b", [10.0, 20.0])))
    assert found.summary["a"]["jct_mean_s"].mean == pytest.approx(90 / 3)
    assert found.best("jct_mean_s") == {"b"}
    assert found.best("utilisation_held") == {"a"}  # higher is better
    assert found.best("jobs") == frozenset()  # neither is better
    assert found.best("restarts_per_job") == frozenset()  # all equal
    assert found.best("cost_held") == frozenset()  # nothing measured


def test_one_seed_is_paired_by_jobs_and_unfinished_ones_are_counted_out() -> None:
    found = Comparison((run("a", [10.0, 30.0]), run("b", [5.0, 15.0], status="unfinished")))
    pair = found.paired["b", "a"]
    assert pair.by == "jobs"
    assert pair.change.mean == pytest.approx((20 - 40) / 40)
    assert pair.left_out == 1


def test_several_seeds_are_paired_by_seed_relative_to_each() -> None:
    runs = [run("a", [10.0], seed=0), run("a", [50.0], seed=1)]
    runs += [run("b", [4.0], seed=0), run("b", [20.0], seed=1)]
    pair = Comparison(tuple(runs)).paired["b", "a"]
    assert pair.by == "seeds"
    assert pair.change.mean == pytest.approx(math.sqrt(27 / 30 * 35 / 50) - 1)


def test_seeds_that_make_no_difference_are_paired_by_jobs() -> None:
    jcts = {"a": 10.0, "b": 4.0}
    runs = [run(policy, [jct, 30.0], seed=seed) for seed in (0, 1) for policy, jct in jcts.items()]
    pair = Comparison(tuple(runs)).paired["b", "a"]
    assert pair.by == "jobs"
    assert not math.isnan(pair.change.low)


def test_policies_without_a_common_seed_have_no_difference() -> None:
    found = Comparison((run("a", [1.0], seed=0), run("b", [1.0], seed=1)))
    assert math.isnan(found.paired["b", "a"].change.mean)
    assert found.winners.is_empty()


def test_winners_by_size_and_by_queue() -> None:
    found = Comparison((run("a", [10.0, 30.0, 40.0]), run("b", [5.0, 60.0, 40.0])))
    by = {(row["kind"], row["class"]): row for row in found.winners.iter_rows(named=True)}
    assert by["size", "1 GPU"]["ratio"] == pytest.approx(55 / 60)  # j0 and the last
    assert by["size", "2–4 GPUs"]["ratio"] == pytest.approx(100 / 70)
    assert by["queue", "b"]["ratio"] == pytest.approx(2.0)
    assert by["queue", "no queue"]["jobs"] == 1
    assert (by["queue", "a"]["faster"], by["queue", "a"]["slower"]) == (0.5, 0.0)


def test_size_classes() -> None:
    gpus = [0.5, 1, 2, 4, 5, 8, 9, 16, 17, 32, 33]
    found = pl.DataFrame({"gpus": [float(g) for g in gpus]}).select(size_class())["size"].to_list()
    assert found == [SIZE_NAMES[i] for i in (0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6)]


def test_who_sees_the_future() -> None:
    plain = run("a", [1.0])
    assert not sees_future(plain)
    assert sees_future(replace(plain, uses=("demand", "duration")))
    assert not sees_future(replace(plain, uses=("estimate",), settings={"estimator": "history"}))
    assert sees_future(replace(plain, uses=("estimate",), settings={"estimator": "oracle"}))
    assert sees_future(replace(plain, uses=("estimate",), settings={"estimator": "noisy:0.5"}))
    assert not sees_future(replace(plain, settings={"estimator": "oracle"}))  # there, but not looked at
