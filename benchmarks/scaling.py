"""How much faster `argosy compare` is with two worker processes than with one: wall seconds of the whole command.

Every library has one thread, so that a run with one worker uses one core. Both commands alternate, and must print the
same figures. Other work on the machine makes the ratio smaller: read it beside the load average.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.harness import ONE_CORE, ROOT, Json, Options, Row

SEEDS = (0, 1, 2, 3)
JOBS, QUICK_JOBS = 20_000, 2_500
CLUSTER, LOAD = "philly-80x8", 1.0
POLICIES = ("srtf", "las", "srsf", "fair", "tiresias-las")
WORKERS, REPEATS = 2, 3
TARGET = 1.9
VARYING = ("command", "decision_p50_us", "decision_p99_us", "cpu_s")  # in the output, too


def run(options: Options) -> Json:
    """Measure both commands in turn."""
    jobs = QUICK_JOBS if options.quick else JOBS
    taken: dict[int, list[Json]] = {1: [], WORKERS: []}
    answers = []
    for i in range(1 if options.quick else REPEATS):
        for workers, found in taken.items():
            figures, answer = compare(jobs, workers)
            found.append(figures | {"repetition": i})
            answers.append(answer)
    alone, together = (median(f["wall_s"] for f in found) for found in taken.values())
    return {
        "jobs": jobs,
        "cluster": CLUSTER,
        "policies": list(POLICIES),
        "runs": len(POLICIES) * len(SEEDS),
        "same_figures": all(answer == answers[0] for answer in answers),
        "cases": [
            {"workers": workers, "wall_s": median(f["wall_s"] for f in found), "each": found}
            for workers, found in taken.items()
        ],
        "ratio": alone / together,
    }


def compare(jobs: int, workers: int) -> tuple[Json, object]:
    """Run the command: how long it took, and what it wrote, apart from measured times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "argosy.cli.start", "compare", "--like", "philly", "--jobs", str(jobs)]
        command += ["--load", str(LOAD), "-c", CLUSTER, "-p", ",".join(POLICIES), "--seeds", str(len(SEEDS))]
        command += ["-j", str(workers), "--json", str(path)]
        load, began, cpu = os.getloadavg()[0], time.perf_counter(), children_cpu_s()
        subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_CORE}, stdout=subprocess.DEVNULL, check=True)
        figures = {"wall_s": time.perf_counter() - began, "cpu_s": children_cpu_s() - cpu, "load_average_before": load}
        return figures, without_times(json.loads(path.read_text("utf-8")))


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def without_times(value: object) -> object:
    """Leave out what differs from run to run."""
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in VARYING}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("workers", "wall s", "CPU s", "load average before", "ratio", "target", "same figures")]
    for c in figures["cases"]:
        loads = [f["load_average_before"] for f in c["each"]]
        ratio = figures["ratio"] if c["workers"] == WORKERS else None
        rows.append(
            (
                str(c["workers"]),
                f"{c['wall_s']:.1f}",
                f"{median(f['cpu_s'] for f in c['each']):.1f}",
                f"{min(loads):.1f} … {max(loads):.1f}",
                f"{ratio:.2f}×" if ratio is not None else "",
                f"≥ {TARGET:g}: {'yes' if ratio >= TARGET else 'no'}" if ratio is not None else "",
                ("yes" if figures["same_figures"] else "no") if ratio is not None else "",
            )
        )
    return rows
