"""Every profile keeps the promises it makes, the documentation lists them, and real data agrees where it is
found."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from argosy.workload.synth import PROFILES, Promise, generate
from argosy.workload.synth.promises import STATISTICS

ROOT = Path(__file__).parents[2]
KEPT_PACE = ("gavel", "pollux", "dl2")  # these also promise their pace, so their span is their own
CASES = [(name, promise) for name, profile in PROFILES.items() for promise in profile.promises]


@cache
def sample(like: str, seed: int) -> pl.DataFrame:
    return generate(like, 50_000, seed, days=None if like in KEPT_PACE else 56).frame


@pytest.mark.parametrize("seed", (1, 2))
@pytest.mark.parametrize(("like", "promise"), CASES, ids=[f"{n}: {p.statistic}" for n, p in CASES])
def test_promise_is_kept(like: str, promise: Promise, seed: int) -> None:
    frame = sample(like, seed)
    assert promise.holds(frame), f"{promise.measured(frame):g}, promised {promise.target:g}"


def test_a_promise_can_be_broken() -> None:
    frame = sample("philly", 1)
    assert not Promise("median duration (s)", 874 * 1.2, 0.05, "").holds(frame)


@pytest.mark.parametrize(("like", "promise"), CASES, ids=[f"{n}: {p.statistic}" for n, p in CASES])
def test_promise_is_documented(like: str, promise: Promise) -> None:
    target = f"{promise.target:,.0f}" if promise.target >= 1000 else f"{promise.target:.4g}"
    tolerance = f"{promise.tolerance:.0%}"
    line = f"| {like} | {promise.statistic} | {target} | {tolerance} | {promise.source} |\n"
    assert line in (ROOT / "docs" / "generate.md").read_text("utf-8")


def test_completed_philly_jobs_resemble_the_real_ones(shared_data: Path) -> None:
    real = pl.read_csv(shared_data / "traces" / "philly_pass_80d.csv.gz").with_columns(
        pl.lit("completed").alias("status")
    )
    mine = sample("philly", 1)
    for statistic in (
        "completed p25 duration (s)",
        "completed p50 duration (s)",
        "completed p90 duration (s)",
    ):
        assert STATISTICS[statistic](mine) == pytest.approx(STATISTICS[statistic](real), rel=0.1)
    completed = mine.filter(pl.col("status") == "completed")
    for statistic in ("mean duration (s)", "mean GPUs"):
        assert STATISTICS[statistic](completed) == pytest.approx(STATISTICS[statistic](real), rel=0.05)
    share = real.group_by("gpus").agg((pl.len() / real.height).alias("real"))
    both = share.join(
        completed.group_by(pl.col("gpus").cast(pl.Int64)).agg((pl.len() / completed.height).alias("mine")),
        "gpus",
    )
    assert (both["real"] - both["mine"]).abs().max() < 0.002  # type: ignore[operator]


def test_promised_targets_are_those_of_the_published_tables(shared_data: Path) -> None:
    table = pl.read_csv(shared_data / "calibration" / "acme_cluster_summary_all_traces.csv")
    columns = {
        "mean duration (s)": "avg_run_time_gpu",
        "median duration (s)": "med_run_time_gpu",
        "mean GPUs": "avg_gpu_num",
        "median GPUs": "med_gpu_num",
        "share completed": "complete_rate_gpu",
        "share failed": "fail_rate_gpu",
        "share killed": "cancel_rate_gpu",
        "GPU-time share completed": "complete_rate_gpu_time",
        "GPU-time share failed": "fail_rate_gpu_time",
        "GPU-time share killed": "cancel_rate_gpu_time",
    }
    for like, row in (("philly", "Philly"), ("helios", "Helios"), ("pai", "PAI"), ("acme", "Seren")):
        published = table.filter(pl.col("id") == row)
        for promise in PROFILES[like].promises:
            if promise.statistic in columns:
                assert promise.target == pytest.approx(published[columns[promise.statistic]].item(), rel=1e-3)


def test_dl2_arrivals_are_the_published_ones(shared_data: Path) -> None:
    table = pl.read_csv(shared_data / "calibration" / "dl2_arrivals.csv")
    slots = generate("dl2", 454, seed=1).frame["submit_s"] / 1200
    counts = slots.round().cast(pl.Int64).value_counts().sort("submit_s")["count"].to_list()
    assert counts == table["jobs_at_most_10"].clip(upper_bound=10).to_list()
