"""Advice names only what can be run, with honest figures."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from results_by_hand import HandJob, Stint, by_hand, list_scheduled

from argosy.cluster.cluster import Cluster, Node
from argosy.report.advice import advice, advice_lines, losers
from argosy.report.comparison import Comparison
from argosy.report.jobs_csv import jobs_frame
from argosy.sim.recorded import ACTUAL
from argosy.sim.result import Result


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


def timed(policy: str, *seconds: float, price: float | None = None, seed: int = 0) -> Result:
    """A job on its own GPU for each of these lengths, on two nodes of which one costs ten times as much."""
    dear = None if price is None else 10 * price
    nodes = (Node("a", "v100", 8, price_per_hour=price), Node("b", "v100", 8, price_per_hour=dear))
    jobs = [HandJob(f"j{i}", 0.0, [Stint(0.0, s, {0: [i]})], more={"user": f"u{i}"}) for i, s in enumerate(seconds)]
    return replace(by_hand(jobs, Cluster(nodes, name="two"), policy=policy, seed=seed), uses=("demand",))


def told(*results: Result, **options: str) -> str:
    return "\n".join(advice_lines(advice(Comparison(results, **options))))


def test_a_past_that_no_policy_betters_is_kept() -> None:
    comparison = Comparison((timed(ACTUAL, 3600, 3600, 3600), timed("fifo", 3700, 4000, 4500)))
    found = advice(comparison)
    assert found is not None
    assert (found.best, found.change, found.saved_h, found.losers) == (ACTUAL, 0.0, 0.0, ())
    assert found.nearest == "fifo"
    assert found.nearest_change == pytest.approx(12200 / 10800 - 1)
    text = "\n".join(advice_lines(found))
    assert text.startswith("Keep what you have: no policy here that can be run is better than what happened.")
    assert "Nearest to it: fifo, +13\u00a0% mean completion time (95 % interval +3\u00a0% … +25\u00a0%)." in text
    assert "Best policy" not in text


@pytest.mark.parametrize(("other", "doubt"), [((3700, 4000, 4500), False), ((3000, 4000, 4500), True)])
def test_an_interval_without_zero_is_never_called_chance(other: tuple[int, ...], doubt: bool) -> None:
    for base, better in ((other, (3600, 3600, 3600)), ((3600, 3600, 3600), other)):
        text = told(timed("old", *base), timed("new", *better))
        assert ("the interval includes zero" in text) == doubt, text


def test_the_same_mean_keeps_the_baseline() -> None:
    assert told(timed("old", 60, 60), timed("new", 60, 60)).splitlines()[0].startswith("Keep old: ")


def test_amounts_have_a_direction_and_digits() -> None:
    text = told(timed("old", 7200, 7200, 7200), timed("new", 3600, 3600, 3600))
    assert "which saves 3 job-hours in all; 3 fewer GPU-hours held." in text
    text = told(timed("old", 7200, 7200), timed("new", 7200, 7110))
    assert "which saves 0.025 job-hours in all; 0.025 fewer GPU-hours held." in text
    assert "-0" not in text


def test_money_follows_the_gpu_hours_that_are_named() -> None:
    before, after = timed("old", 7200, 7200, price=8.0), timed("new", 3600, 3600, price=8.0)
    assert "2 fewer GPU-hours held, which saves 2.00 at the nodes' prices." in told(before, after)
    same = timed("old", 3600, 7200, price=8.0), timed("new", 3600, 7200, price=8.0)
    assert advice(Comparison(same)).money == 0.0  # type: ignore[union-attr]


def test_hours_of_the_past_that_did_not_fit_have_a_price() -> None:
    """The past held eight GPU-hours, of which the cluster has room for four; the policy holds them one by one."""
    cluster = Cluster((Node("a", "v100", 4, price_per_hour=20.0),), name="one")
    past = [HandJob("a", 0.0, [Stint(0, 7200, {0: range(4)})], 4.0)]
    past += [HandJob("b", 0.0, [Stint(0, 7200, {0: ()})], 4.0, more={"held_gpu_s": 4 * 7200.0})]
    new = [HandJob("a", 0.0, [Stint(0, 3600, {0: range(4)})], 4.0)]
    new += [HandJob("b", 0.0, [Stint(3600, 7200, {0: range(4)})], 4.0)]
    runs = by_hand(past, cluster, policy=ACTUAL), by_hand(new, cluster, policy="fifo")
    found = advice(Comparison(runs))
    assert found is not None and found.money is not None
    assert found.best == "fifo"
    assert found.held_gpu_h == pytest.approx(-8.0)
    assert found.money == pytest.approx(-8.0 * 5.0)


def test_a_group_of_all_jobs_is_no_group() -> None:
    comparison = compared("fifo", "good", seeds=1)
    assert not [one for one in losers(comparison, "good") if one.kind == "user"]
    slower = Comparison((timed("old", *range(60, 66)), timed("new", *range(70, 76))))
    assert not losers(slower, "new")  # each user has one job, all jobs are of one size and in no queue
