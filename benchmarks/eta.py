"""When jobs start and end, as the daemon estimates it: against the truth on three traces, and what it costs.

Up to 1,000 jobs of each trace have ended before; from them the planner knows durations, and how wrong its estimates
are. The next 500 are replayed on a cluster that is small enough for queues, and each is estimated when it arrives.
Only jobs that have to wait count. Costs are seconds of CPU time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, Json, Options, Row

SEEDS = (0,)
TRACES = {  # first job, how many ended before, nodes of eight GPUs
    "philly_vc_7f04ca": (0, 994, 12),
    "philly_vc_2869ce": (0, 492, 7),
    "philly_pass_80d": (40_000, 1000, 30),
}
REPLAYED = 500
POLICIES = ("fifo", "srtf")
ROLLOUTS, ACTIVE = 100, 1000
TARGETS: Json = {"coverage": (0.75, 0.85), "gain": 0.30, "rollouts_s": 2.0}


PARTS = ("costs", "replays")


def run(options: Options, parts: Sequence[str] = ()) -> Json:
    """The parts that are asked for (none: both), and the other as it was measured last."""
    from argosy.errors import InputError, UnknownName

    for name in parts:
        if name not in PARTS:
            raise UnknownName("part of the benchmark", name, PARTS)
    path, found = RESULTS / "eta.json", dict[str, Any](costs=[], replays=[])
    if parts and path.exists() and not options.quick:
        found = json.loads(path.read_text("utf-8"))["figures"]
    if "costs" in (parts or PARTS):
        policies = ("fifo",) if options.quick else (*POLICIES, "las", "tiresias-las")
        active = 100 if options.quick else ACTIVE
        found["costs"] = [cost(policy, active, ROLLOUTS) for policy in policies]
    if "replays" in (parts or PARTS) and not options.quick:
        if options.data is None:
            raise InputError("the replays need the public traces", hint="give their folder: --data FOLDER")
        found["replays"] = [replay(options, trace, policy) for trace in TRACES for policy in POLICIES]
    return found


def cost(policy: str, active: int, rollouts: int) -> Json:
    """Return the CPU time of roll-outs from a state with so many active jobs."""
    from argosy.cluster.cluster import Cluster
    from argosy.live.planner.forecast import Future
    from argosy.live.planner.messages import Active, Ended, JobFacts, Setup, Snapshot, Update
    from argosy.live.planner.planner import Planner

    rng = np.random.default_rng(SEEDS[0])

    def facts(id: int, at_s: float) -> JobFacts:
        return JobFacts(id, float(rng.choice([1, 1, 1, 2, 2, 4, 8])), at_s, f"n{id % 7}", f"u{id % 9}")

    past = tuple(Ended(facts(10_000 + i, -3000.0 + i), float(rng.lognormal(8, 1.2))) for i in range(500))
    planner = Planner(Setup(Cluster.uniform(32, 8, "v100"), policy), Snapshot(0.0, (), past))
    planner.update(Update(1.0, tuple(Active(facts(id, 1.0)) for id in range(1, active + 1))))
    planner.update(Update(600.0))
    future = Future(planner)
    future.run(future.draw(2))  # compiles what is not compiled yet
    began, wall = time.process_time(), time.perf_counter()
    future.run(future.draw(rollouts))
    took, wall_s = time.process_time() - began, time.perf_counter() - wall
    return {
        "policy": policy,
        "active": active,
        "rollouts": rollouts,
        "cpu_s": took,
        "wall_s": wall_s,
        "per_100_cpu_s": took * 100 / rollouts,
        "compiled": future.rolls.compiled,
    }


def replay(options: Options, name: str, policy: str) -> Json:
    """Replay 500 jobs of a trace, and score the estimates that were made when they arrived."""
    from argosy.cluster.cluster import Cluster
    from argosy.live.daemon.estimate_scores import Scored, score
    from argosy.live.planner.forecast import forecast
    from argosy.live.planner.messages import Setup, Snapshot
    from argosy.live.planner.planner import Planner
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Trace
    from benchmarks.mirror import Mirror, Mirrored, facts_of, history_of

    assert options.data is not None
    first, known, nodes = TRACES[name]
    jobs = facts_of(Trace.read(options.data / "traces" / f"{name}.csv.gz"))[first : first + known + REPLAYED]
    past, present = jobs[:known], jobs[known:]
    cluster = Cluster.uniform(nodes, 8, "v100")
    settings = Settings(min_run_s=10.0, overheads="none", perf="rigid", locality=False)
    begin = present[0][0].submitted_s
    planner = Planner(Setup(cluster, policy, settings), Snapshot(begin, (), history_of(past)))
    mirror = Mirror({facts.id: Mirrored(facts, seconds) for facts, seconds in present}, now=begin)
    made: dict[int, tuple[float, Any]] = {}
    cpu: list[float] = []

    def estimate(arrived: list[int]) -> bool:
        waiting = [id for id in arrived if mirror.here[id].start_s is None]
        if waiting:
            began = time.process_time()
            found = forecast(planner, rollouts=ROLLOUTS, seed=len(made))
            cpu.append(time.process_time() - began)
            made.update((id, (mirror.now, found.jobs[id])) for id in waiting)
        return False

    mirror.run(planner, estimate)
    starts, ends = [], []
    for id, (at_s, found) in made.items():
        job = mirror.jobs[id]
        if job.start_s is not None and job.end_s is not None and found.start is not None:
            starts.append(Scored(_after(found.start, at_s), job.start_s - at_s, found.naive[0] - at_s))
            ends.append(Scored(_after(found.end, at_s), job.end_s - at_s, found.naive[1] - at_s))
    scores = {"start": score(starts), "end": score(ends)}
    return {
        "trace": name,
        "policy": policy,
        "jobs": len(present),
        "gpus": cluster.total_gpus,
        "waited": len(starts),
        "forecast_cpu_s": float(np.mean(cpu)) if cpu else None,
        **{kind: None if found is None else found.as_dict() for kind, found in scores.items()},
    }


def _after(quantiles: Any, at_s: float) -> tuple[float | None, float | None, float | None]:
    p10, p50, p90 = (None if time is None else time - at_s for time in quantiles)
    return p10, p50, p90


def table(figures: Json) -> list[Row]:
    """What the command prints: all of it."""
    width = max(len(row) for row in (*replay_table(figures), *cost_table(figures)))
    rows = [*replay_table(figures), *cost_table(figures)]
    return [(*row, *[""] * (width - len(row))) for row in rows]


def replay_table(figures: Json) -> list[Row]:
    """How good the estimates were that jobs got when they arrived."""
    rows: list[Row] = [
        ("trace", "what", "policy", "jobs that waited", "in p10..p90", "earlier", "later", "better", "met")
    ]
    (low, high), least = TARGETS["coverage"], TARGETS["gain"]
    for one in figures["replays"]:
        for kind in ("start", "end"):
            s = one[kind]
            cells = (f"{s['coverage']:.0%}", f"{s['below']:.0%}", f"{s['above']:.0%}", f"{s['gain']:.0%}")
            met = "yes" if low <= s["coverage"] <= high and s["gain"] >= least else "**no**"
            rows.append((one["trace"], kind, one["policy"], str(s["count"]), *cells, met))
    return rows


def cost_table(figures: Json) -> list[Row]:
    """What roll-outs cost, by policy."""
    rows: list[Row] = [("policy", "100 roll-outs of", "CPU time", "how", f"≤ {TARGETS['rollouts_s']:g} s")]
    for one in figures["costs"]:
        way = "in compiled code" if one["compiled"] else "the policy is asked at each step"
        met = "yes" if one["per_100_cpu_s"] <= TARGETS["rollouts_s"] else "**no**"
        rows.append((f"`{one['policy']}`", f"{one['active']:,} jobs", f"{one['per_100_cpu_s']:.2f} s", way, met))
    return rows
