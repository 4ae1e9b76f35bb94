"""Synthetic traces: distributions, determinism, options, users that repeat jobs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from argosy.errors import InputError, UnknownName
from argosy.workload.synth import PROFILES, generate
from argosy.workload.trace import SCHEMA, find_problems
from effort import assert_no_loops

PRODUCTION = ("philly", "helios", "pai", "acme")


@pytest.mark.parametrize("like", PROFILES)
def test_every_profile_makes_valid_traces_of_any_size(like: str) -> None:
    for jobs in (1, 2, 7, 300):
        trace = generate(like, jobs, seed=3)
        assert len(trace) == jobs
        assert trace.frame.schema == SCHEMA
        assert find_problems(trace.frame) == []
        assert trace.frame["submit_s"].is_sorted()
        assert trace.frame["submit_s"][0] == 0.0
        assert trace.frame["duration_s"].min() > 0  # type: ignore[operator]
        assert trace.frame["name"].null_count() == 0


@pytest.mark.parametrize("like", PROFILES)
def test_same_arguments_same_trace_and_another_seed_another(like: str) -> None:
    first = generate(like, 400, seed=5, gpus=64, load=0.9).frame
    assert_frame_equal(first, generate(like, 400, seed=5, gpus=64, load=0.9).frame, check_exact=True)
    assert not first.equals(generate(like, 400, seed=6, gpus=64, load=0.9).frame)


@pytest.mark.parametrize("like", PROFILES)
def test_load_is_met_exactly_and_no_job_exceeds_the_cluster(like: str) -> None:
    trace = generate(like, 500, seed=1, gpus=64, load=1.2)
    assert trace.offered_load(64) == pytest.approx(1.2, rel=1e-6)
    assert trace.frame["gpus"].max() <= 64  # type: ignore[operator]
    assert (trace.frame["max_gpus"].drop_nulls() <= 64).all()


@pytest.mark.parametrize("like", PROFILES)
def test_days_set_the_span(like: str) -> None:
    submit_s = generate(like, 200, seed=1, days=3.5).frame["submit_s"]
    assert submit_s.max() == pytest.approx(3.5 * 86400)


def test_a_small_cluster_cuts_sizes_without_changing_how_many_jobs_are_small() -> None:
    free, cut = generate("acme", 5000, seed=1).frame, generate("acme", 5000, seed=1, gpus=16).frame
    assert free["gpus"].max() == 1024
    assert cut["gpus"].max() == 16
    assert (free["gpus"] == 1).sum() == (cut["gpus"] == 1).sum()


@pytest.mark.parametrize("like", PRODUCTION)
def test_users_have_one_queue_and_repeat_their_jobs(like: str) -> None:
    frame = generate(like, 20_000, seed=2).frame
    assert frame.group_by("user").agg(pl.col("queue").n_unique())["queue"].max() == 1
    runs = frame.with_columns(pl.col("name").str.replace(r"-\d+$", "").alias("template"))
    per_template = runs.group_by("template").agg(pl.len(), pl.col("user").n_unique(), pl.col("model").n_unique())
    assert per_template["user"].max() == 1
    assert per_template["model"].max() == 1
    assert per_template["len"].mean() > 5  # type: ignore[operator]
    # Repetition is what a history estimator lives on: most of the spread of log durations lies between
    # templates.
    same = runs.filter(pl.col("status") == "completed").with_columns(pl.col("duration_s").log().alias("log_s"))
    within = same.select((pl.col("log_s") - pl.col("log_s").mean().over("template")).var()).item()
    assert within < 0.35 * same["log_s"].to_numpy().var()
    # Few users submit most jobs.
    by_user = frame["user"].value_counts(sort=True)["count"].to_numpy()
    assert by_user[: len(by_user) // 10].sum() > 0.3 * len(frame)


@pytest.mark.parametrize("like", ("philly", "helios", "acme"))
def test_larger_jobs_run_longer(like: str) -> None:
    frame = generate(like, 20_000, seed=2).frame.filter(pl.col("status") == "completed")
    small, large = frame.filter(pl.col("gpus") == 1), frame.filter(pl.col("gpus") >= 8)
    assert large["duration_s"].median() > 1.2 * small["duration_s"].median()  # type: ignore[operator]


@pytest.mark.parametrize("like", ("philly", "helios"))
def test_arrivals_are_burstier_than_poisson(like: str) -> None:
    counts = np.bincount((generate(like, 20_000, seed=1, days=28).frame["submit_s"].to_numpy() // 3600).astype(int))
    assert counts.var() > 5 * counts.mean()  # a Poisson process has variance = mean


def test_gavel_jobs_follow_the_published_recipe() -> None:
    frame = generate("gavel", 20_000, seed=1).frame
    minutes = np.log10(frame["duration_s"].to_numpy() / 60)
    assert minutes.min() >= 1.5
    assert minutes.max() <= 4.0
    assert (minutes < 3).mean() == pytest.approx(0.8, abs=0.01)
    single = ("A3C", "CycleGAN", "Recommendation")
    assert frame.filter(pl.col("model").is_in(single))["gpus"].max() == 1  # these are not distributed
    job = frame.filter((pl.col("model") == "ResNet-18") & (pl.col("batch_size") == 128) & (pl.col("gpus") == 1))
    assert (job["work"] / job["duration_s"]).mean() == pytest.approx(17.99, rel=1e-3)  # steps/s on a V100


def test_pollux_jobs_are_elastic_and_dl2_jobs_have_parameter_servers() -> None:
    pollux = generate("pollux", 320, seed=1).frame
    assert (pollux["min_gpus"] == 1).all()
    assert (pollux["max_gpus"] == 64).all()
    cifar = pollux.filter(pl.col("model") == "cifar10")
    assert cifar["work"].unique().to_list() == [39_063 * 128]
    dl2 = generate("dl2", 400, seed=1).frame
    assert dl2.select("ps", "gpus", "min_gpus", "max_gpus", "cpus").unique().rows() == [(3, 3.0, 1.0, 16.0, 6.0)]
    epochs = dl2.filter(pl.col("model") == "vgg-16")["work"] / 115
    assert 0.9 * 0.96 * 30_000 <= epochs.min() <= epochs.max() <= 1.1 * 0.96 * 30_000 + 1  # type: ignore[operator]


def test_dl2_arrivals_fill_the_published_slots() -> None:
    submit_s = generate("dl2", 1000, seed=1).frame["submit_s"].to_numpy()
    counts = np.bincount((submit_s / 1200).round().astype(int))
    assert counts[:6].tolist() == [6, 10, 8, 7, 8, 10]
    assert counts[75:78].tolist() == [6, 10, 8]  # after 75 slots the list begins again


def test_nothing_loops_over_jobs() -> None:
    """So a million jobs take seconds. There are loops over users, which have many jobs each."""

    def generate_for(jobs: int) -> Callable[[], object]:
        return lambda: generate("philly", jobs, seed=1, gpus=1000, load=1.2)

    assert_no_loops(generate_for, few=1000, many=20_000, each=2.0)


def test_many_jobs_have_names_of_their_own_and_the_load_asked_for() -> None:
    trace = generate("philly", 200_000, seed=1, gpus=10_000, load=1.2)
    assert trace.frame["job_id"].n_unique() == 200_000
    assert trace.offered_load(10_000) == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, "at least 1, is 0"),
        ({"jobs": -5}, "at least 1, is -5"),
        ({"seed": -1}, "at least 0, is -1"),
        ({"days": -2.0}, "days must be a number above 0, is -2"),
        ({"days": float("nan")}, "is nan"),
        ({"gpus": 0.0}, "gpus must be"),
        ({"gpus": 8.0, "load": float("inf")}, "load must be"),
        ({"load": 0.8}, "of which cluster"),
        ({"load": 0.8, "gpus": 8.0, "days": 1.0}, "both set the span"),
        ({"like": "dl2", "gpus": 2.0}, "jobs like dl2 ask for 3 GPUs and more, the cluster has 2"),
        ({"like": "pollux", "gpus": 0.5}, "the cluster has 0.5"),
    ],
)
def test_impossible_wishes_are_refused(arguments: dict[str, float], message: str) -> None:
    wish = {"like": "philly", "jobs": 10, "seed": 1} | arguments
    with pytest.raises(InputError, match=message):
        generate(**wish)  # type: ignore[arg-type]


def test_an_unknown_profile_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean philly"):
        generate("phily", 10, seed=1)
