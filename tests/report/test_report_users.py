"""What each user got: recomputed with Polars from the jobs."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from results_by_hand import HandJob, Stint, by_hand, list_scheduled

from argosy.cluster.cluster import Cluster
from argosy.report.comparison import Comparison
from argosy.report.html import page
from argosy.report.tables import document
from argosy.report.users import user_results, user_rows
from argosy.sim.result import Result


def with_users(result: Result) -> Result:
    names = [f"u{i % 3}" if i % 7 else None for i in range(result.jobs.height)]
    return replace(result, jobs=result.jobs.with_columns(user=pl.Series(names, dtype=pl.String)))


@pytest.fixture
def compared() -> Comparison:
    runs = [
        with_users(list_scheduled(policy, seed, shortest_first=policy == "sjf", jobs=60))
        for seed in (0, 1)
        for policy in ("fifo", "sjf")
    ]
    return Comparison(tuple(runs), command="argosy compare")


def test_results_by_user(compared: Comparison) -> None:
    found = {(one.policy, one.user): one for one in user_results(compared)}
    assert {user for _, user in found} == {"u0", "u1", "u2"}
    for (policy, user), one in found.items():
        jobs = pl.concat([run.jobs for run in compared.runs[policy].values()]).filter(pl.col("user") == user)
        jct = jobs["finish_s"] - jobs["submit_s"]
        assert (one.jobs, one.jct_mean_s) == (jobs.height / 2, pytest.approx(jct.mean()))
        assert one.first_wait_mean_s == pytest.approx((jobs["first_start_s"] - jobs["submit_s"]).mean())
        assert one.held_gpu_h == pytest.approx(jobs["held_gpu_s"].sum() / 3600 / 2)
        base = found["fifo", user].jct_mean_s
        assert one.change == (None if policy == "fifo" else pytest.approx(one.jct_mean_s / base - 1))
    hours = [one.held_gpu_h for one in user_results(compared) if one.policy == "fifo"]
    assert hours == sorted(hours, reverse=True)


def test_they_are_in_the_page_and_in_json(compared: Comparison) -> None:
    text = page(compared)
    assert "What each user got" in text
    head, rows, users = user_rows(compared)
    assert users == 3 and len(rows) == 3 and head[:3] == ["user", "jobs", "GPU-hours"]
    assert all(cell in text for row in rows for cell in row)
    told = document(compared)["users"]
    assert len(told) == 6
    assert told[0].keys() >= {"policy", "user", "jobs", "jct_mean_s", "first_wait_mean_s", "held_gpu_h", "change"}


def test_without_users_there_is_nothing_to_show() -> None:
    jobs = [HandJob("a", 0.0, [Stint(0.0, 10.0, {0: [0]})])]
    alone = Comparison((by_hand(jobs, Cluster.uniform(1, 1)),))
    assert user_results(alone) == [] and document(alone)["users"] == []
    assert "What each user got" not in page(alone)
