"""The cluster's benchmark: a test of random events that fails, is skipped or cannot begin has a row that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import cluster, cluster_tables
from benchmarks.harness import RESULTS

THREE = """
import pytest

def test_holds(record_property):
    record_property("event worker", 3)
    record_property("jobs", 2)

def test_fails(record_property):
    record_property("event worker", 1)
    assert not "a device was used twice"

def test_skipped():
    pytest.skip("Slurm is not installed")
"""


@pytest.mark.parametrize(
    ("name", "events", "outcome", "why"),
    [
        ("holds", {"worker": 3}, "held", ""),
        ("fails", {"worker": 1}, "failed", "a device was used twice"),
        ("skipped", {}, "skipped", "Slurm is not installed"),
        ("unknown", {}, "failed", "no match"),
    ],
)
def test_how_a_test_ended_is_recorded(
    tmp_path: Path, name: str, events: dict[str, int], outcome: str, why: str
) -> None:
    (tmp_path / "test_three.py").write_text(THREE)
    found = cluster.tried(f"{tmp_path}/test_three.py::test_{name}", {})
    assert (found["events"], found["outcome"], found["held"]) == (events, outcome, outcome == "held")
    assert why in found["why"] and bool(why) == bool(found["why"])


def test_the_table_shows_what_did_not_hold() -> None:
    failed = {"engine": "ray", "held": False, "outcome": "failed", "why": "a job was lost", "events": {"raylet": 2}}
    skipped = {"engine": "slurm", "held": False, "outcome": "skipped", "why": "Slurm is not installed"}
    rows = cluster_tables.table({"engines": {"cases": [skipped, failed]}})[1:]
    assert [(row[0], row[3]) for row in rows] == [
        ("random kills and cuts: Slurm", "skipped: Slurm is not installed"),
        ("random kills and cuts: Ray", "failed: a job was lost"),
    ]
    assert rows[1][1] == "2 events, 0 jobs, 0 workers"


def test_the_stored_figures_can_be_told() -> None:
    figures = json.loads((RESULTS / "cluster.json").read_text("utf-8"))["figures"]
    assert set(figures) <= set(cluster.PARTS)
    text = "\n".join(" | ".join(row) for row in [*cluster_tables.table(figures), *cluster_tables.demo_table(figures)])
    assert "survivors train on (silence 1.5 s)" in text and "before the fence (lease 4 s)" in text
