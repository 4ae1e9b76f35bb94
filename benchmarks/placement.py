"""Learned placement: measured placements until the optimum, what a decision costs, and Harmony on `packed`.

Four parts. `search`: REINFORCE and PPO on random problems of at most 6 tasks and 4 devices (`placement_search`).
`gangs`: the trained placer against rules on random gangs. `times`: how long a gang of 32 GPUs takes on 1,000 nodes.
`harmony`: mean completion times on the scenario `packed`. With --parts, the other parts keep what was measured last.
Training drew from seeds 1,000,000 on, and the searches' constants were chosen on seeds 200 to 299, which are not among
these.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks import placement_search
from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts, verdict
from benchmarks.placement_search import mean_and_interval

SEEDS = tuple(range(10))
FRESH = tuple(range(100, 140))  # of the searches: not looked at before their constants were chosen
FEW = 2
LARGE = {"nodes": 1000, "gpus": 32, "target_ms": 10.0}
CALLS = 20  # whose median counts
PARTS = ("search", "gangs", "times", "harmony")
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


def run(options: Options, parts: Sequence[str] | None = None) -> Json:
    """Measure these parts; the others keep what was measured last."""
    import torch

    torch.set_num_threads(1)
    parts = chosen_parts(parts, PARTS)
    last = RESULTS / "placement.json"
    figures: Json = json.loads(last.read_text("utf-8"))["figures"] if last.is_file() and not options.quick else {}
    seeds, fresh = (SEEDS[:FEW], FRESH[:FEW]) if options.quick else (SEEDS, FRESH)
    if "search" in parts:
        figures["search"] = placement_search.study(seeds, fresh, quick=options.quick)
    if "gangs" in parts:
        figures["gangs"] = figures.get("gangs", {}) | gangs(40 if options.quick else 400)
    if "times" in parts:
        figures["gangs"] = figures.get("gangs", {}) | {"large": times()}
    if "harmony" in parts:
        figures["harmony"] = harmony(seeds[: 1 if options.quick else 6], quick=options.quick)
    return figures


def gangs(count: int) -> Json:
    """The trained placer's cost against rules, and against the optimum of small cases."""
    from argosy.learn.placement.gangs import consolidate, cost, draw_gang, optimum, rack_aware
    from argosy.policies.spotlight import GangPlacer
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
    beyond = {
        name: float(np.mean([cost(g, place(g) or {}) - b for g, b in zip(small, best)]))
        for name, place in rules.items()
    }
    return {
        "gangs": count,
        "mean_cost": {name: float(np.mean(values)) for name, values in costs.items()},
        "trained_minus": {
            name: mean_and_interval([a - b for a, b in zip(costs["trained"], costs[name])])
            for name in rules
            if name != "trained"
        },
        "beyond_the_optimum_of_5_nodes": beyond,
    }


def times() -> Json:
    """How long the trained placer takes for a gang on a large cluster, also if every node has a single GPU free."""
    from argosy.policies.spotlight import Gang, GangPlacer
    from argosy.zoo import find

    placer = GangPlacer.of(find("spotlight"))
    load = os.getloadavg()[0]
    free = np.random.default_rng(0).integers(0, 9, int(LARGE["nodes"]))
    kind, rack = np.arange(len(free)) % 3, np.arange(len(free)) // 20
    speed = np.array([1.0, 0.8, 0.5])[kind]
    median_ms = []
    for room in (free, np.minimum(free, 1)):
        gang = Gang(int(LARGE["gpus"]), room, np.full(len(free), 8), kind, rack, speed, (0.8, 0.5))
        placer.place(gang)  # the first call loads what it needs
        spent = []
        for _ in range(CALLS):
            began = time.process_time()
            placer.place(gang)
            spent.append((time.process_time() - began) * 1000)
        median_ms.append(float(np.median(spent)))
    return {**LARGE, "median_ms": median_ms[0], "one_gpu_a_node_ms": median_ms[1], "load_average": load}


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
        rows.append(
            {
                "policy": label,
                "jct_mean_h": float(np.mean(values)),
                "by_seed_h": values,
                "ratio": None if ratio is None else [float(x) for x in ratio[:3]],
            }
        )
    about = find("harmony").about
    return {
        "seeds": list(seeds),
        "baseline": BASELINE,
        "rows": rows,
        "decision_p50_ms": float(np.median(took_ms)),
        "decision_p99_ms": float(np.percentile(took_ms, 99)),
        "trained": about.get("score"),
    }


def table(figures: Json) -> list[Row]:
    """Return everything, as it is printed."""
    made = (search_table, gang_table, time_table, harmony_table)
    rows = [row for part in made for row in part(figures)]
    return [(*row, *[""] * (5 - len(row))) for row in rows]


def gang_table(figures: Json) -> list[Row]:
    """Return the cost of the trained placer, and that of two rules, on random gangs."""
    found: list[Row] = [("placer", "cost", "trained minus it (95 %)", "beyond the optimum of 5 nodes")]
    part = figures.get("gangs", {})
    for name, cost in part.get("mean_cost", {}).items():
        over = part["trained_minus"].get(name)
        less = "" if over is None else f"{over['mean']:.3f} ({over['low']:.3f} to {over['high']:.3f})".replace("-", "−")
        found.append((name, f"{cost:.3f}", less, f"{part['beyond_the_optimum_of_5_nodes'][name]:.4f}"))
    return found


def time_table(figures: Json) -> list[Row]:
    """Return how long a large gang takes on a large cluster."""
    found: list[Row] = [("a gang of 32 GPUs on 1,000 nodes", "CPU ms", "target", "load average before")]
    large = figures.get("gangs", {}).get("large")
    for name, key in (("0 to 8 GPUs free on a node", "median_ms"), ("at most one", "one_gpu_a_node_ms")):
        if large:
            load = f"{large['load_average']:.2f}" if "load_average" in large else ""
            found.append((name, f"{large[key]:.1f}", verdict(large[key], large["target_ms"]), load))
    return found


def search_table(figures: Json) -> list[Row]:
    """Return how many placements each search measured until it found the optimum."""
    rows: list[Row] = [("problems; algorithm, network", "mean placements (95 %)", "most", "optimum found")]
    for part in figures.get("search", {"sets": ()})["sets"]:
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
    for row in sorted(figures.get("harmony", {"rows": ()})["rows"], key=lambda row: float(row["jct_mean_h"])):
        ratio = row["ratio"]
        beside = "" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}–{ratio[2]:.2f})"
        rows.append((row["policy"], f"{row['jct_mean_h']:.2f}", beside))
    return rows
