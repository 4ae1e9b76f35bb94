"""A million jobs on 10,000 GPUs under fifo with back-fill, and how the time grows with the number of jobs.

The jobs are drawn like Philly's and arrive so fast that they ask for 1.3 times what the cluster has: the
queue grows all the time, which is where simulators become quadratic. Drawing them is not in the figures.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import Json, Options, Row, Watch, measure, verdict, warm

SEEDS = (1,)
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
QUICK = (3_000, 10_000, 30_000)
NODES, GPUS = 1250, 8
LOAD = 1.3
POLICY = "fifo-backfill"
TARGET_S, TARGET_MIB = 6.0, 1024.0
STAGES = ("read", "set_up", "run", "metrics")


def run(options: Options) -> Json:
    cases = []
    for jobs in QUICK if options.quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "jobs.parquet")
            measure("million", "draw", {"jobs": jobs, "path": path})
            cases.append(measure("million", "case", {"path": path}))
    return {"policy": POLICY, "gpus": NODES * GPUS, "load": LOAD, "cases": cases, "growth": growth(cases)}


def draw(jobs: int, path: str) -> Json:
    from argosy.workload.synth.generate import generate

    generate("philly", jobs, SEEDS[0], gpus=NODES * GPUS, load=LOAD).write(path)
    return {}


def case(path: str) -> Json:
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.metrics import metrics
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Trace

    warm()
    watch = Watch()
    with watch("read"):
        trace = Trace.read(path)
    with watch("set_up"):
        engine = Engine(trace, Cluster.uniform(NODES, GPUS), create(POLICY), Settings(seed=SEEDS[0]))
    with watch("run"):
        result = engine.run()
        del engine
    with watch("metrics"):
        figures = metrics(result)
    total = sum(watch.cpu_s.values())
    return {
        "jobs": len(trace),
        "cpu_s": {**watch.cpu_s, "total": total},
        "us_per_job": 1e6 * total / len(trace),
        "offered_load": trace.offered_load(NODES * GPUS),
        "queueing_mean_s": figures["queueing_mean_s"],
        "events": result.events.height,
    }


def growth(cases: Sequence[Json]) -> Json:
    """The exponent p in seconds ~ jobs^p, over all sizes and between the last two."""
    jobs = np.log([c["jobs"] for c in cases])
    fits = {}
    for stage in ("run", "total"):
        seconds = np.log([c["cpu_s"][stage] for c in cases])
        fits[f"{stage}_exponent"] = float(np.polyfit(jobs, seconds, 1)[0])
        fits[f"{stage}_exponent_at_the_end"] = float((seconds[-1] - seconds[-2]) / (jobs[-1] - jobs[-2]))
    return fits


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [
        ("jobs", *(s.replace("_", "-") for s in STAGES), "total s", "µs a job", "target", "MiB", "target MiB")
    ]
    for c in figures["cases"]:
        full = math.isclose(c["jobs"], SIZES[-1])
        total = c["cpu_s"]["total"]
        rows.append(
            (
                f"{c['jobs']:,}",
                *(f"{c['cpu_s'][s]:.2f}" for s in STAGES),
                f"{total:.2f}",
                f"{c['us_per_job']:.1f}",
                verdict(total, TARGET_S) if full else "",
                f"{c['peak_rss_mib']:.0f}",
                verdict(c["peak_rss_mib"], TARGET_MIB) if full else "",
            )
        )
    return rows


def growth_table(figures: Json) -> Sequence[Row]:
    fits = figures["growth"]
    rows: list[Row] = [("exponent of jobs", "over all sizes", "between the last two")]
    rows += [
        (stage, f"{fits[f'{stage}_exponent']:.2f}", f"{fits[f'{stage}_exponent_at_the_end']:.2f}")
        for stage in ("run", "total")
    ]
    return rows
