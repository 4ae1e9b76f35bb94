"""`argosy advise` as an operator runs it: how long it takes for 5,000 jobs, with start-up and all processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Json, Options, Row

SEEDS = (0,)
JOBS, GPUS, LOAD = 5_000, 128, 1.0
TARGET_S = 60.0  # on two cores
NODES = "nodes:\n  - {{count: {nodes}, gpu: v100, gpus: 8}}\n"
_RUNS = re.compile(r"^(\d+) runs in", re.MULTILINE)


def run(options: Options) -> Json:
    """Time the command twice: the first time may have to compile kernels, which are kept."""
    jobs = 300 if options.quick else JOBS
    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        trace, cluster = Path(folder) / "jobs.csv", Path(folder) / "cluster.yaml"
        cluster.write_text(NODES.format(nodes=GPUS // 8))
        shape = ("--like", "philly", "--jobs", jobs, "--load", LOAD, "--gpus", GPUS, "--seed", SEEDS[0])
        _argosy("generate", *shape, "-o", trace)
        times = [_timed(trace, cluster) for _ in range(1 if options.quick else 2)]
    return {"jobs": jobs, "gpus": GPUS, "load": LOAD, "cores": os.cpu_count(), "times": times}


def _timed(trace: Path, cluster: Path) -> Json:
    load, began = os.getloadavg()[0], time.perf_counter()
    cpu = os.times()
    done = _argosy("advise", "-t", trace, "-c", cluster, "-o", "json", "--no-progress")
    seconds, after = time.perf_counter() - began, os.times()
    found, runs = json.loads(done.stdout), _RUNS.search(done.stderr)
    return {
        "seconds": seconds,
        "cpu_s": after.children_user + after.children_system - cpu.children_user - cpu.children_system,
        "runs": int(runs[1]) if runs else None,
        "policies": [policy["name"] for policy in found["policies"]],
        "best": found["advice"]["best"],
        "load_average_before": load,
    }


def _argosy(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "argosy.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def table(figures: Json) -> list[Row]:
    rows: list[Row] = [("what", "runs", "took", "of CPU", "target", "met", "load average before")]
    for one in figures["times"]:
        what = f"argosy advise, {figures['jobs']:,} jobs, {figures['cores']} cores"
        met = "yes" if one["seconds"] <= TARGET_S else "**no**"
        took = (f"{one['seconds']:.1f} s", f"{one['cpu_s']:.1f} s")
        rows.append((what, str(one["runs"]), *took, f"≤ {TARGET_S:g} s", met, f"{one['load_average_before']:.1f}"))
    return rows
