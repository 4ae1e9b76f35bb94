"""Training argonaut: learning curves of three seeds, and what is left if levels are not trained together.

Every arm begins as the same hand-written rule and sees the same number of runs, fewer than the shipped weights. `order
only` changes the weights that order jobs, `sizes only` those that choose among a job's bids, and `levels apart` adds
what these two have learned without each other. `no learning` is the rule itself. Judged are all on unseen seeds of
`mixed`, by mean completion times over those of the rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import Json, Options, Row

if TYPE_CHECKING:
    from argosy.learn.training.student import Arrays

SEEDS = (0, 1, 2)  # of training
JUDGED = tuple(range(20))
SCENARIO = "mixed"
BUDGET: dict[str, Any] = {"updates": 12, "windows": 3, "every": 3, "patience": 0}
NUMBERS = {"arrivals": 4.0, "lr": 0.06}
ARMS: dict[str, dict[str, float]] = {
    "together": {},
    "order only": {"size": 0.0},
    "sizes only": {"order": 0.0},
}
TOGETHER, ORDER, SIZES = ARMS
APART, NOTHING = "levels apart", "no learning"


def run(options: Options) -> Json:
    from argosy.learn.training.recipe import Recipe
    from argosy.learn.training.train import train
    from argosy.policies.learned.bid_network import first_weights

    budget = {"updates": 1, "windows": 1, "every": 1, "patience": 0} if options.quick else BUDGET
    seeds = SEEDS[:1] if options.quick else SEEDS
    numbers = {"arrivals": 1.0, "pairs": 2.0} if options.quick else NUMBERS
    rows: list[Json] = []
    found: dict[str, list[Arrays]] = {arm: [] for arm in ARMS}
    for seed in seeds:
        for arm, units in ARMS.items():
            recipe = Recipe.of("argonaut", scenario=SCENARIO, seed=seed, options=numbers | units, **budget)
            trained = train(recipe)
            assert trained.weights is not None
            found[arm].append(dict(trained.weights.arrays))
            curve = [[result.update, result.over_teacher] for result in trained.curve]
            rows.append({"arm": arm, "seed": seed, "curve": curve, "seconds": sum(trained.seconds.values())})
            print(arm, seed, curve[-1], flush=True)
    rule = [first_weights(seed, relative=0.6, elastic=0.4) for seed in seeds]
    apart = [
        {name: order[name] + sizes[name] - start[name] for name in start}
        for order, sizes, start in zip(found[ORDER], found[SIZES], rule)
    ]
    arms = {NOTHING: rule[:1], **found, APART: apart}
    return {"budget": budget | {"options": numbers}, "curves": rows, "judged": judged(arms, quick=options.quick)}


def judged(arms: dict[str, list[Arrays]], *, quick: bool) -> list[Json]:
    """Mean completion times of each arm over the rule's, over all its training seeds."""
    from argosy.report.stats import paired_ratio

    found = {arm: np.array([jct_s(arrays, quick=quick) for arrays in weights]) for arm, weights in arms.items()}
    rule = found[NOTHING][0]
    rows = []
    for arm, spent in found.items():
        ratio = paired_ratio(np.exp(np.log(spent).mean(axis=0)), rule)
        each = [float(np.exp(np.mean(np.log(one / rule)))) for one in spent]
        rows.append({"arm": arm, "mean": ratio.mean, "low": ratio.low, "high": ratio.high, "by_seed": each})
    return rows


def jct_s(arrays: Arrays, *, quick: bool) -> list[float]:
    """Mean completion times by seed of `mixed`."""
    from argosy.policies.learned.argonaut import Argonaut
    from argosy.policies.learned.bid_network import BidNetwork
    from argosy.scenario import read_scenario
    from argosy.sim.metrics import metrics
    from argosy.sim.run import simulate

    scenario, policy, spent = read_scenario(SCENARIO, quick=quick), Argonaut(BidNetwork(arrays)), []
    for seed in JUDGED[:2] if quick else JUDGED:
        trace = scenario.trace(seed)
        result = simulate(trace, scenario.cluster, policy, scenario.settings.with_seed(seed))
        spent.append(metrics(result, window=scenario.window(trace))["jct_mean_s"])
    return spent


def table(figures: Json) -> list[Row]:
    """What each arm is worth on unseen seeds."""
    rows: list[Row] = [("arm", "mean JCT / rule", "95 %", "by training seed")]
    for row in figures["judged"]:
        spread = f"{row['low']:.3f}–{row['high']:.3f}" if row["low"] is not None else "–"
        rows.append((row["arm"], f"{row['mean']:.3f}", spread, ", ".join(f"{one:.3f}" for one in row["by_seed"])))
    return rows


def curve_table(figures: Json) -> list[Row]:
    """Validation scores over the rule's after so many generations, by arm and training seed."""
    updates = [update for update, _ in figures["curves"][0]["curve"]] if figures["curves"] else []
    rows: list[Row] = [("arm", "seed", *(f"after {update}" for update in updates), "minutes")]
    for one in figures["curves"]:
        scores = [f"{score:.3f}" for _, score in one["curve"]]
        rows.append((one["arm"], str(one["seed"]), *scores, f"{one['seconds'] / 60:.1f}"))
    return rows
