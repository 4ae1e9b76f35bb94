"""Training the dual-agent scheduler: evolution strategies, MAPPO, IPPO and SAC with equal, small budgets.

Every algorithm begins with the rule written by hand, and simulates the same number of runs for each of three training
seeds; its best validation counts. Results are costs (minutes and fees, as the recipe has it) over those of the rule, on
validation seeds that no training has used. Nothing here touches the seeds on which `dual-agent` reports.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.harness import Json, Options, Row

SEEDS = (0, 1, 2)  # of training
JUDGED = tuple(range(500_300, 500_312))  # validation of trainings begins at 500,000
BUDGET: dict[str, Any] = {"jobs": 100, "updates": 6, "runs": 12, "validation": 4, "every": 3}
GRADIENTS: dict[str, Any] = {"horizon_h": 2.0, "lam": 0.95, "lr": 3e-3}
CONTENDERS: dict[str, dict[str, Any]] = {
    "es": {"algo": "es"},
    "mappo": {"algo": "mappo", **GRADIENTS},
    "ippo": {"algo": "ippo", **GRADIENTS},
    "sac": {"algo": "sac", **GRADIENTS},
    "es, attention": {"algo": "es", "squeeze": "attention"},
}


def run(options: Options) -> Json:
    """Train with every algorithm and seed; with `quick` for one update on few jobs."""
    from argosy.learn.training.dual_agent import DualAgentRecipe, train
    from argosy.learn.training.dual_agent.runs import totals
    from argosy.policies.dual_agent.agents import Agents, first_weights
    from argosy.report.stats import paired_ratio

    budget = {"updates": 1, "runs": 4, "validation": 1, "every": 1, "jobs": 20} if options.quick else BUDGET
    seeds, judged = (SEEDS[:1], JUDGED[:1]) if options.quick else (SEEDS, JUDGED)
    whole = DualAgentRecipe(**budget)
    hand = totals(whole, Agents(first_weights()), list(judged))
    rows: list[Json] = []
    for label, choice in CONTENDERS.items():
        by_seed, costs, used = [], [], []
        for seed in seeds:
            began = time.process_time()
            weights = train(DualAgentRecipe(seed=seed, **budget, **choice))
            used.append(time.process_time() - began)
            squeeze = str(choice.get("squeeze", "mean"))
            costs.append(totals(whole, Agents(weights.arrays, squeeze=squeeze), list(judged)))
            curve = weights.about["curve"]
            by_seed.append({"seed": seed, "over_hand": ratio(paired_ratio(costs[-1], hand)), "curve": curve})
            print(label, by_seed[-1], flush=True)
        together = paired_ratio(np.exp(np.mean(np.log(costs), axis=0)), hand)
        row = {"algorithm": label, "over_hand": ratio(together), "by_seed": by_seed, "cpu_s": float(np.mean(used))}
        rows.append(row)
    return {"budget": budget, "gradients": GRADIENTS, "judged": list(judged), "rows": rows}


def ratio(found: Any) -> Json:
    """Return a ratio with its interval as JSON."""
    return {"ratio": found.mean, "low": found.low, "high": found.high}


def table(figures: Json) -> list[Row]:
    """Return the figures as rows of text."""
    rows: list[Row] = [
        ("algorithm", "chosen / rule by hand", "95 %", "by training seed", "last / first validation", "CPU s")
    ]
    for row in figures["rows"]:
        found = row["over_hand"]
        each = ", ".join(f"{one['over_hand']['ratio']:.3f}" for one in row["by_seed"])
        spread = f"{found['low']:.3f}–{found['high']:.3f}" if found["low"] is not None else "–"
        last = ", ".join(f"{one['curve'][-1][1] / one['curve'][0][1]:.3f}" for one in row["by_seed"])
        rows.append((row["algorithm"], f"{found['ratio']:.3f}", spread, each, last, f"{row['cpu_s']:.0f}"))
    return rows
