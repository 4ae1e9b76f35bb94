"""Joint scheduling in the newest scenarios of the league, against the newest rivals; losses stand beside wins.

Rivals that need estimates of lengths get them from earlier jobs (`--estimator history`), because those of an oracle
would be true durations. A rival that sees true durations even so does not count as the best one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.harness import Json, Row
from benchmarks.joint_runs import OURS, Case, Found, all_figures, best_of, interval_of, show, spread

SEEDS = tuple(range(5))
SCENARIOS = ("elastic-64", "hetero-elastic-64", "loaned", "deadline", "dynamic-batch", "llm-64", "spare")
QUICK = ("llm-64", "dynamic-batch")
ESTIMATORS = {"lyra": "history", "elasticflow": "history"}
RIVALS = (
    "gavel-throughput", "rubick", "sia", "pollux", "tesserae", "kai", "shockwave", "lyra", "elasticflow",
)  # fmt: skip
DUE = "deadlines_met"


def measure(quick: bool) -> Json:
    """Run everything; with `quick`, two scenarios on one seed without the slowest rivals."""
    names, seeds = (QUICK, SEEDS[:1]) if quick else (SCENARIOS, SEEDS)
    rivals = tuple(policy for policy in RIVALS if not (quick and policy in ("pollux", "shockwave")))
    wanted = [case(name, policy, seed, quick) for name in names for policy in (*rivals, *OURS) for seed in seeds]
    found = all_figures(wanted)
    return {
        "seeds": list(seeds),
        "rivals": list(rivals),
        "estimators": ESTIMATORS,
        "rows": [row(name, rivals, found, seeds, quick) for name in names],
    }


def case(scenario: str, policy: str, seed: int, quick: bool) -> Case:
    return Case(scenario, policy, seed, quick, ESTIMATORS.get(policy, ""))


def row(name: str, rivals: Sequence[str], found: Found, seeds: Sequence[int], quick: bool) -> Json:
    """Return the figures of a scenario: each policy's own, and argonaut's over them."""

    def column(policy: str, metric: str) -> list[float]:
        return [found[case(name, policy, seed, quick)][metric] for seed in seeds]

    policies: list[Json] = []
    for policy in (*rivals, *OURS):
        due = column(policy, DUE)
        mine = {metric: column("argonaut", metric) for metric in ("jct_mean_s", "jct_p99_s")}
        policies.append(
            {
                "policy": policy,
                "sees future": any(column(policy, "star")),
                "jct_s": column(policy, "jct_mean_s"),
                "p99_s": column(policy, "jct_p99_s"),
                DUE: None if any(np.isnan(due)) else float(np.mean(due)),
                "argonaut_over": interval_of(mine["jct_mean_s"], column(policy, "jct_mean_s")),
                "argonaut_p99_over": interval_of(mine["jct_p99_s"], column(policy, "jct_p99_s")),
            }
        )
    fair = {one["policy"]: one["jct_s"] for one in policies if one["policy"] in rivals and not one["sees future"]}
    best = best_of(fair)
    over_best = {policy: interval_of(column(policy, "jct_mean_s"), fair[best]) for policy in OURS}
    return {"scenario": name, "best": best, **over_best, "policies": policies}


def table(figures: Json) -> list[Row]:
    """Return joint and argonaut in each scenario, over the best rival, and how many rivals are ahead."""
    found: list[Row] = [
        ("scenario", "best rival without ★", "joint / it", "argonaut / it", "95 %", "ahead of argonaut", "behind it")
    ]
    for row in figures.get("newest", {}).get("rows", ()):
        sides = {"ahead": 0, "behind": 0}
        for one in row["policies"]:
            over = one["argonaut_over"]
            if one["policy"] in OURS or one["sees future"] or over["low"] is None:
                continue
            sides["ahead"] += over["low"] > 1
            sides["behind"] += over["high"] < 1
        mine, count = row["argonaut"], sum(o["policy"] not in OURS and not o["sees future"] for o in row["policies"])
        cells = (f"{sides[side]} of {count}" for side in ("ahead", "behind"))
        found.append((f"`{row['scenario']}`", row["best"], show(row["joint"]), show(mine), spread(mine), *cells))
    return found


def rival_table(figures: Json) -> list[Row]:
    """Return argonaut's mean completion time over each rival's, in every scenario."""
    newest = figures.get("newest", {"rows": [], "rivals": []})
    found: list[Row] = [("argonaut / rival", *(f"`{row['scenario']}`" for row in newest["rows"]))]
    for policy in (*newest["rivals"], OURS[0]) if newest["rows"] else ():
        cells = []
        for row in newest["rows"]:
            one = next(one for one in row["policies"] if one["policy"] == policy)
            over = one["argonaut_over"]
            bounds = "" if over["low"] is None else f" ({over['low']:.2f}–{over['high']:.2f})"
            lost = over["low"] is not None and over["low"] > 1
            text = f"{over['mean']:.2f}{bounds}{' ★' if one['sees future'] else ''}"
            cells.append(f"**{text}**" if lost else text)
        found.append((policy, *cells))
    return found


def deadline_table(figures: Json) -> list[Row]:
    """Return the share of deadlines that each policy meets, where jobs have some."""
    rows = [row for row in figures.get("newest", {}).get("rows", ()) if row["policies"][0][DUE] is not None]
    found: list[Row] = [("deadlines met, %", *(f"`{row['scenario']}`" for row in rows))]
    if rows:
        for i, one in enumerate(rows[0]["policies"]):
            found.append((one["policy"], *(f"{100 * row['policies'][i][DUE]:.1f}" for row in rows)))
    return found
