"""Learned placement: measured placements until the optimum, what a decision costs, and Harmony on `packed`.

Three parts. `search`: REINFORCE and PPO on random problems of at most 6 tasks and 4 devices (`placement_search`).
`gangs`: the trained placer against rules on random gangs, and how long a gang of 32 GPUs takes on 1,000 nodes.
`harmony`: mean completion times on the scenario `packed`. Training drew from seeds 1,000,000 on, and the searches'
constants were chosen on seeds 200 to 299, which are not among these.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks import placement_search
from benchmarks.harness import Json, Options, Row
from benchmarks.placement_search import mean_and_interval

SEEDS = tuple(range(10))
FRESH = tuple(range(100, 140))  # of the searches: not looked at before their constants were chosen
FEW = 2
LARGE = {"nodes": 1000, "gpus": 32, "target_ms": 10.0}
POLICIES = {
    "harmony": "harmony",
    "load balancing": "harmony:rule=load-balance",
    "bin packing": "harmony:rule=bin-pack",
    "tetris, sharing GPUs": "harmony:rule=tetris",
    "least interference first": "harmony:rule=least-interference",
    "least interference, only gains": "harmony:rule=least-interference:least_gain=1",
    "tetris ★": "tetris",
    "fifo-backfill, spread": "fifo-backfill",
    "gandiva": "gandiva",
}
BASELINE = "load balancing"


def run(options: Options) -> Json:
    import torch

    torch.set_num_threads(1)
    seeds, fresh = (SEEDS[:FEW], FRESH[:FEW]) if options.quick else (SEEDS, FRESH)
    return {
        "search": placement_search.study(seeds, fresh, quick=options.quick),
        "gangs": gangs(40 if options.quick else 400),
        "harmony": harmony(seeds[: 1 if options.quick else 6], quick=options.quick),
    }


def gangs(count: int) -> Json:
    """The trained placer's cost against rules, against the optimum of small cases, and its time on a large cluster."""
    from argosy.learn.placement.gangs import consolidate, cost, draw_gang, optimum, rack_aware
    from argosy.policies.spotlight import Gang, GangPlacer
    from argosy.zoo import find

    placer = GangPlacer.of(find("spotlight"))
    rules = {"trained": placer.place, "consolidate": consolidate, "rack-aware": rack_aware}
    costs: dict[str, list[float]] = {name: [] for name in rules}
    for seed in range(count):
        gang = draw_gang(seed)
        for name, place in rules.items():
            chosen = place(gang)
            assert chosen is not None  # there is always room in these clusters
            costs[name].append(cost(gang, chosen))
    small = [draw_gang(seed, nodes=5) for seed in range(min(count, 100))]
    best = [optimum(gang) for gang in small]
    beyond = {name: float(np.mean([cost(g, place(g) or {}) - b for g, b in zip(small, best)]))
              for name, place in rules.items()}  # fmt: skip
    rng = np.random.default_rng(0)
    nodes = LARGE["nodes"]
    free = rng.integers(0, 9, int(nodes))
    kind = np.arange(len(free)) % 3
    speed = np.array([1.0, 0.8, 0.5])[kind]
    rack = np.arange(len(free)) // 20
    large = Gang(int(LARGE["gpus"]), free, np.full(len(free), 8), kind, rack, speed, (0.8, 0.5))
    times = []
    for _ in range(20):
        began = time.process_time()
        placer.place(large)
        times.append((time.process_time() - began) * 1000)
    fragmented = Gang(large.tasks, np.minimum(free, 1), large.gpus, kind, rack, speed, large.across)
    worst = []
    for _ in range(20):
        began = time.process_time()
        placer.place(fragmented)
        worst.append((time.process_time() - began) * 1000)
    return {
        "gangs": count,
        "mean_cost": {name: float(np.mean(values)) for name, values in costs.items()},
        "trained_minus": {
            name: mean_and_interval([a - b for a, b in zip(costs["trained"], costs[name])])
            for name in rules
            if name != "trained"
        },
        "beyond_the_optimum_of_5_nodes": beyond,
        "large": {**LARGE, "median_ms": float(np.median(times)), "one_gpu_a_node_ms": float(np.median(worst))},
    }


def harmony(seeds: Sequence[int], *, quick: bool) -> Json:
    """Mean completion times on `packed`, relative to load balancing on the same jobs."""
    from argosy.report.stats import paired_ratio
    from argosy.scenario import read_scenario
    from argosy.sim.metrics import metrics
    from argosy.sim.run import simulate
    from argosy.zoo import find

    scenario = read_scenario("packed", quick=quick)
    hours: dict[str, list[float]] = {label: [] for label in POLICIES}
    took_ms: list[float] = []
    for seed in seeds:
        trace = scenario.trace(seed)
        for label, policy in POLICIES.items():
            settings = scenario.settings.with_seed(seed)
            if label.endswith("spread"):
                settings = replace(settings, placer="spread")
            result = simulate(trace, scenario.cluster, policy, settings)
            hours[label].append(metrics(result, window=scenario.window(trace))["jct_mean_s"] / 3600)
            if label == "harmony":
                took_ms += (result.decision_ns / 1e6).tolist()
    rows = []
    for label, values in hours.items():
        ratio = paired_ratio(np.array(values), np.array(hours[BASELINE])) if len(values) > 1 else None
        rows.append({"policy": label, "jct_mean_h": float(np.mean(values)), "by_seed_h": values,
                     "ratio": None if ratio is None else [float(x) for x in ratio[:3]]})  # fmt: skip
    about = find("harmony").about
    return {"seeds": list(seeds), "baseline": BASELINE, "rows": rows, "decision_p50_ms": float(np.median(took_ms)),
            "decision_p99_ms": float(np.percentile(took_ms, 99)), "trained": about.get("score")}  # fmt: skip


def table(figures: Json) -> list[Row]:
    """Return everything, as it is printed."""
    rows: list[Row] = [tuple([*row, "", "", ""][:4]) for row in search_table(figures)]
    cost = figures["gangs"]["mean_cost"]
    rows += [(f"gangs: {name}", f"cost {value:.3f}", "", "") for name, value in cost.items()]
    large = figures["gangs"]["large"]
    rows.append((f"{large['gpus']} GPUs on {large['nodes']} nodes", f"{large['median_ms']:.2f} ms", "",
                 f"{large['one_gpu_a_node_ms']:.2f} ms with one GPU free a node"))  # fmt: skip
    return rows + [(f"packed: {row[0]}", *row[1:], "") for row in harmony_table(figures)[1:]]


def search_table(figures: Json) -> list[Row]:
    """Return how many placements each search measured until it found the optimum."""
    rows: list[Row] = [("problems; algorithm, network", "mean placements (95 %)", "most", "optimum found")]
    for part in figures["search"]["sets"]:
        seeds = part["seeds"]
        rows.append((f"**{part['tasks']} tasks, {part['devices']} devices, seeds {seeds[0]}–{seeds[-1]}**", "", "", ""))
        for row in part["rows"]:
            mean = f"{row['mean']:.1f} ({max(row['low'], 1.0):.0f}–{row['high']:.0f})"
            count = sum(n is not None for n in row["measured"])
            rows.append((row["way"], mean, str(row["most"]), f"{count} of {len(seeds)}"))
    return rows


def harmony_table(figures: Json) -> list[Row]:
    """Return the mean completion times in `packed`, relative to load balancing with shared GPUs."""
    rows: list[Row] = [("policy", "mean, h", "ratio (95 %)")]
    for row in sorted(figures["harmony"]["rows"], key=lambda row: float(row["jct_mean_h"])):
        ratio = row["ratio"]
        beside = "" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}–{ratio[2]:.2f})"
        rows.append((row["policy"], f"{row['jct_mean_h']:.2f}", beside))
    return rows
