from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from command_line import Argosy

from argosy.sim.metrics import DEFINITIONS
from argosy.sim.settings import Settings


def test_json_has_metrics_counts_and_settings(argosy: Argosy, trace: Path) -> None:
    answer = argosy("simulate", "--trace", trace, "--cluster", "small", "--policy", "srtf", "-o", "json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["counts"] == {
        "jobs": 6,
        "completed": 6,
        "failed": 0,
        "killed": 0,
        "cancelled": 0,
        "refused": 0,
        "unfinished": 0,
    }
    assert set(found["metrics"]) | set(found["counts"]) == set(DEFINITIONS)
    assert set(found["settings"]) == {field.name for field in fields(Settings)}
    assert found["cluster"] == {"name": "small", "nodes": 4, "gpus": 16}
    assert found["policy"] == "srtf" and found["sees_true_durations"]


def test_settings_reach_the_run(argosy: Argosy, trace: Path) -> None:
    ideal = ["--perf", "rigid", "--overheads", "none", "--seed", "7"]
    answer = argosy("simulate", "-t", trace, "-c", "small", "-p", "fifo", "-o", "json", *ideal)
    found = json.loads(answer.out)
    assert found["settings"]["seed"] == 7
    # by hand: a and b fill the cluster; c starts at 3010, when b ends; d at 3510, when c ends; e, which needs
    # all GPUs, at 4000, when a ends; f, behind it, at 4200
    jct = {"a": 4000, "b": 3000, "c": 3510 - 20, "d": 3610 - 30, "e": 4200 - 40, "f": 4250 - 50}
    assert found["metrics"]["makespan_s"] == 4250
    assert found["metrics"]["jct_mean_s"] == pytest.approx(sum(jct.values()) / 6)


def test_yaml_is_the_same_answer(argosy: Argosy, trace: Path) -> None:
    arguments = ["simulate", "-t", trace, "-c", "small", "-p", "fifo"]
    as_json = json.loads(argosy(*arguments, "-o", "json").out)
    as_yaml = yaml.safe_load(argosy(*arguments, "-o", "yaml").out)
    for found in (as_json, as_yaml):
        del found["cpu_s"]
        found["metrics"] = {k: v for k, v in found["metrics"].items() if not k.startswith("decision_")}
    assert as_yaml == as_json


def test_table_shows_the_run(argosy: Argosy, trace: Path) -> None:
    answer = argosy("simulate", "-t", trace, "-c", "small", "-p", "las:quantum_s=60")
    assert "las:quantum_s=60: jobs on small, 6 jobs" in answer.out
    assert "JCT mean" in answer.out and "queueing" in answer.out


def test_generated_jobs(argosy: Argosy) -> None:
    arguments = ["simulate", "--like", "philly", "--jobs", "50", "--load", "0.8", "-c", "small", "-p", "fifo"]
    first, second = (json.loads(argosy(*arguments, "-o", "json").out) for _ in range(2))
    other = json.loads(argosy(*arguments, "-o", "json", "--seed", "1").out)
    assert first["trace"] == "philly-50-seed0" and other["trace"] == "philly-50-seed1"
    assert first["metrics"]["jct_mean_s"] == second["metrics"]["jct_mean_s"]
    assert first["metrics"]["jct_mean_s"] != other["metrics"]["jct_mean_s"]


def test_log_and_report_are_written_in_a_new_folder(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    log, report = tmp_path / "out" / "events.jsonl", tmp_path / "out" / "run.html"
    answer = argosy("simulate", "-t", trace, "-c", "small", "-p", "fifo", "--log", log, "--report", report)
    assert answer.code == 0
    assert str(log) in answer.err and str(report) in answer.err
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["job"] for e in events if e["event"] == "submit"] == list("abcdef")
    assert "argosy simulate" in report.read_text()


def test_the_window_limits_the_jobs(argosy: Argosy, trace: Path) -> None:
    answer = argosy("simulate", "-t", trace, "-c", "small", "-p", "fifo", "-o", "json", "--window", "10..40s")
    found = json.loads(answer.out)
    assert found["counts"]["jobs"] == 3
    assert found["window_s"] == [10, 40]


def test_why_tells_a_jobs_story(argosy: Argosy, trace: Path) -> None:
    arguments = ["simulate", "-t", trace, "-c", "small", "-p", "fifo", "--why", "c"]
    answer = argosy(*arguments)
    assert answer.code == 0
    assert "Job c under fifo on small" in answer.out
    assert "JCT mean" not in answer.out
    as_json = json.loads(argosy(*arguments, "-o", "json").out)
    assert as_json["job"] == "c" and as_json["story"][0] == answer.out.splitlines()[0]


def test_progress_goes_to_stderr_when_asked_for(argosy: Argosy, trace: Path) -> None:
    arguments = ["simulate", "-t", trace, "-c", "small", "-p", "fifo", "-o", "json"]
    quiet, loud = argosy(*arguments), argosy(*arguments, "--progress")
    assert quiet.err == ""
    assert "fifo on small" in loud.err
    json.loads(loud.out)
