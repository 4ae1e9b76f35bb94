"""The published schedulers: one decision with 1,000 active jobs on 1,000 GPUs, Gavel's programs, the authors' traces.

A decision is the call of the policy, carrying it out and going on to the next event, as in decision.py; jobs come
every 10 s. Gavel's programs are timed alone, and solved anew at every arrival.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import RESULTS, Json, Options, Row, Watch, chosen_parts, measure, time_decisions, verdict, warm

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import Floats, Ints
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Trace

SEEDS = (2,)
ACTIVE, GAP_S = 1000, 10.0
WARM, DECISIONS = 5, 300
BUDGET_S = 40.0  # a policy too slow for all of them is judged by what it managed
DECIDED = (  # policy, jobs, target in ms for the p99, or for the median where MEDIAN says so
    ("tiresias-las", "rigid", 3.0),
    ("tiresias-gittins", "rigid", 3.0),
    ("gandiva", "rigid", 5.0),
    ("themis", "rigid", 20.0),
    ("sidecar", "elastic", 20.0),
    (f"optimus:slot_s={GAP_S:g}", "servers", 50.0),
    (f"optimus:slot_s={GAP_S:g}", "elastic", 50.0),
    ("qssf", "rigid", None),
    ("gavel-max-min", "types", 150.0),
    ("gavel-max-min-agnostic", "types", 150.0),
    ("gavel-ftf", "types", 150.0),
    ("gavel-fifo", "types", 150.0),
    ("gavel-allox", "types", 150.0),
)
MEDIAN = ("gandiva",)
PROGRAMS = (  # policy, numbers of active jobs
    ("gavel-max-min", (100, 1000, 10_000)),
    ("gavel-max-min:partitions=4", (1000, 10_000)),
    ("gavel-ftf", (100, 1000, 10_000)),
    ("gavel-ftf:partitions=4", (1000, 10_000)),
    ("gavel-makespan", (100, 1000, 10_000)),
    ("gavel-makespan:partitions=4", (1000, 10_000)),
    ("gavel-throughput", (100, 1000, 10_000)),
    ("gavel-cost", (100, 1000, 10_000)),
    ("gavel-hierarchical", (100, 1000, 10_000)),
    ("gavel-max-min:packing=yes", (100, 1000)),
)
SOLVED = {100: 20, 1000: 10, 10_000: 3}  # how often
PROGRAM_TARGET_MS = {1000: 50.0, 10_000: 5000.0}
REPEATS = 3
SYN, MSR, PHYSICAL = "syn4000_g128.csv", "msr_seed0_ed69ec.csv", "physical_max_min_fairness.csv"
FRESH, ONE_GPU = "fresh_101.csv", "fresh_303.csv"
RATIO_TARGET, RATIO_TARGETS = 100.0, {PHYSICAL: 30.0, FRESH: 30.0, ONE_GPU: 30.0}
START_UP_S = {MSR: 1.9, PHYSICAL: 1.9}  # of their simulator, is in their CPU seconds of these files
TRACES = (  # peer, file, GPUs, theirs (as results.csv calls it), ours
    ("tiresias", SYN, 32, "dlas-gpu (count)", "tiresias-las:authors=true"),
    ("tiresias", SYN, 32, "dlas-gpu (count)", "tiresias-las"),
    ("tiresias", SYN, 32, "gittins (sort order corrected)", "tiresias-gittins:authors=true:history=SAMPLES"),
    ("tiresias", SYN, 32, "gittins (sort order corrected)", "tiresias-gittins:history=SAMPLES"),
    ("gavel", MSR, 36, "max_min_fairness", "gavel-max-min-agnostic:authors=true"),
    ("gavel", MSR, 36, "max_min_fairness", "gavel-max-min-agnostic"),
    ("gavel", MSR, 36, "fifo", "gavel-fifo:authors=true"),
    ("gavel", PHYSICAL, 12, "max_min_fairness", "gavel-max-min-agnostic:authors=true"),
    ("gavel", PHYSICAL, 12, "max_min_fairness_perf", "gavel-max-min:authors=true"),
    ("gavel", PHYSICAL, 12, "finish_time_fairness_perf", "gavel-ftf:authors=true"),
    ("gavel", FRESH, 12, "max_min_fairness", "gavel-max-min-agnostic:authors=true"),
    ("gavel", FRESH, 12, "max_min_fairness_perf", "gavel-max-min:authors=true"),
    ("gavel", FRESH, 12, "finish_time_fairness_perf", "gavel-ftf:authors=true"),
    ("gavel", FRESH, 12, "min_total_duration_perf", "gavel-makespan:authors=true"),
    ("gavel", FRESH, 12, "fifo_perf", "gavel-fifo:authors=true"),
    ("gavel", ONE_GPU, 12, "allox", "gavel-allox:authors=true"),
)


PARTS = ("decided", "programs", "traces")
MARK = " (measured earlier)"


def run(options: Options, *, parts: Sequence[str] | None = None) -> Json:
    """Measure the parts that are named; the others keep their last figures, and are marked so."""
    chosen = chosen_parts(parts, PARTS)
    active, decisions = (60, 20) if options.quick else (ACTIVE, DECISIONS)

    def decided() -> list[Json]:
        return [
            measure("schedulers", "decide", {"policy": policy, "kind": kind, "active": active, "decisions": decisions})
            | {"target_ms": target, "judged": "p50" if policy in MEDIAN else "p99"}
            for policy, kind, target in (DECIDED[:1] if options.quick else DECIDED)
        ]

    def programs() -> list[Json]:
        return [
            measure("schedulers", "solve", {"policy": policy, "active": n, "solved": SOLVED[n]})
            for policy, sizes in (PROGRAMS[:1] if options.quick else PROGRAMS)
            for n in (sizes[:1] if options.quick else sizes)
        ]

    measured = {"decided": decided, "programs": programs, "traces": lambda: traces(options)}
    found = {name: measured[name]() if name in chosen else kept(name) for name in PARTS}
    return {"active": active, **found}


def kept(part: str) -> list[Json]:
    """Return the last figures of a part."""
    path = RESULTS / "schedulers.json"
    last = json.loads(path.read_text("utf-8"))["figures"][part] if path.exists() else []
    return [case | {"earlier": True} for case in last]


# -- decisions ---------------------------------------------------------------------------------------------------


def setting(kind: str, active: int, later: int, gap_s: float = GAP_S) -> tuple[Trace, Cluster, Settings]:
    """So many jobs at once, then one now and then; as many GPUs as jobs, none so short that the crowd thins."""
    import polars as pl

    from argosy.cluster.cluster import Cluster, Node
    from argosy.sim.settings import Settings
    from argosy.workload.synth import generate
    from argosy.workload.trace import Trace

    like = {"rigid": "philly", "elastic": "philly", "servers": "dl2", "types": "gavel"}[kind]
    frame = generate(like, active + later, SEEDS[0], gpus=float(active), load=1.0).frame
    submit_s = np.concatenate([np.zeros(active), gap_s * np.arange(1.0, later + 1)])
    frame = frame.with_columns(submit_s=pl.Series(submit_s), deadline_s=pl.lit(None, pl.Float64))
    if kind in ("rigid", "elastic"):
        frame = frame.with_columns(duration_s=pl.max_horizontal("duration_s", pl.lit(7200.0)))
    if kind == "elastic":
        frame = frame.with_columns(min_gpus=pl.lit(1.0), max_gpus=pl.max_horizontal(2 * pl.col("gpus"), pl.lit(8.0)))
    settings = Settings(seed=SEEDS[0])
    if kind == "servers":
        return Trace.of(frame, kind), Cluster.uniform(active // 2, 2, cpus=8.0, memory_gib=48.0), settings
    if kind == "types":
        names = ("v100", "p100", "k80")
        count = -(-active // 24)  # nodes of 8
        nodes = (Node(f"{name}-{i}", name, 8) for name in names for i in range(count))
        return Trace.of(frame, kind), Cluster(tuple(nodes)), Settings(seed=SEEDS[0], reference_type="v100")
    return Trace.of(frame, kind), Cluster.uniform(active // 8, 8, nodes_per_rack=20), settings


def decide(policy: str, kind: str, active: int, decisions: int) -> Json:
    from argosy.policies.base import create
    from argosy.sim.engine import Engine

    warm()
    trace, machines, settings = setting(kind, active, WARM + 2 * decisions)
    engine = Engine(trace, machines, create(policy), settings, watch=lambda engine: None)
    took_ns, seen = time_decisions(engine, WARM, decisions, BUDGET_S)
    ms = np.array(took_ns) / 1e6
    policy_ms = engine.result().decision_ns[WARM : WARM + len(ms)] / 1e6
    running, waiting = np.mean(seen, axis=0)
    return {
        "policy": policy,
        "kind": kind,
        "decisions": len(ms),
        "running": float(running),
        "waiting": float(waiting),
        "mean_ms": float(ms.mean()),
        "p50_ms": float(np.percentile(ms, 50)),
        "p99_ms": float(np.percentile(ms, 99)),
        "policy_mean_ms": float(policy_ms.mean()),
    }


# -- programs ----------------------------------------------------------------------------------------------------


def solve(policy: str, active: int, solved: int) -> Json:
    """Time of the call that finds the shares, anew for each arrival; in parts, also what the objective keeps."""
    from argosy.policies.base import create
    from argosy.sim.engine import Engine

    warm()
    chosen: Any = create(f"{policy}:round_s=60:min_interval_s=0")
    trace, machines, settings = setting("types", active, solved + 2, gap_s=60.0)
    took_ms: list[float] = []
    kept: list[float] = []
    share = chosen.share

    def timed(view: Any, places: Ints, speed: Floats) -> Floats:
        began = time.process_time_ns()
        found = share(view, places, speed)
        took_ms.append((time.process_time_ns() - began) / 1e6)
        parts = chosen.partitions
        if parts > 1 and not policy.startswith("gavel-ftf"):  # which remembers, and may not be asked twice
            chosen.partitions = 1
            due = dues(chosen, view, places, speed)
            kept.append(least(speed, found, due) / least(speed, share(view, places, speed), due))
            chosen.partitions = parts
        return np.asarray(found)

    chosen.share = timed
    engine = Engine(trace, machines, chosen, settings, watch=lambda engine: None)
    engine.advance()
    while len(took_ms) <= solved:
        engine.ask()
        engine.advance()
    again = took_ms[1:]
    return {
        "policy": policy,
        "active": active,
        "solved": len(again),
        "first_ms": took_ms[0],
        "p50_ms": float(np.median(again)),
        "max_ms": float(max(again)),
        "kept": float(np.mean(kept)) if kept else None,
    }


def dues(policy: Any, view: Any, places: Ints, speed: Floats) -> Floats:
    """What the program makes everybody's speed a multiple of, as large as possible."""
    problem = policy._problem(view, places, speed)
    if policy.name == "gavel-makespan":
        return np.asarray(problem.columns["left_s"])
    return np.asarray(problem.weight * problem.equal_speed() / problem.gpus)


def least(speed: Floats, share: Floats, due: Floats) -> float:
    served = due > 0
    return float(((speed * share).sum(axis=1)[served] / due[served]).min())


# -- the authors' traces -----------------------------------------------------------------------------------------


def traces(options: Options) -> list[Json]:
    if options.quick:
        return []
    if options.data is None or not (options.data / "peers" / "results.csv").exists():
        return kept("traces")
    return [
        measure(
            "schedulers",
            "replay",
            {"data": str(options.data), "peer": peer, "file": file, "gpus": gpus, "theirs": theirs, "ours": ours},
        )
        for peer, file, gpus, theirs, ours in TRACES
    ]


def replay(data: str, peer: str, file: str, gpus: int, theirs: str, ours: str) -> Json:
    """The median of several runs, from the file to the metrics."""
    from argosy.sim.metrics import metrics
    from benchmarks import agreement

    warm()
    folder = Path(data) / "peers"
    policy = ours.replace("SAMPLES", str(folder / "tiresias" / agreement.SAMPLES))
    if peer == "gavel":
        agreement.register_speeds(Path(data))
    spent = []
    for _ in range(REPEATS + 1):
        watch = Watch()
        with watch("all"):
            if peer == "gavel":
                result = agreement.run_gavel(Path(data), file, gpus, policy)
            else:
                result = agreement.run_tiresias(folder, file, gpus, policy)
            metrics(result)
        spent.append(watch.cpu_s["all"])
    known = agreement.published(folder, peer, file, theirs)
    their_s = known["cpu_s"] - START_UP_S.get(file, 0.0)
    cpu_s = float(np.median(spent[1:]))  # the first one loads what was compiled
    return {
        "peer": peer,
        "trace": file,
        "theirs": theirs,
        "ours": ours.replace("SAMPLES", agreement.SAMPLES),
        "their_cpu_s": their_s,
        "cpu_s": cpu_s,
        "ratio": their_s / cpu_s,
        "decisions": len(result.decision_ns),
    }


# -- tables ------------------------------------------------------------------------------------------------------


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [
        ("policy", "jobs", "running", "waiting", "mean ms", "of it policy", "p50 ms", "p99 ms", "target")
    ]
    for c in figures["decided"]:
        rows.append(
            (
                c["policy"] + MARK * c.get("earlier", False),
                c["kind"],
                f"{c['running']:,.0f}",
                f"{c['waiting']:,.0f}",
                f"{c['mean_ms']:.2f}",
                f"{c['policy_mean_ms']:.2f}",
                f"{c['p50_ms']:.2f}",
                f"{c['p99_ms']:.2f}",
                f"{judged(c)} {verdict(c[f'{judged(c)}_ms'], c['target_ms'])}" if c["target_ms"] is not None else "",
            )
        )
    return rows


def judged(case: Json) -> str:
    """Return which figure of a case the target is for."""
    return str(case.get("judged", "p99"))


def program_table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("policy", "jobs", "first ms", "again, p50 ms", "max ms", "max, target", "objective kept")]
    for c in figures["programs"]:
        target = PROGRAM_TARGET_MS.get(c["active"])
        slowest = max(c["first_ms"], c["max_ms"])
        rows.append(
            (
                c["policy"] + MARK * c.get("earlier", False),
                f"{c['active']:,}",
                f"{c['first_ms']:.1f}",
                f"{c['p50_ms']:.1f}",
                f"{c['max_ms']:.1f}",
                verdict(slowest, target) if target is not None else "",
                f"{c['kept']:.1%}" if c["kept"] is not None else "",
            )
        )
    return rows


def trace_table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("trace", "theirs", "ours", "their CPU s", "ours", "ratio", "target", "decisions")]
    for c in figures["traces"]:
        target = RATIO_TARGETS.get(c["trace"], RATIO_TARGET)
        rows.append(
            (
                c["trace"] + MARK * c.get("earlier", False),
                f"{c['peer']} {c['theirs']}",
                f"`{c['ours']}`",
                f"{c['their_cpu_s']:.1f}",
                f"{c['cpu_s']:.3f}",
                f"{c['ratio']:.0f}×",
                f"≥ {target:g}: {'yes' if c['ratio'] >= target else 'no'}",
                f"{c['decisions']:,}",
            )
        )
    return rows if figures["traces"] else [*rows, ("needs --data", *[""] * 7)]
