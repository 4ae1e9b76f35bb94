"""How long a decision of a learned policy takes: the call of the policy at the beginning of a slot.

So many jobs are there at once and as many GPUs as jobs; some end in every slot, and as many come. Only slots count, in
which everything is divided anew: between them a decision is to leave all as it is. CPU time stands beside the time on
the clock, which on a busy machine is longer.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness import Json, measure, warm
from benchmarks.learning_jct import Study
from benchmarks.learning_policies import learned
from benchmarks.learning_runs import SLOT_S

SEED = 2
CROWDS = ((200, 300, 5.0), (10_000, 30, 50.0))  # jobs, slots that are timed, target in ms
QUICK = ((50, 10, 5.0),)
WARM = 3  # slots that do not count
LIFE = 30  # slots that a job is there, about: so many parts of the crowd are new in every slot


def latency(study: Study) -> Json:
    cases = []
    for jobs, slots, target_ms in QUICK if study.quick else CROWDS:
        for policy, spec in learned("rough", study.weights).items():
            found = measure("learning_latency", "decide", {"policy": spec, "jobs": jobs, "slots": slots})
            cases.append(found | {"policy": policy, "target_ms": target_ms})
    return {"seeds": [SEED], "cases": cases}


def decide(policy: str, jobs: int, slots: int) -> Json:
    """One policy and one crowd, in a process of its own."""
    import polars as pl

    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings
    from argosy.workload.synth import generate
    from argosy.workload.trace import Trace

    warm()
    each = max(1, jobs // LIFE)
    later = np.repeat(SLOT_S * np.arange(1, WARM + slots + 1), each)
    drawn = generate("dl2", jobs + len(later), SEED, gpus=float(jobs)).frame
    frame = drawn.with_columns(submit_s=pl.Series(np.concatenate([np.zeros(jobs), later])))
    machines = Cluster.uniform(jobs // 2, 2, cpus=8.0, memory_gib=48.0)
    settings = Settings(seed=SEED, ps_speeds="rough", overheads="none", locality=False, min_run_s=0.0)
    engine = Engine(Trace.of(frame, "crowd"), machines, create(policy), settings, watch=lambda engine: None)
    seen: list[tuple[int, int, int]] = []  # jobs, number of the decision, its CPU nanoseconds
    asked = 0
    while len(seen) < WARM + slots and engine.advance():
        active, began = len(engine.view.jobs), time.thread_time_ns()
        engine.ask()
        if engine.now % SLOT_S == 0:
            seen.append((active, asked, time.thread_time_ns() - began))
        asked += 1
    there, at, cpu_ns = np.array(seen[WARM:]).T
    ms, cpu_ms = engine.result().decision_ns[at] / 1e6, cpu_ns / 1e6
    return {
        "jobs": jobs,
        "gpus": machines.total_gpus,
        "decisions": len(at),
        "active": float(there.mean()),
        "p50_ms": float(np.percentile(ms, 50)),
        "p99_ms": float(np.percentile(ms, 99)),
        "cpu_p50_ms": float(np.percentile(cpu_ms, 50)),
        "cpu_p99_ms": float(np.percentile(cpu_ms, 99)),
    }
