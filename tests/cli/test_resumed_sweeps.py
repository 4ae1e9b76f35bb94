"""A sweep that was interrupted goes on where it was; whatever its figures depend on makes a cell run again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Argosy

from argosy.cluster.cluster import Cluster
from argosy.sim.compare import Experiment, Task
from argosy.sim.kept_cells import SUFFIX, KeptCells
from argosy.sim.settings import Settings
from argosy.sim.variation import Variation
from argosy.workload.resample import ResampledDays
from argosy.workload.trace import Job, Trace

LIMIT_S = 300.0
LOADS = "load=0.5..1.5:40"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "week.csv"
    rows = "".join(f"j{i},{40 * i},{600 + 37 * (i % 50)},{1 + i % 4}\n" for i in range(600))
    path.write_text("job_id,submit_s,duration_s,gpus\n" + rows)
    return path


@pytest.mark.slow(30)
def test_a_killed_sweep_goes_on(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    words = ["compare", "-t", trace, "-c", "small", "-p", "srsf,qssf", "--estimator", "history", "--sweep", LOADS]
    figures = tmp_path / "sweep.json"
    command = [sys.executable, "-m", "argosy.cli.main", *map(str, words), "--json", str(figures), "-j", "1"]
    cells = figures.with_name(figures.name + SUFFIX)
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + LIMIT_S
    while not (cells.exists() and cells.read_text().count("\n") >= 3):
        assert running.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait(LIMIT_S)
    assert not figures.exists()
    with cells.open("a") as file:
        file.write('{"key": "cut o')  # as if it had been killed in the middle of a line
    had = len(cells.read_text().splitlines()) - 1
    assert 3 <= had < 80

    again = argosy(*words, "--json", figures, "-j", "1")
    assert again.code == 0, again.err
    assert f"{had} runs of the sweep are known from {cells}" in again.err
    fresh = argosy(*words, "--json", tmp_path / "other.json", "-j", "2")
    assert fresh.code == 0 and "are known" not in fresh.err
    one, two = (json.loads(path.read_text())["sweep"] for path in (figures, tmp_path / "other.json"))
    assert len(one) == 80
    for ours, theirs in zip(one, two):
        timed = {name for name in ours["metrics"] if name.startswith("decision_")}
        for point in (ours, theirs):
            point["metrics"] = {k: v for k, v in point["metrics"].items() if k not in timed}
        assert ours == theirs

    third = argosy(*words, "--json", figures, "-j", "1")
    assert "80 runs of the sweep are known" in third.err
    other = argosy(*words, "--json", figures, "--min-run-s", "600")
    assert other.code == 0 and "are known" not in other.err


def test_a_plan_goes_on(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    ask = ("plan-capacity", "-t", trace, "-c", "small", "--vary", "nodes=4..32:4", "--draws", 1, "-o", "json")
    ask += ("--target", "wait.p90 < 10m", "--picture", tmp_path / "curve.png")
    first = argosy(*ask)
    cells = tmp_path / f"curve.png{SUFFIX}"
    kept = cells.read_text()
    assert first.code == 0 and kept.count("\n") == sum(len(p["figures"]) for p in json.loads(first.out)["points"])
    again = argosy(*ask)
    assert json.loads(again.out) == json.loads(first.out) and cells.read_text() == kept
    other = argosy(*ask, "--target", "wait.p90 < 5m")
    assert other.code == 0 and cells.read_text() != kept, "another question is another cell"


def test_what_makes_a_cell_run_again(tmp_path: Path) -> None:
    trace = Trace.of_jobs([Job(f"j{i}", 10.0 * i, 60.0, 1) for i in range(9)], "week")
    experiment = Experiment(ResampledDays(trace, 0), Cluster.uniform(1, 4), Settings(seed=3))
    task, path = Task("fifo", 3, (Variation("load", 0.5),)), tmp_path / "cells"
    KeptCells(path, experiment).keep(task, {"jct_mean_s": 1.5, "rho_max": float("nan")})

    def find(changed: Experiment = experiment, asked: Task = task, question: str = "") -> object:
        return KeptCells(path, changed, question).find(asked)

    assert find()["jct_mean_s"] == 1.5  # type: ignore[index]
    longer = Trace.of_jobs([Job(f"j{i}", 10.0 * i, 61.0, 1) for i in range(9)], "week")
    for other in (
        replace(experiment, source=ResampledDays(longer, 0)),
        replace(experiment, source=ResampledDays(trace, 1)),
        replace(experiment, cluster=Cluster.uniform(2, 4)),
        replace(experiment, settings=Settings(seed=3, min_run_s=1.0)),
        replace(experiment, window=(0.0, 50.0)),
    ):
        assert find(other) is None
    for asked in (replace(task, seed=4), replace(task, policy="srtf"), replace(task, at=(Variation("load", 0.6),))):
        assert find(asked=asked) is None
    assert find(question="wait.p90 < 5m") is None


def test_files_that_settings_name_count(tmp_path: Path) -> None:
    costs = tmp_path / "costs.csv"
    costs.write_text("one")
    trace = Trace.of_jobs([Job("j", 0.0, 60.0, 1)], "one")
    experiment = Experiment(trace, Cluster.uniform(1, 4), Settings(overheads=str(costs)))
    task, path = Task("fifo", 0, (Variation("load", 0.5),)), tmp_path / "cells"
    KeptCells(path, experiment).keep(task, 1.0)
    assert KeptCells(path, experiment).find(task) == 1.0
    costs.write_text("two")
    assert KeptCells(path, experiment).find(task) is None


def test_nothing_is_kept_without_an_output(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    assert argosy("compare", "-t", trace, "-c", "small", "-p", "fifo", "--sweep", "load=0.5,1").code == 0
    assert not list(tmp_path.glob(f"*{SUFFIX}"))
