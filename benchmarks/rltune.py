"""RLTune against its base heuristics and las: mean completion times on unseen seeds, and what a decision costs.

Training drew its windows from seeds 1,000,000 on and was validated on 500,000 on; these seeds are small. `base order`
is the base heuristic under RLTune's own rules: its first job is always picked, waited for, and placed on as few nodes
as possible. The policies with ★ know true durations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Json, Options, Row

SEEDS = tuple(range(10))
FEW = 2
SCENARIOS = ("philly-rigid", "overload", "fluctuating", "mixed")
RIVALS = {"fifo": "fifo", "sjf ★": "sjf", "smallest-first": "smallest-first", "las": "las"}
OURS = {"rltune": {}, "rltune, milp": {"mapping": "milp"}, "base order": {}}
BASELINE = "fifo"


def run(options: Options) -> Json:
    seeds = SEEDS[:FEW] if options.quick else SEEDS
    scenarios = SCENARIOS[:1] if options.quick else SCENARIOS
    cases = [one_scenario(name, seeds, options.quick) for name in scenarios]
    return {"seeds": list(seeds), "baseline": BASELINE, "cases": cases, "weights": about()}


def about() -> Json:
    """How the weights were made, as far as a table needs it."""
    from argosy.zoo import find

    found = find("rltune").about
    return {name: found[name] for name in ("recipe", "score", "window", "curve") if name in found}


def one_scenario(name: str, seeds: Sequence[int], quick: bool) -> Json:
    """Every policy on the same jobs."""
    from argosy.report.stats import paired_ratio
    from argosy.scenario import read_scenario
    from argosy.sim.metrics import metrics
    from argosy.sim.run import simulate

    scenario = read_scenario(name, quick=quick)
    found: dict[str, dict[str, list[float]]] = {label: {} for label in (*OURS, *RIVALS)}
    took_ms: dict[str, list[float]] = {label: [] for label in OURS}
    for seed in seeds:
        trace = scenario.trace(seed)
        for label, columns in found.items():
            policy = scenario.spec(RIVALS[label]) if label in RIVALS else ours(label)
            result = simulate(trace, scenario.cluster, policy, scenario.settings.with_seed(seed))
            measured = metrics(result, window=scenario.window(trace))
            for metric in ("jct_mean_s", "jct_p99_s", "slowdown_mean"):
                columns.setdefault(metric, []).append(measured[metric])
            if label in took_ms:
                took_ms[label] += (result.decision_ns / 1e6).tolist()
    rows = []
    for label, columns in found.items():
        row: Json = {"policy": label, "jct_s": columns["jct_mean_s"]}
        for metric, values in columns.items():
            ratio = paired_ratio(values, found[BASELINE][metric])
            row[metric] = float(np.mean(values))
            row[f"{metric}_ratio"] = {"mean": ratio.mean, "low": ratio.low, "high": ratio.high}
        if label in took_ms:
            row["decision_ms"] = dict(zip(("p50", "p99"), np.percentile(took_ms[label], [50, 99]).tolist()))
        rows.append(row)
    return {"scenario": name, "jobs": scenario.count, "rows": rows}


def ours(label: str) -> Any:
    """RLTune's policy with the shipped weights, or with an actor that finds all jobs alike: the base order decides."""
    from argosy.policies.rltune.network import SHAPES, Actor
    from argosy.policies.rltune.policy import RlTune

    if label == "base order":
        return RlTune(Actor({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}))
    return RlTune(**OURS[label])


def table(figures: Json) -> list[Row]:
    head = ["policy", *(case["scenario"] for case in figures["cases"])]
    lines = [[row["policy"]] for row in figures["cases"][0]["rows"]]
    for case in figures["cases"]:
        for line, row in zip(lines, case["rows"]):
            line.append(shown(row["jct_mean_s_ratio"]))
    return [head, *lines]


def shown(ratio: Json) -> str:
    """A ratio to the baseline with its interval."""
    return f"{ratio['mean']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})" if ratio["low"] is not None else "–"
