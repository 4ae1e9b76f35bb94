"""Runs on Ray: the same results as on this machine, for `argosy compare` and `argosy league`, and lost processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from argosy.cluster.cluster import Cluster
from argosy.sim.compare import Experiment, Recipe, run_all, tasks
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

ARGOSY = (sys.executable, "-c", "from argosy.cli.main import main; main()")
CLUSTER = Cluster.uniform(2, 4)
TIMES = ("cpu_s", "decision", "command")  # figures of how long it took, not of what came out
SCENARIO = """
title: a small cluster
description: for tests
jobs: {like: philly, count: 40, quick: 20, load: 1.2, seed: 1}
changes: {shortest: 1m, longest: 2h, largest_gpus: 4}
cluster: {nodes: [{count: 2, gpu: v100, gpus: 4}]}
"""


class Deadly:
    """A source of jobs that kills the process which asks for those of seed 1."""

    def trace(self, seed: int) -> Trace:
        if seed == 1:
            os._exit(9)
        return Recipe("philly", jobs=20, gpus=8.0).trace(seed)


def argosy(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ARGOSY, *map(str, words)], capture_output=True, text=True, timeout=300)


def figures(folder: Path, name: str, *words: object) -> Any:
    """Run a command, and return its figures without those of time."""
    found = argosy(*words, "--json", folder / name)
    assert found.returncode == 0, found.stderr
    return without_times(json.loads((folder / name).read_text()))


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if not any(word in name for word in TIMES)}
        return {name: without_times(one) for name, one in kept.items()}
    return [without_times(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_compare_gives_the_same_results_on_ray(tmp_path: Path) -> None:
    words = ["compare", "--like", "philly", "--jobs", 80, "--load", 1, "-c", "small", "--seeds", 2]
    words += ["-p", "fifo,srtf,themis,rltune", "--sweep", "load=0.7,1.2"]
    here = figures(tmp_path, "here.json", *words, "-j", 1)
    there = figures(tmp_path, "there.json", *words, "--ray", "local", "-j", 2)
    assert here == there
    assert len(here["policies"]) == 4 and here["sweep"]


@pytest.mark.slow
def test_the_league_gives_the_same_results_on_ray(tmp_path: Path) -> None:
    (tmp_path / "busy.yaml").write_text(SCENARIO)
    words = ["league", "-s", tmp_path / "busy.yaml", "-p", "fifo,las,joint", "--seeds", 2]
    here = figures(tmp_path, "here.json", *words, "-j", 1)
    assert here == figures(tmp_path, "there.json", *words, "--ray", "local", "-j", 2)


@pytest.mark.slow
def test_a_run_whose_process_dies_on_ray_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    outcomes = run_all(Experiment(Deadly(), CLUSTER, Settings()), tasks(["fifo"], [0, 1, 2]), workers=2, ray="local")
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert "Ray has lost its process" in str(outcomes[1].error)


@pytest.mark.parametrize("command", ["compare", "league"])
def test_an_address_without_ray_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "busy.yaml").write_text(SCENARIO)
    of = {"compare": ["--like", "philly", "--jobs", 20, "-c", "small"], "league": ["-s", tmp_path / "busy.yaml"]}
    found = argosy(command, *of[command], "-p", "fifo", "--ray", "127.0.0.1:1")
    assert found.returncode == 2 and "there is no Ray cluster at '127.0.0.1:1'" in found.stderr, found.stderr
    assert "→ give HOST:PORT" in found.stderr
