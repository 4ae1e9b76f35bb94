"""Advice names only what can be run, with honest figures."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from results_by_hand import list_scheduled

from argosy.report.advice import advice, advice_lines, losers
from argosy.report.comparison import Comparison
from argosy.report.jobs_csv import jobs_frame
from argosy.sim.recorded import ACTUAL


def compared(*policies: str, baseline: str = "", seeds: int = 3) -> Comparison:
    results = [
        replace(list_scheduled(policy, seed, shortest_first=not policy.startswith("good"), jobs=60), uses=("demand",))
        for seed in range(seeds)
        for policy in policies
    ]
    return Comparison(tuple(results), baseline=baseline)


def seeing(comparison: Comparison, policy: str) -> Comparison:
    told = (replace(r, uses=("duration",)) if r.policy == policy else r for r in comparison.results)
    return Comparison(tuple(told), baseline=comparison.baseline)


def test_the_best_policy_and_what_it_saves() -> None:
    comparison = compared("fifo", "good")
    found = advice(comparison)
    assert found is not None
    assert (found.baseline, found.best) == ("fifo", "good")
    assert -1 < found.low < found.change < found.high
    means = {policy: summary["jct_mean_s"].mean for policy, summary in comparison.summary.items()}
    assert found.jct_h == pytest.approx(means["good"] / 3600)
    assert found.saved_h == pytest.approx(60 * (means["fifo"] - means["good"]) / 3600)
    assert advice_lines(found)[0].startswith("Best policy that can be run: good, −")


def test_policies_that_see_the_future_are_only_a_bound() -> None:
    found = advice(seeing(compared("fifo", "fifo2", "good"), "good"))
    assert found is not None
    assert found.bound == "good"
    assert found.best in ("fifo", "fifo2")
    assert "As a bound: good" in "\n".join(advice_lines(found))


def test_the_past_is_a_baseline_and_never_recommended() -> None:
    found = advice(compared(ACTUAL, "good", baseline="good"))
    assert found is None  # nothing but the baseline can be run
    found = advice(compared(ACTUAL, "fifo", "good"))
    assert found is not None
    assert (found.baseline, found.best) == (ACTUAL, "good")


def test_keeping_the_baseline_is_advice_too() -> None:
    found = advice(compared("good", "fifo"))
    assert found is not None
    assert (found.best, found.change, found.losers) == ("good", 0.0, ())
    assert advice_lines(found)[0].startswith("Keep good")


def test_losers_really_take_longer() -> None:
    comparison = compared("fifo", "good", seeds=1)
    pairs = comparison.pairs("good", "fifo", [0])
    for loser in losers(comparison, "good"):
        assert loser.low <= loser.change <= loser.high
        assert loser.change > 0.01
        if loser.kind == "queue":
            group = pairs.filter(pl.col("queue") == loser.name)
            assert loser.change == pytest.approx(group["jct_s"].sum() / group["other_jct_s"].sum() - 1)
            assert loser.jobs == group.height


def test_a_row_for_every_job_policy_and_seed(comparison: Comparison) -> None:
    frame = jobs_frame(comparison)
    assert frame.height == 2 * 3 * 60
    row = frame.row(0, named=True)
    run = comparison.runs["fifo"][0].jobs.row(0, named=True)
    assert (row["policy"], row["seed"], row["job_id"]) == ("fifo", 0, run["job_id"])
    assert row["first_wait_s"] == run["first_start_s"] - run["submit_s"]
    assert row["jct_s"] == run["finish_s"] - run["submit_s"]
