"""70,717 jobs of Philly on 80 × 8 GPUs, where the queue is long, and on Philly's nodes, where it is short.

Everything is on: preemption, consolidation, overheads, CPU and memory limits, metrics, and the event log as
a file. CPU seconds of one core, without Python's start-up and the loading of compiled kernels.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.harness import Json, Options, Row, Watch, measure, verdict, warm

if TYPE_CHECKING:
    from argosy.sim.engine import Engine
    from argosy.workload.trace import Trace

SEEDS = (0,)
JOBS = 70_717
TRACE = "traces/philly_pass_80d.csv.gz"
CLUSTERS = ("philly-80x8", "philly")
POLICIES = ("fifo", "fifo-backfill", "srtf", "las", "srsf", "tiresias-las")
TARGETS = {"fifo": 0.6, "srtf": 1.5, "las": 1.8, "srsf": 1.8, "tiresias-las": 2.0}  # CPU s, on philly-80x8
TARGET_MIB = 1024.0
STAGES = ("read", "set_up", "run", "metrics", "log")


def run(options: Options) -> Json:
    file = options.data / TRACE if options.data is not None else None
    source = str(file) if file is not None and file.exists() else None
    jobs = 5000 if options.quick else JOBS
    cases = []
    for cluster in CLUSTERS:
        for policy in POLICIES:
            where = {"cluster": cluster, "policy": policy, "source": source, "jobs": jobs}
            figures = measure("philly", "case", where)
            shares = measure("philly", "profile", where)
            cases.append({"cluster": cluster, "policy": policy, **figures, "run_shares": shares["run_shares"]})
    return {"trace": TRACE if source else f"generated, like philly, {jobs} jobs, seed 0", "cases": cases}


def load(source: str | None, jobs: int) -> Trace:
    from argosy.workload.trace import Trace

    if source is None:
        from argosy.workload.synth.generate import generate

        return generate("philly", jobs, SEEDS[0])
    trace = Trace.read(source)
    return trace if len(trace) <= jobs else Trace.of(trace.frame.head(jobs), trace.name)


def case(cluster: str, policy: str, source: str | None, jobs: int) -> Json:
    """One run with all that a person would wait for."""
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.metrics import metrics
    from argosy.sim.run import write_log
    from argosy.sim.settings import Settings

    warm()
    watch = Watch()
    with watch("read"):
        trace, machines = load(source, jobs), Cluster.read(cluster)
    with watch("set_up"):
        engine = Engine(trace, machines, create(policy), Settings(seed=SEEDS[0], oversized="skip"))
    with watch("run"):
        result = engine.run()
    with watch("metrics"):
        figures = metrics(result)
    with tempfile.TemporaryDirectory() as folder, watch("log"):
        write_log(result, Path(folder) / "events.jsonl")
        log_bytes = (Path(folder) / "events.jsonl").stat().st_size
    return {
        "cpu_s": {**watch.cpu_s, "total": sum(watch.cpu_s.values())},
        "jobs": len(trace),
        "decisions": len(result.decision_ns),
        "events": result.events.height,
        "log_bytes": log_bytes,
        "preemptions": int(result.jobs["preemptions"].sum()),
        "jct_mean_s": figures["jct_mean_s"],
        "queueing_mean_s": figures["queueing_mean_s"],
    }


def profile(cluster: str, policy: str, source: str | None, jobs: int) -> Json:
    """Where the run's time goes: compiled kernels, the policy, and the Python between the two."""
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings

    warm()
    settings = Settings(seed=SEEDS[0], oversized="skip")
    engine = Engine(load(source, jobs), Cluster.read(cluster), create(policy), settings)
    compiled = Timed(engine)
    began = time.perf_counter_ns()
    result = engine.run()
    whole = time.perf_counter_ns() - began
    policy_ns = int(result.decision_ns.sum())
    shares = {"kernels": compiled.ns / whole, "policy": policy_ns / whole}
    shares["python_between"] = 1.0 - sum(shares.values())
    return {"run_shares": shares, "kernel_calls": compiled.calls}


class Timed:
    """Stands in the kernels' door and counts what passes."""

    def __init__(self, engine: Engine) -> None:
        self.ns = self.calls = 0
        self._enter = engine.enter
        engine.enter = cast(Any, self)

    def __call__(self, *arguments: Any) -> int:
        began = time.perf_counter_ns()
        code: int = self._enter(*arguments)
        self.ns += time.perf_counter_ns() - began
        self.calls += 1
        return code


def table(figures: Json) -> Sequence[Row]:
    stages = [stage.replace("_", "-") for stage in STAGES]
    rows: list[Row] = [("cluster", "policy", *stages, "total s", "target", "MiB", "decisions")]
    for c in figures["cases"]:
        seconds = [f"{c['cpu_s'][stage]:.2f}" for stage in STAGES]
        total, target = c["cpu_s"]["total"], TARGETS.get(c["policy"])
        told = verdict(total, target) if target is not None and c["cluster"] == CLUSTERS[0] else ""
        rows.append(
            (
                c["cluster"],
                c["policy"],
                *seconds,
                f"{total:.2f}",
                told,
                f"{c['peak_rss_mib']:.0f}",
                f"{c['decisions']:,}",
            )
        )
    return rows


def event_table(figures: Json) -> Sequence[Row]:
    """Costs per row of the event log: the yard-stick that does not depend on the trace."""
    rows: list[Row] = [("cluster", "policy", "events", "run µs each", "log µs each", "bytes each")]
    for c in figures["cases"]:
        cpu, events = c["cpu_s"], c["events"]
        rows.append(
            (
                c["cluster"],
                c["policy"],
                f"{events:,}",
                f"{1e6 * cpu['run'] / events:.2f}",
                f"{1e6 * cpu['log'] / events:.2f}",
                f"{c['log_bytes'] / events:.0f}",
            )
        )
    return rows


def profile_table(figures: Json) -> Sequence[Row]:
    """Shares of the total, the run split by its own shares."""
    rows: list[Row] = [
        ("cluster", "policy", "reading", "set-up", "kernels", "policy", "Python between", "metrics", "log")
    ]
    for c in figures["cases"]:
        cpu, run = c["cpu_s"], c["run_shares"]
        inside = [cpu["run"] * run[part] for part in ("kernels", "policy", "python_between")]
        parts = [cpu["read"], cpu["set_up"], *inside, cpu["metrics"], cpu["log"]]
        rows.append((c["cluster"], c["policy"], *(f"{100 * p / cpu['total']:.0f} %" for p in parts)))
    return rows
