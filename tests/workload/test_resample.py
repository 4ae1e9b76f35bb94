"""Resampled days: other weeks from the same log."""

from __future__ import annotations

import polars as pl
import pytest

from argosy.errors import InputError
from argosy.workload.resample import DAY_S, ResampledDays, block_length_s, resample_days
from argosy.workload.trace import Job, Trace


def week() -> Trace:
    """Return ten jobs a day for a week, each of a length that tells its day, with starts."""
    jobs = [
        Job(f"d{day}n{n}", day * DAY_S + 600.0 * n, 100.0 + day, 1, start_s=day * DAY_S + 600.0 * n + 5, deadline_s=9e6)
        for day in range(7)
        for n in range(10)
    ]
    return Trace.of_jobs([*jobs, Job("end", 7 * DAY_S - 1, 50.0, 1)])


def test_days_stay_whole() -> None:
    frame = resample_days(week(), 3).frame
    days = frame.filter(pl.col("duration_s") >= 100).with_columns(day=(pl.col("submit_s") // DAY_S))
    for (_,), group in days.group_by("day"):
        assert group.height == 10
        assert group["duration_s"].n_unique() == 1
        assert (group["submit_s"] % DAY_S).sort().to_list() == [600.0 * n for n in range(10)]
        assert (group["start_s"] - group["submit_s"]).to_list() == [5.0] * 10
    assert frame["job_id"].n_unique() == frame.height
    assert frame["submit_s"].is_sorted()


def test_seeds_draw_other_days_and_the_first_is_the_trace() -> None:
    trace, source = week(), ResampledDays(week(), 5)
    drawn = [tuple(resample_days(trace, seed).frame["duration_s"].to_list()) for seed in range(4)]
    assert len(set(drawn)) == 4
    assert drawn[1] == tuple(resample_days(trace, 1).frame["duration_s"].to_list())
    assert source.trace(5) is source.original
    assert source.trace(6) is source.trace(6)


def test_short_traces_have_shorter_blocks_and_bursts_have_none() -> None:
    hour = Trace.of_jobs([Job(f"j{i}", 60.0 * i, 5.0, 1) for i in range(61)])
    assert block_length_s(hour) == 720.0
    assert len(resample_days(hour, 1)) > 0
    with pytest.raises(InputError, match="arrive at once"):
        resample_days(Trace.of_jobs([Job("a", 0.0, 5.0, 1), Job("b", 0.0, 5.0, 1)]), 0)
