"""What one waits for before anything happens: Python, imports, and kernels, compiled or from the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.harness import ROOT, Json, Options, Row, verdict

SEEDS = ()
REPEATS = 7
TARGET_HELP_S = 0.3
FIRST_RUN = """
import time
began = time.perf_counter()
from argosy.cluster.cluster import Cluster
from argosy.sim.run import simulate
from argosy.workload.trace import Job, Trace
imported = time.perf_counter()
simulate(Trace.of_jobs([Job("first", 0.0, 1.0, 1)]), Cluster.uniform(1, 1), "fifo")
print(imported - began, time.perf_counter() - imported)
"""
LINES = {
    "python": ("-c", "pass"),
    "import_argosy": ("-c", "import argosy"),
    "argosy_help": ("-m", "argosy.cli.main", "--help"),
}


def run(options: Options) -> Json:
    repeats = 2 if options.quick else REPEATS
    wall = {name: median(timed(line) for _ in range(repeats)) for name, line in LINES.items()}
    figures: Json = {"wall_s": wall}
    if not options.quick:
        with tempfile.TemporaryDirectory() as empty:
            fresh = {**os.environ, "XDG_CACHE_HOME": empty}
            fresh.pop("NUMBA_CACHE_DIR", None)
            figures["first_run_cold_s"] = first_run(fresh)
            figures["first_run_warm_s"] = first_run(fresh)
    return figures


def timed(line: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *line], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def first_run(environment: Mapping[str, str]) -> Json:
    """Imports, and the first job of all: with an empty cache the kernels are compiled."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RUN],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    imports, simulation = (float(word) for word in done.stdout.split())
    return {"imports": imports, "simulation": simulation}


def table(figures: Json) -> Sequence[Row]:
    wall = figures["wall_s"]
    rows: list[Row] = [("what", "wall s", "target")]
    rows += [
        ("python -c pass", f"{wall['python']:.3f}", ""),
        ("import argosy", f"{wall['import_argosy']:.3f}", ""),
        ("argosy --help", f"{wall['argosy_help']:.3f}", verdict(wall["argosy_help"], TARGET_HELP_S)),
    ]
    for cache in ("cold", "warm"):
        if f"first_run_{cache}_s" in figures:
            first = figures[f"first_run_{cache}_s"]
            rows.append((f"imports before a first run, {cache} cache", f"{first['imports']:.3f}", ""))
            rows.append((f"a first run of one job, {cache} cache", f"{first['simulation']:.3f}", ""))
    return rows
