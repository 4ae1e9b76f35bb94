from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from results_by_hand import HandJob, Stint, by_hand
from rich.console import Console

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.report.comparison import Comparison
from argosy.report.stats import Interval
from argosy.report.tables import LONG, columns, comparison_rows, fitting_table, show, table, to_json
from argosy.sim.metrics import DEFINITIONS

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Interval(NAN, NAN, NAN, 0), "–"),
        (Interval(3.0, NAN, NAN, 1), "3"),
        (Interval(3.14159, NAN, NAN, 1), "3.14"),
        (Interval(3.14159, 3.0, 3.28318, 3), "3.14 ± 0.14"),
        (Interval(31.4159, 31.4159, 31.4159, 3), "31.4"),
        (Interval(12345.6, 12000.0, 12691.2, 3), "12,346 ± 346"),
    ],
)
def test_show(value: Interval, text: str) -> None:
    assert show(value) == text


def test_columns_take_a_fitting_unit() -> None:
    jobs = [HandJob("a", 0.0, [Stint(3600.0, 10800.0, {0: [0]})], alone_s=7200.0)]
    found = {c.metric: c for c in columns(Comparison((by_hand(jobs, Cluster.uniform(1, 2)),)), LONG)}
    assert (found["jct_mean_s"].unit, found["jct_mean_s"].divisor) == ("h", 3600.0)
    assert found["utilisation_held"].title == "GPUs held [%]"
    assert "cost_held" not in found  # nothing has a price
    assert "unfinished" not in found  # nothing is


def test_lost_jobs_appear_and_mark_the_row(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [HandJob("a", 0.0, [Stint(0.0, 10.0, {0: [0]})]), HandJob("b", 0.0, status="unfinished")]
    found = Comparison((by_hand(jobs, Cluster.uniform(1, 2)),))
    row = comparison_rows(found)[0]
    assert row.unfinished and row.values["unfinished"] == "1"
    Console(width=200).print(table(found))
    text = capsys.readouterr().out
    assert "fifo †" in text and "† JCT" in text


def test_rows_mark_the_best_and_say_what_a_policy_sees(comparison: Comparison) -> None:
    rows = {row.policy: row for row in comparison_rows(comparison)}
    means = {policy: comparison.summary[policy]["jct_mean_s"].mean for policy in comparison.policies}
    best = min(means, key=means.__getitem__)
    assert [policy for policy, row in rows.items() if "jct_mean_s" in row.best] == [best]
    assert rows["sjf"].future and rows["sjf"].sees == "demand, duration"
    assert not rows["fifo"].future
    assert "±" in rows["fifo"].values["jct_mean_s"]


def test_terminal_table(comparison: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=180).print(table(comparison))
    text = capsys.readouterr().out
    assert "★ sees true durations" in text
    assert "by hand on 4x4: 60 jobs, 3 seeds" in text
    assert text.count("• ") >= 4


def test_a_narrow_terminal_is_told_which_columns_it_lacks(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    Console(width=60).print(fitting_table(comparison, 60))
    narrow = capsys.readouterr().out
    assert all(len(line) <= 60 for line in narrow.splitlines())
    missing = " ".join(narrow.split()).partition("no room for: ")[2].partition(";")[0].split(", ")
    assert "sees" in missing and "restarts/job" in missing
    shown = narrow.partition("•")[0]
    assert all(column.label in (missing if column.label not in shown else shown) for column in columns(comparison))
    assert "--report" in narrow
    Console(width=300).print(fitting_table(comparison, 300))
    assert "no room" not in capsys.readouterr().out


def test_json_is_strict_and_complete(comparison: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    to_json(comparison, path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    found = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert found["command"] == "argosy compare --policies fifo,sjf"
    assert found["seeds"] == [0, 1, 2]
    assert [policy["name"] for policy in found["policies"]] == ["fifo", "sjf"]
    fifo = found["policies"][0]
    assert list(fifo["runs"][0]["metrics"]) == list(DEFINITIONS)
    assert fifo["runs"][0]["metrics"]["cost_held"] is None
    assert fifo["runs"][0]["settings"] == {"placer": "first-fit"}
    mean = math.fsum(run["metrics"]["jct_mean_s"] for run in fifo["runs"]) / 3
    assert fifo["aggregate"]["jct_mean_s"]["mean"] == pytest.approx(mean)
    assert {(p["policy"], p["against"]) for p in found["paired_jct"]} == {("fifo", "sjf"), ("sjf", "fifo")}
    assert len(found["sweep"]) == 8
    assert found["versions"]["argosy"]


def test_json_that_can_not_be_written(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        to_json(comparison, tmp_path / "missing" / "out.json")
