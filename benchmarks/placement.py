"""Learned placement: measured placements until the optimum, what a decision costs, and Harmony on `packed`.

Three parts. `search`: REINFORCE and PPO on random problems of 6 tasks and 4 devices whose optimum is known from all
4,096 placements; a search that does not find it counts with its whole budget. Both algorithms run on both networks, and
with networks that were trained on other problems. `gangs`: the trained placer against rules on random gangs, and how
long a gang of 32 GPUs takes on 1,000 nodes. `harmony`: mean completion times on the scenario `packed`.
Training drew from seeds 1,000,000 on, and these seeds are small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.harness import Json, Options, Row

SEEDS = tuple(range(10))
FEW = 2
BUDGET = 200
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
    seeds = SEEDS[:FEW] if options.quick else SEEDS
    return {
        "search": searches(seeds, quick=options.quick),
        "gangs": gangs(40 if options.quick else 400),
        "harmony": harmony(seeds[: 1 if options.quick else 6], quick=options.quick),
    }


def searches(seeds: Sequence[int], *, quick: bool) -> Json:
    """How many placements each search measures until it finds the optimum of each problem."""
    from argosy.learn.placement import mirhoseini, spotlight
    from argosy.learn.placement.problem import draw_problem

    tasks, devices, budget = (4, 2, 16) if quick else (6, 4, BUDGET)
    updates = 2 if quick else 400
    trained = {
        "sequence": mirhoseini.pretrain(tasks, devices, updates=updates),
        "stages": spotlight.pretrain(tasks, devices, updates=updates // 2),
    }
    ways: dict[str, tuple[Callable[..., Any], Any]] = {
        "REINFORCE, sequence network (Mirhoseini), trained before": (mirhoseini.search, trained["sequence"]),
        "PPO, network of stages (Spotlight), trained before": (spotlight.search, trained["stages"]),
        "REINFORCE, network of stages, trained before": (mirhoseini.search, trained["stages"]),
        "PPO, sequence network, trained before": (spotlight.search, trained["sequence"]),
        "REINFORCE, sequence network (Mirhoseini), from nothing": (mirhoseini.search, None),
        "PPO, network of stages (Spotlight), from nothing": (spotlight.search, None),
    }
    found: dict[str, list[int]] = {way: [] for way in ways}
    slower: dict[str, list[float]] = {way: [] for way in ways}
    chances = []
    for seed in seeds:
        problem = draw_problem(seed, tasks, devices)
        _, best_s = problem.optimum()
        chances.append(random_search(problem, best_s, budget, seed))
        for way, (search, network) in ways.items():
            meter = search(problem, seed=seed, budget=budget, network=network)
            found[way].append(meter.measured_until(best_s) or 0)
            slower[way].append(meter.best_s / best_s)
    rows = [
        {
            "way": way,
            "found": float(np.mean([n > 0 for n in counts])),
            "measured": [n or None for n in counts],
            **mean_and_interval([float(n or budget) for n in counts]),
            "step_time_over_optimum": float(np.mean(slower[way])),
        }
        for way, counts in found.items()
    ]
    counts = [float(n or budget) for n in chances]
    rows.append({"way": "random placements", "found": float(np.mean([n > 0 for n in chances])),
                 "measured": [n or None for n in chances], **mean_and_interval(counts)})  # fmt: skip
    names = list(ways)
    fewer = [float(a or budget) - float(b or budget) for a, b in zip(found[names[0]], found[names[1]])]
    return {"tasks": tasks, "devices": devices, "budget": budget, "rows": rows,
            "reinforce_minus_ppo": mean_and_interval(fewer)}  # fmt: skip


def random_search(problem: Any, best_s: float, budget: int, seed: int) -> int:
    """How many different random placements until the optimum, 0 if the budget is not enough."""
    from argosy.learn.placement.problem import Meter
    from argosy.seeding import stream

    rng, meter = stream(seed, "placement.random"), Meter(problem)
    while meter.measured < budget:
        meter.measure(rng.integers(problem.devices, size=(1, problem.tasks)))
    return meter.measured_until(best_s) or 0


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
        began = time.perf_counter()
        placer.place(large)
        times.append((time.perf_counter() - began) * 1000)
    fragmented = Gang(large.tasks, np.minimum(free, 1), large.gpus, kind, rack, speed, large.across)
    worst = []
    for _ in range(20):
        began = time.perf_counter()
        placer.place(fragmented)
        worst.append((time.perf_counter() - began) * 1000)
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


def mean_and_interval(values: Sequence[float]) -> Json:
    """The mean, with its 95 % interval by Student's t."""
    from argosy.report.stats import interval

    if len(values) < 2:
        return {"mean": float(np.mean(values)), "low": float("nan"), "high": float("nan")}
    found = interval(values)
    return {"mean": found[0], "low": found[1], "high": found[2]}


def table(figures: Json) -> list[Row]:
    rows: list[Row] = [("what", "figure", "95 % interval", "beside it")]
    search = figures["search"]
    for row in search["rows"]:
        extent = f"{row['low']:.0f}–{row['high']:.0f}"
        rows.append((row["way"], f"{row['mean']:.0f} placements", extent, f"found {100 * row['found']:.0f} %"))
    cost = figures["gangs"]["mean_cost"]
    rows += [(f"gangs: {name}", f"cost {value:.3f}", "", "") for name, value in cost.items()]
    large = figures["gangs"]["large"]
    rows.append((f"{large['gpus']} GPUs on {large['nodes']} nodes", f"{large['median_ms']:.2f} ms", "",
                 f"{large['one_gpu_a_node_ms']:.2f} ms with one GPU free a node"))  # fmt: skip
    for row in figures["harmony"]["rows"]:
        ratio = row["ratio"]
        beside = "" if ratio is None else f"{ratio[0]:.2f} × load balancing"
        extent = "" if ratio is None else f"{ratio[1]:.2f}–{ratio[2]:.2f}"
        rows.append((f"packed: {row['policy']}", f"{row['jct_mean_h']:.2f} h", extent, beside))
    return rows
