"""The rule of the soak test distinguishes growth from mere variation."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from benchmarks import live_tables
from benchmarks.live_soak import footprint, processes_of, trend, trends

TIMES = [30.0 * i for i in range(40)]


def test_what_only_varies_is_flat() -> None:
    dice = random.Random(1)
    assert trend(TIMES, [100 + dice.gauss(0, 10) for _ in TIMES]).is_flat("mib")
    assert trend(TIMES, [5.0 for _ in TIMES]).is_flat("count")


@pytest.mark.parametrize("per_hour", [60.0, 300.0])
def test_what_grows_slowly_under_noise_is_found(per_hour: float) -> None:
    dice = random.Random(2)
    leaking = trend(TIMES, [100 + per_hour * t / 3600 + dice.gauss(0, 2) for t in TIMES])
    assert not leaking.is_flat("mib")
    assert leaking.low < per_hour * TIMES[-1] / 3600 < leaking.high


def test_too_few_samples_say_nothing() -> None:
    assert trend([0.0, 1.0], [1.0, 2.0]).is_flat("count")


def test_what_fills_in_the_first_third_does_not_count() -> None:
    samples = [{"t_s": t, "daemon_rss_mib": min(200.0, 50 + t), "processes": 3 + t / 100} for t in TIMES]
    found = trends(samples)
    assert found["daemon_rss_mib"]["flat"] and not found["processes"]["flat"]
    made = {"load_average_before": 1.0, "load_average_after": 1.0}
    figures = {"soak": {"minutes": 20.0, "jobs": {"succeeded": 3}, "trends": found, "made": made}}
    row = live_tables.target_table(figures)[1]
    assert row[3] == "**no**" and "processes grow" in row[1]
    assert [row[4] for row in live_tables.soak_table(figures)[1:]] == ["yes", "**no**"]


def test_a_process_is_measured(tmp_path: Path) -> None:
    found = footprint(os.getpid())
    assert found["rss_mib"] > 10 and found["threads"] >= 1 and found["descriptors"] >= 3
    assert footprint(2**22 + 1) == {"rss_mib": 0.0, "descriptors": 0.0, "threads": 0.0}
    assert processes_of(tmp_path, os.getpid())["daemon"] == [os.getpid()]
