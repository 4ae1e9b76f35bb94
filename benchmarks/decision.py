"""One decision at 10,000 GPUs with 10,000 active jobs, for every ordering policy; one elastic re-division.

Some ordering policies decide with ten times as many GPUs and jobs, too.

A decision is the call of the policy (`engine.ask`), carrying it out and going on to the next event
(`engine.advance`). Policies that would skip calls or take the path for fixed keys are made to decide in full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Json, Options, Row, measure, time_decisions, verdict, warm

if TYPE_CHECKING:
    from argosy.policies.base import Policy
    from argosy.workload.trace import Trace

SEEDS = (2,)
NODES, GPUS = 1250, 8
ACTIVE, ELASTIC_ACTIVE = 10_000, 1_000
HUGE, HUGE_DECISIONS = 10, 100  # times as many GPUs and jobs
AT_HUGE = ("fifo", "srtf", "srsf", "las", "tiresias-las")
WARM, DECISIONS = 5, 400
BUDGET_S = 60.0  # a policy too slow for all of them is judged by what it managed
ELASTIC_RANGE = (1.0, 32.0)
TARGET_MS, ELASTIC_TARGET_MS, HUGE_TARGET_MS = 5.0, 20.0, 20.0


def run(options: Options) -> Json:
    from argosy.policies.base import POLICIES, decides

    active, elastic = (1000, 100) if options.quick else (ACTIVE, ELASTIC_ACTIVE)
    ordering = [name for name in POLICIES if decides(POLICIES[name]) == "order"]
    cases = [measure("decision", "case", {"policy": p, "active": active, "elastic": False}) for p in ordering]
    if "drf" in POLICIES:
        cases.append(measure("decision", "case", {"policy": "drf", "active": elastic, "elastic": True}))
    if not options.quick:
        cases += [measure("decision", "case", {"policy": p, "active": active, "times": HUGE}) for p in AT_HUGE]
    return {"gpus": NODES * GPUS, "cases": cases, "floor": measure("decision", "floor", {"active": active})}


def crowd(active: int, elastic: bool, times: int = 1) -> Trace:
    """So many jobs at once, then one every second; like Philly's, none so short that the crowd thins."""
    import polars as pl

    from argosy.workload.synth.generate import generate
    from argosy.workload.trace import Trace

    later = WARM + 2 * DECISIONS
    drawn = generate("philly", active + later, SEEDS[0], gpus=times * NODES * GPUS, load=1.0).frame
    frame = drawn.with_columns(
        submit_s=pl.Series(np.concatenate([np.zeros(active), np.arange(1.0, later + 1)])),
        duration_s=pl.max_horizontal(pl.col("duration_s"), pl.lit(600.0)),
    )
    if elastic:
        low, high = ELASTIC_RANGE
        frame = frame.with_columns(min_gpus=pl.lit(low), max_gpus=pl.max_horizontal("gpus", pl.lit(high)))
    return Trace.of(frame, "crowd")


def case(policy: str, active: int, elastic: bool = False, times: int = 1) -> Json:
    """Decide with `times` as many active jobs, on as many nodes more."""
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings

    warm()
    chosen: Policy = create(policy)
    machines = Cluster.uniform(times * NODES, GPUS, nodes_per_rack=20)
    settings = Settings(seed=SEEDS[0])
    engine = Engine(crowd(times * active, elastic, times), machines, chosen, settings, watch=lambda engine: None)
    took_ns, seen = time_decisions(engine, WARM, DECISIONS if times == 1 else HUGE_DECISIONS, BUDGET_S)
    result = engine.result()
    resized = int(result.jobs["resizes"].sum())
    ms = np.array(took_ns) / 1e6
    policy_ms = result.decision_ns[WARM : WARM + len(ms)] / 1e6
    running, waiting = np.mean(seen, axis=0)
    return {
        "policy": policy,
        "elastic": elastic,
        "gpus": times * NODES * GPUS,
        "decisions": len(ms),
        "running": float(running),
        "waiting": float(waiting),
        "p50_ms": float(np.percentile(ms, 50)),
        "p99_ms": float(np.percentile(ms, 99)),
        "max_ms": float(ms.max()),
        "policy_p50_ms": float(np.percentile(policy_ms, 50)),
        "resizes_per_decision": resized / (WARM + len(ms)),
    }


def floor(active: int) -> Json:
    """What no decision can do without: a ranking of one column, and a visit to compiled code that does nothing."""
    from argosy.cluster.cluster import Cluster
    from argosy.mechanism.kernels import layout as L
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings

    warm()
    machines = Cluster.uniform(NODES, GPUS)
    engine = Engine(crowd(active, False), machines, create("srsf"), Settings(), watch=lambda engine: None)
    engine.advance()
    engine.ask()
    engine.kernel(L.OP_ADMIT)

    def rank() -> None:
        engine.view.jobs.refresh(active)
        engine.policy.rank(engine.view)

    return {"door_us": median_us(lambda: engine.kernel(L.OP_ADMIT)), "rank_us": median_us(rank)}


def median_us(call: Callable[[], object], repeats: int = 2000) -> float:
    took = []
    for _ in range(repeats):
        began = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - began)
    return float(np.median(took)) / 1000


def floor_table(figures: Json) -> Sequence[Row]:
    floor = figures["floor"]
    return [
        ("at 10,000 active jobs", "median µs"),
        ("enter compiled code and do nothing", f"{floor['door_us']:.1f}"),
        ("rank by the product of two columns (srsf)", f"{floor['rank_us']:.1f}"),
    ]


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [
        (
            "GPUs",
            "policy",
            "running",
            "waiting",
            "p50 ms",
            "of it policy",
            "p99 ms",
            "target",
            "max ms",
            "resizes each",
        )
    ]
    for c in figures["cases"]:
        huge = c["gpus"] > figures["gpus"]
        target = HUGE_TARGET_MS if huge else ELASTIC_TARGET_MS if c["elastic"] else TARGET_MS
        rows.append(
            (
                f"{c['gpus']:,}",
                c["policy"],
                f"{c['running']:,.0f}",
                f"{c['waiting']:,.0f}",
                f"{c['p50_ms']:.2f}",
                f"{c['policy_p50_ms']:.2f}",
                f"{c['p99_ms']:.2f}",
                verdict(c["p99_ms"], target),
                f"{c['max_ms']:.2f}",
                f"{c['resizes_per_decision']:.0f}" if c["elastic"] else "",
            )
        )
    return rows
