"""What one waits for before anything happens: Python, imports, and kernels, compiled or from the cache.

Figures of commands are CPU seconds (user and system) of the command and its worker processes, with warm caches: those
depend least on what else the machine does.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.harness import ROOT, Json, Options, Row, verdict

SEEDS = ()
REPEATS = 7
SERVE_LIMIT_S = 120.0
FIRST_RUN_TARGET_S = 15.0  # with an empty cache
FIRST_RUN = """
import time
began, cpu = time.perf_counter(), time.process_time()
from argosy.cluster.cluster import Cluster
from argosy.sim.run import simulate
from argosy.workload.trace import Job, Trace
imported = time.perf_counter()
simulate(Trace.of_jobs([Job("first", 0.0, 1.0, 1)]), Cluster.uniform(1, 1), "fifo")
print(imported - began, time.perf_counter() - imported, time.process_time() - cpu)
"""
ARGOSY = ("-m", "argosy.cli.start")
POLICIES = "fifo,sjf,srtf,las,fair,drf,random"
TRACE = "400-jobs.csv"
LINES = {  # commands that need no daemon, by what the table calls them
    "python -c pass": ("-c", "pass"),
    "import argosy": ("-c", "import argosy"),
    "argosy --help": (*ARGOSY, "--help"),
    "argosy simulate, 400 jobs": (*ARGOSY, "simulate", "-t", TRACE, "-c", "small", "-p", "srtf"),
    "argosy compare, 7 policies × 300 jobs": (
        *ARGOSY,
        "compare",
        "--like",
        "philly",
        "--jobs",
        "300",
        "--load",
        "1",
        "-c",
        "small",
        "-p",
        POLICIES,
    ),
}
LIVE_LINES = {  # commands that talk to a daemon
    "argosy submit": (*ARGOSY, "submit", "--run", "true", "--gpus", "1"),
    "argosy queue": (*ARGOSY, "queue"),
    "argosy status": (*ARGOSY, "status", "1"),
}
TARGETS_S = {
    "argosy --help": 0.25,
    "argosy submit": 0.4,
    "argosy queue": 0.4,
    "argosy status": 0.4,
    "argosy simulate, 400 jobs": 1.0,
    "argosy compare, 7 policies × 300 jobs": 4.0,
}


def run(options: Options) -> Json:
    repeats = 2 if options.quick else REPEATS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # byte code is a cache too, and an environment may forbid Python to write any
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONPATH": str(ROOT / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        generate = (*ARGOSY, "generate", "--like", "philly", "--jobs", "400", "--load", "0.9", "--gpus", "16")
        cpu_s((*generate, "-o", TRACE), folder, environment)
        figures = measured(LINES, repeats, folder, environment)
        with daemon(folder, environment) as live:
            figures |= measured(LIVE_LINES, repeats, folder, live)
    answer: Json = {"cpu_s": figures}
    if not options.quick:
        with tempfile.TemporaryDirectory() as empty:
            fresh = {**os.environ, "XDG_CACHE_HOME": empty}
            fresh.pop("NUMBA_CACHE_DIR", None)
            answer["first_run_cold_s"] = first_run(fresh)
            answer["first_run_warm_s"] = first_run(fresh)
    return answer


def measured(
    lines: Mapping[str, Sequence[str]], repeats: int, folder: Path, environment: Mapping[str, str]
) -> dict[str, float]:
    """Run every line once to warm its caches, and then `repeats` times; the median of these."""
    found = {}
    for name, line in lines.items():
        cpu_s(line, folder, environment)
        found[name] = median(cpu_s(line, folder, environment) for _ in range(repeats))
    return found


def cpu_s(line: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """CPU seconds of one Python process and of those that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *line], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def daemon(folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Run a daemon with the fake backend; yields the environment in which commands find it."""
    home, output = folder / "home", folder / "serve.out"
    command = [sys.executable, *ARGOSY, "serve", "--home", str(home), "--cluster", "fake", "--policy", "fifo"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        limit = time.monotonic() + SERVE_LIMIT_S
        while "argosy serves at" not in output.read_text():
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"the daemon did not start: {output.read_text()}")
            time.sleep(0.1)
        yield {**environment, "ARGOSY_HOME": str(home)}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SERVE_LIMIT_S)


def first_run(environment: Mapping[str, str]) -> Json:
    """Time the imports and the first job of all: with an empty cache the kernels are compiled."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RUN],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    imports, simulation, cpu = (float(word) for word in done.stdout.split())
    return {"imports": imports, "simulation": simulation, "cpu": cpu}


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("what", "CPU s", "target")]
    for name in (*LINES, *LIVE_LINES):
        seconds = figures["cpu_s"][name]
        rows.append((name, f"{seconds:.3f}", verdict(seconds, TARGETS_S[name]) if name in TARGETS_S else ""))
    for cache in ("cold", "warm"):
        if f"first_run_{cache}_s" in figures:
            first = figures[f"first_run_{cache}_s"]
            rows.append((f"imports before a first run, {cache} cache (wall)", f"{first['imports']:.3f}", ""))
            rows.append((f"a first run of one job, {cache} cache (wall)", f"{first['simulation']:.3f}", ""))
            told = verdict(first["cpu"], FIRST_RUN_TARGET_S) if cache == "cold" else ""
            rows.append((f"both, {cache} cache", f"{first['cpu']:.3f}", told))
    return rows
