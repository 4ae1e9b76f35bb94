"""Real jobs against their simulation: twenty plain commands on four slots of this machine, preempted by tiresias-las.

A daemon runs `sleep` jobs, which lose all their work when they are stopped, under `tiresias-las:limits=20,60`. Then
`argosy fidelity` simulates the same jobs. The jobs are the same in each repetition; only the machine differs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Json, Options, Row

SEEDS = (0, 1, 2)  # repetitions
POLICY = "tiresias-las:limits=20,60"
SECONDS = (5, 12, 30, 8, 25, 10, 18, 40, 6, 14, 9, 22, 7, 16, 11, 5, 20, 13, 8, 10)
EVERY_S, START_LIMIT_S = 1.5, 300.0
MEAN_TARGET, JOB_TARGET = 0.05, 0.20


def run(options: Options) -> Json:
    seconds = SECONDS[:4] if options.quick else SECONDS
    return {"policy": POLICY, "runs": [repetition(seconds) for _ in SEEDS[: 1 if options.quick else None]]}


def repetition(seconds: tuple[int, ...]) -> Json:
    """Run the jobs on a daemon of their own, and return what `argosy fidelity` says."""
    with tempfile.TemporaryDirectory() as folder:
        home, log = Path(folder) / "home", Path(folder) / "out"
        argosy = [sys.executable, "-m", "argosy.cli.main"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ARGOSY_")}
        environment["ARGOSY_HOME"] = str(home)

        def call(*words: str) -> str:
            command = [*argosy, *words]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

        shape = ("--nodes", "2", "--slots", "2", "--policy", POLICY)
        with log.open("wb") as out:
            daemon = subprocess.Popen([*argosy, "serve", *shape], env=environment, stdout=out, stderr=out)
        try:
            limit = time.monotonic() + START_LIMIT_S
            while "argosy serves at" not in log.read_text():
                if daemon.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(log.read_text())
                time.sleep(0.2)
            first = call("submit", "--run", "sleep 1", "--clean").strip()  # the policy's process has to start
            call("wait", first, "--timeout", "5m")
            jobs = []
            for number, length in enumerate(seconds, 1):
                gpus = "2" if number % 6 == 0 else "1"
                jobs.append(call("submit", "--run", f"sleep {length}", "--gpus", gpus, "--clean").strip())
                time.sleep(EVERY_S)
            call("wait", *jobs, "--timeout", "15m")
            found: Json = json.loads(call("fidelity", "--last", str(len(jobs)), "-o", "json"))
        finally:
            daemon.send_signal(signal.SIGINT)
            daemon.wait(60)
    figures = ("error", "error_before_fit", "worst_job", "real_mean_s", "predicted_mean_s", "costs_s")
    return {name: found[name] for name in figures} | {"jobs": len(jobs), "load": os.getloadavg()[0]}


def table(figures: Json) -> list[Row]:
    rows: list[Row] = [
        ("jobs", "really, s", "predicted, s", "error", "before the fit", "worst job", "load average", "met")
    ]
    for one in figures["runs"]:
        fits = abs(one["error"]) <= MEAN_TARGET and one["worst_job"] <= JOB_TARGET
        mean = (f"{one['real_mean_s']:.1f}", f"{one['predicted_mean_s']:.1f}", f"{one['error']:+.1%}")
        rest = (
            f"{one['error_before_fit']:+.1%}",
            f"{one['worst_job']:.0%}",
            f"{one['load']:.0f}",
            "yes" if fits else "**no**",
        )
        rows.append((str(one["jobs"]), *mean, *rest))
    return rows
