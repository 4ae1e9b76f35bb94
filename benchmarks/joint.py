"""Joint scheduling: `joint` and `argonaut` against the best policies that see no future, on unseen seeds.

How much shorter completion times are in `mixed`, and what each part contributes; how both do in thirteen scenarios of
the league against the best of eight policies without ★ there; at other loads and on clusters of other sizes; what a
decision costs; and how both do in the newest scenarios against the newest rivals (`joint_newest`). Training drew its
jobs from seeds 1,000,000 on and was validated on 500,000 on; these seeds are small. With --parts, the other parts keep
what was measured last.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import joint_newest
from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts
from benchmarks.joint_runs import OURS, Case, Found, all_figures, best_of, in_processes, interval_of, show, spread

SEEDS = tuple(range(20))
FEW = 2
BASELINE = "gavel-throughput"
MIXED = {
    BASELINE: BASELINE,
    "joint": "joint",
    "joint, sizes as asked for": "joint:resize=no",
    "joint, fastest type only": "joint:retype=no",
    "joint, all machines alike": "joint:machines=no",
    "no learning: the rule that argonaut begins as": "joint:relative=0.6:elastic=0.4",
    "argonaut, without packing": "argonaut:pack=no",
    "argonaut": "argonaut",
}
SCENARIOS = (  # of the league, those before `joint_newest.SCENARIOS`
    "dl2-100", "dl2-500", "dl2-heavy", "dl2-short", "dl2-testbed", "faulty", "fluctuating", "hetero-108", "mixed",
    "overload", "packed", "philly-rigid", "stormy",
)  # fmt: skip
RIVALS = ("gavel-throughput", "las", "tiresias-gittins", "tiresias-las", "optimus", "frontier", "dl2+", "dual-agent")
LOADS, SCALES = (0.6, 0.8, 1.0, 1.3), (0.25, 1.0, 4.0)  # relative to `mixed`
LOAD_SEEDS = 5
NEWEST_TABLES = (joint_newest.table, joint_newest.rival_table, joint_newest.deadline_table)
SIZES = ((100, 96), (200, 256), (1_000, 1_000), (10_000, 10_000))  # jobs, GPUs


class LoadCase(NamedTuple):
    """One run in `mixed` at another load, on a cluster of another size, with as many times as many jobs."""

    load: float
    scale: float
    policy: str
    seed: int


def run(options: Options, parts: Sequence[str] | None = None) -> Json:
    """Measure these parts; the others keep what was measured last."""
    parts = chosen_parts(parts, PARTS)
    last = RESULTS / "joint.json"
    known = {} if options.quick or not last.is_file() else json.loads(last.read_text("utf-8"))
    figures: Json = known.get("figures", {})
    for row in figures.get("decision", ()):  # of a file from before each row had its own
        row.setdefault("load_average", known["load_average_before"])
    seeds = SEEDS[:FEW] if options.quick else SEEDS
    found = {name: PARTS[name](seeds, options.quick) for name in parts}
    return figures | {"seeds": list(seeds), "baseline": BASELINE, "load_seeds": list(SEEDS[:LOAD_SEEDS])} | found


def mixed(seeds: Sequence[int], quick: bool) -> list[Json]:
    """Every policy on the same jobs, relative to the baseline; the last also relative to the others."""
    found = all_figures([Case("mixed", policy, seed, quick) for policy in MIXED.values() for seed in seeds])
    rows = []
    for label, policy in MIXED.items():
        row: Json = {"policy": label}
        for metric in ("jct_mean_s", "jct_p99_s", "changes_per_job"):
            columns = {
                name: [found[Case("mixed", name, seed, quick)][metric] for seed in seeds]
                for name in (policy, BASELINE, "argonaut")
            }
            row[metric] = float(np.mean(columns[policy]))
            row[f"{metric}_ratio"] = interval_of(columns[policy], columns[BASELINE])
            row[f"argonaut_{metric}_ratio"] = interval_of(columns["argonaut"], columns[policy])
        rows.append(row)
    return rows


def league(seeds: Sequence[int], quick: bool) -> list[Json]:
    """Both in every scenario, against the best rival there."""
    names = SCENARIOS[:2] if quick else SCENARIOS
    policies = (*RIVALS, *OURS)
    found = all_figures([Case(name, policy, seed, quick) for name in names for policy in policies for seed in seeds])
    return [league_row(name, found, seeds, quick) for name in names]


def league_row(name: str, found: Found, seeds: Sequence[int], quick: bool) -> Json:
    """Mean completion times of joint and argonaut over those of the best rival without ★."""

    def column(policy: str, metric: str) -> list[float]:
        return [found[Case(name, policy, seed, quick)][metric] for seed in seeds]

    fair = {policy: column(policy, "jct_mean_s") for policy in RIVALS if not any(column(policy, "star"))}
    best = best_of(fair)
    row: Json = {"scenario": name, "best": best, "best_jct_s": float(np.mean(fair[best]))}
    for policy in OURS:
        row[policy] = interval_of(column(policy, "jct_mean_s"), fair[best])
    row["argonaut over dl2+"] = interval_of(column("argonaut", "jct_mean_s"), column("dl2+", "jct_mean_s"))
    return row


def loads(seeds: Sequence[int], quick: bool) -> list[Json]:
    """Both in `mixed` at other loads and on clusters of other sizes; not with --quick."""
    if quick:
        return []
    policies, seeds = (BASELINE, *OURS), seeds[:LOAD_SEEDS]
    places = [(load, scale) for scale in SCALES for load in LOADS]
    cases = [LoadCase(*place, policy, seed) for place in places for policy in policies for seed in seeds]
    found = dict(zip(cases, in_processes(at_load, cases)))
    rows = []
    for place in places:
        spent = {policy: [found[LoadCase(*place, policy, seed)] for seed in seeds] for policy in policies}
        row: Json = {"load": place[0], "cluster": place[1], f"{BASELINE}_s": float(np.mean(spent[BASELINE]))}
        rows.append(row | {policy: interval_of(spent[policy], spent[BASELINE]) for policy in OURS})
    return rows


def at_load(case: LoadCase) -> float:
    """The mean completion time of one run."""
    from argosy.learn.loads import Variant, scaled
    from argosy.scenario import read_scenario
    from argosy.sim.metrics import metrics
    from argosy.sim.run import simulate

    scenario = read_scenario("mixed", quick=True)
    scenario = scenario.with_count(round(200 * max(case.scale, 0.5)))
    variant = Variant(scenario, scaled(scenario.cluster, case.scale), case.load, "mixed")
    result = simulate(variant.trace(case.seed), variant.cluster, case.policy, variant.settings.with_seed(case.seed))
    return float(metrics(result)["jct_mean_s"])


def decisions(seeds: Sequence[int], quick: bool) -> list[Json]:
    """What a decision of argonaut costs; its time depends on what else runs, so each row has its load average."""
    return [{"load_average": os.getloadavg()[0]} | decision(*size) for size in (SIZES[:1] if quick else SIZES)]


def decision(jobs: int, gpus: int) -> Json:
    """What a decision of argonaut costs when so many jobs are there, half of them elastic, on three GPU types."""
    from argosy.cluster.cluster import Cluster, Node
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings
    from argosy.workload.trace import Job, Trace

    nodes = tuple(Node(f"n{i}", ("a100", "v100", "t4")[i % 3], 8, 64.0) for i in range(max(gpus // 8, 3)))
    models = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
    many = [
        Job(
            f"j{i}",
            0.0,
            3600.0 * (1 + i % 7),
            float((1, 1, 2, 4)[i % 4]),
            model=models[i % 6],
            min_gpus=1 if i % 2 else None,
            max_gpus=8 if i % 2 else None,
        )
        for i in range(jobs)
    ]
    engine = Engine(Trace.of_jobs(many), Cluster(nodes), create("argonaut"), Settings(min_run_s=0.0))
    assert engine.advance()
    engine.ask()  # compiles, lists the candidates
    engine.apply()
    took = []
    for _ in range(5):
        engine.refresh_view()
        began = time.perf_counter()
        engine.ask()
        took.append(time.perf_counter() - began)
    choice = engine.choice
    assert choice is not None
    return {"jobs": jobs, "gpus": gpus, "ms": 1e3 * float(np.median(took)), "gap": choice.gap}


def newest(seeds: Sequence[int], quick: bool) -> Json:
    """Both in the newest scenarios, on seeds of its own."""
    return joint_newest.measure(quick)


PARTS: dict[str, Callable[[Sequence[int], bool], object]] = {
    "mixed": mixed,
    "league": league,
    "loads": loads,
    "decision": decisions,
    "newest": newest,
}


def table(figures: Json) -> list[Row]:
    """The table that is printed: all tables below each other."""
    tables = (mixed_table, league_table, load_table, decision_table, *NEWEST_TABLES)
    rows = [row for part in tables for row in part(figures)]
    width = max(map(len, rows))
    return [(*row, *[""] * (width - len(row))) for row in rows]


def mixed_table(figures: Json) -> list[Row]:
    """Both in `mixed`, and what each part contributes."""
    found: list[Row] = [("policy", f"mean JCT / {BASELINE}", "95 %", "p99 / its p99", "95 %")]
    for row in figures.get("mixed", ()):
        mean, late = row["jct_mean_s_ratio"], row["jct_p99_s_ratio"]
        found.append((row["policy"], show(mean), spread(mean), show(late), spread(late)))
    return found


def league_table(figures: Json) -> list[Row]:
    """Both in every scenario, against the best of the rivals without ★."""
    found: list[Row] = [("scenario", "best rival without ★", "joint / it", "argonaut / it", "95 %")]
    for row in figures.get("league", ()):
        mine = row["argonaut"]
        found.append((f"`{row['scenario']}`", row["best"], show(row["joint"]), show(mine), spread(mine)))
    return found


def load_table(figures: Json) -> list[Row]:
    """Both in `mixed` at other loads and on clusters of other sizes."""
    found: list[Row] = [("cluster", "load", f"joint / {BASELINE}", f"argonaut / {BASELINE}", "95 %")]
    for row in figures.get("loads", ()):
        size, mine = f"× {row['cluster']:g}", row["argonaut"]
        found.append((size, f"× {row['load']:g}", show(row["joint"]), show(mine), spread(mine)))
    return found


def decision_table(figures: Json) -> list[Row]:
    """What a decision of argonaut costs."""
    found: list[Row] = [("jobs", "GPUs", "a decision, ms", "below the best choice by at most, %", "load before")]
    for row in figures.get("decision", ()):
        load = f"{row['load_average']:.2f}" if "load_average" in row else ""
        found.append((f"{row['jobs']:,}", f"{row['gpus']:,}", f"{row['ms']:.1f}", f"{100 * row['gap']:.2f}", load))
    return found
