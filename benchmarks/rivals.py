"""The newest rivals' claims (ElasticFlow, Lyra, Shockwave, Rubick, Tesserae), and what their decisions cost.

Each claim is a ratio of two policies, or of two settings, on the same jobs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.claims import row, scores
from benchmarks.faithfulness import shown, verdict
from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts, measure, warm

if TYPE_CHECKING:
    from argosy.policies.base import Floats, Ints

SEEDS = (20, 21, 22)  # not those of the league
SPEEDS = ("knapsacks", "plans")
PARTS = ("elasticflow", "lyra", "shockwave", "rubick", "tesserae", *SPEEDS)
KNAPSACK_MS, PLAN_S = 20.0, 15.0


def run(options: Options, parts: Sequence[str] | None = None) -> Json:
    """Measure all parts, or some; the others keep what was measured last."""
    path = RESULTS / "rivals.json"
    known: Json = json.loads(path.read_text("utf-8"))["figures"] if path.exists() and parts is not None else {}
    quick = {"quick": options.quick, "seeds": list(SEEDS[:1] if options.quick else SEEDS)}
    found: Json = {}
    chosen = chosen_parts(parts, PARTS)
    for name in PARTS:
        if name in chosen:
            found[name] = measure("rivals", name, {} if name in SPEEDS else quick)["rows"]
        else:
            found[name] = known.get(name, [])
    return found


def figures_of(
    scenario: str, policies: Sequence[str], quick: bool, seeds: Sequence[int], pace: float = 1.0, jobs: int = 0
) -> dict[str, list[dict[str, float]]]:
    """Return the metrics of each policy, seed by seed; jobs arrive `pace` times as fast as the scenario says."""
    from argosy.scenario import read_scenario

    warm()
    found = read_scenario(scenario, quick=quick)
    found = found.with_count(jobs) if jobs and not quick else found
    traces = [found.trace(seed).at_load(pace) if pace != 1 else found.trace(seed) for seed in seeds]
    return {
        policy: [
            scores(trace, found.cluster, found.spec(policy), found.settings.with_seed(seed))
            for seed, trace in zip(seeds, traces)
        ]
        for policy in policies
    }


def ratios(of: Sequence[dict[str, float]], over: Sequence[dict[str, float]], metric: str) -> list[float]:
    return [a[metric] / max(b[metric], 1e-9) for a, b in zip(of, over)]


def elasticflow(quick: bool, seeds: list[int]) -> Json:
    found = figures_of("deadline", ("elasticflow", "edf"), quick, seeds)
    met = [float(np.mean([f["deadlines_met"] for f in found[name]])) for name in ("elasticflow", "edf")]
    remark = f"{met[0]:.0%} against {met[1]:.0%} of the deadlines"
    claim = ratios(found["elasticflow"], found["edf"], "deadlines_met")
    return {
        "rows": [
            row(
                "ElasticFlow",
                "deadlines met / edf's",
                "league `deadline`",
                "1.46–7.65×",
                claim,
                at_least=1,
                remark=remark,
            )
        ]
    }


def lyra(quick: bool, seeds: list[int]) -> Json:
    from argosy.scenario import read_scenario

    warm()
    scenario = read_scenario("loaned", quick=quick)
    own = tuple(node for node in scenario.cluster.nodes if not node.name.startswith("serve"))
    alone = replace(scenario.cluster, nodes=own, loans=())
    lent, without, random = [], [], []
    for seed in seeds:
        trace, settings = scenario.trace(seed), scenario.settings.with_seed(seed)
        lent.append(scores(trace, scenario.cluster, "lyra", settings))
        without.append(scores(trace, alone, "lyra", settings))
        random.append(scores(trace, scenario.cluster, "lyra:reclaim=random", settings))
    stops = [float(np.mean([f["preemptions"] for f in part])) for part in (lent, random)]
    where = "league `loaned`"
    queueing = ratios(without, lent, "queueing_mean_s")
    preempted = ratios(lent, random, "preemptions")
    remark = f"{stops[0]:.1f} against {stops[1]:.1f} preemptions"
    return {
        "rows": [
            row("Lyra", "mean queueing without loans / with loans", where, "1.53×", queueing, at_least=1.4),
            row(
                "Lyra",
                "mean JCT without loans / with loans",
                where,
                "1.48×",
                ratios(without, lent, "jct_mean_s"),
                at_least=1,
            ),
            row("Lyra", "preemptions, servers chosen / at random", where, "fewer", preempted, at_most=1, remark=remark),
        ]
    }


def shockwave(quick: bool, seeds: list[int]) -> Json:
    """The paper has 120 jobs on a cluster with several times more work than it can do, so that is tried as well."""
    names = ("shockwave", "gavel-max-min", "gavel-max-min-agnostic")
    rows = []
    for pace, where in ((1.0, "`dynamic-batch`, 120 jobs"), (4.0, "the same jobs, arriving 4 times as fast")):
        found = figures_of("dynamic-batch", names, quick, seeds, pace, jobs=120)
        for other in names[1:]:
            makespan = ratios(found[other], found["shockwave"], "makespan_s")
            rho = ratios(found[other], found["shockwave"], "rho_max")
            remark = f"mean JCT {np.mean(ratios(found[other], found['shockwave'], 'jct_mean_s')):.2f}×"
            claim, fair = f"{other}'s makespan / shockwave's", f"{other}'s worst ρ / shockwave's"
            rows.append(row("Shockwave", claim, where, "1.2–1.3×", makespan, at_least=1.2))
            rows.append(row("Shockwave", fair, where, "1.6–2×", rho, at_least=1.5, remark=remark))
    return {"rows": rows}


def rubick(quick: bool, seeds: list[int]) -> Json:
    names = ("rubick", "sia", "optimus", "joint", "tiresias-las", "fifo-backfill")
    found = figures_of("llm-64", names, quick, seeds)
    rows = []
    for other in names[1:]:
        jct = ratios(found[other], found["rubick"], "jct_mean_s")
        longest = float(np.mean(ratios(found[other], found["rubick"], "makespan_s")))
        p99 = float(np.mean(ratios(found[other], found["rubick"], "jct_p99_s")))
        remark = f"makespan {longest:.2f}×, p99 of JCT {p99:.2f}×"
        rows.append(
            row(
                "Rubick",
                f"{other}'s mean JCT / rubick's",
                "league `llm-64`",
                "up to 3.2×",
                jct,
                at_least=1,
                remark=remark,
            )
        )
    return {"rows": rows}


def tesserae(quick: bool, seeds: list[int]) -> Json:
    """The order is the same, tiresias-las, so that what is left is placement, migration and packing."""
    names = ("tesserae", "tiresias-las", "gandiva", "fifo-backfill")
    found = figures_of("packed", names, quick, seeds)
    rows = []
    for other in names[1:]:
        jct = ratios(found[other], found["tesserae"], "jct_mean_s")
        longest = ratios(found[other], found["tesserae"], "makespan_s")
        where = "league `packed`"
        rows.append(row("Tesserae", f"{other}'s mean JCT / tesserae's", where, "1.62×", jct, at_least=1))
        rows.append(row("Tesserae", f"{other}'s makespan / tesserae's", where, "1.15×", longest, at_least=1))
    return {"rows": rows}


def knapsacks() -> Json:
    return {"rows": [knapsack(64, 40), knapsack(1000, 200)]}


def knapsack(gpus: int, jobs: int) -> Json:
    from argosy.policies.lyra.knapsack import choose

    random = np.random.default_rng(0)
    groups: list[tuple[Ints, Floats]] = []
    for _ in range(jobs):
        extra = np.arange(1, int(random.integers(2, 17)))
        groups.append((extra, np.sort(random.exponential(1000.0, len(extra)))))
    spent = []
    for _ in range(20):
        began = time.process_time()
        choose(groups, gpus)
        spent.append(time.process_time() - began)
    ms = float(np.median(spent)) * 1000
    return {
        "what": f"lyra's knapsack, {jobs} elastic jobs, {gpus} spare GPUs",
        "value": ms,
        "unit": "ms",
        "target": KNAPSACK_MS,
    }


def plans() -> Json:
    """The plans of a run of shockwave: the median and the longest."""
    from argosy.policies.shockwave import policy as shockwave_policy
    from argosy.scenario import read_scenario
    from argosy.sim.run import simulate

    warm()
    spent: list[float] = []
    usual: Any = shockwave_policy.plan

    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        found = usual(*arguments, **named)
        spent.append(time.process_time() - began)
        return found

    shockwave_policy.plan = timed
    try:
        scenario = read_scenario("dynamic-batch").with_count(120)
        simulate(scenario.trace(SEEDS[0]), scenario.cluster, "shockwave", scenario.settings.with_seed(SEEDS[0]))
    finally:
        shockwave_policy.plan = usual
    what = f"shockwave's plan in `dynamic-batch`, of {len(spent)} plans"
    pairs = (("median", float(np.median(spent))), ("longest", max(spent)))
    return {"rows": [{"what": f"{what} the {name}", "value": s, "unit": "s", "target": PLAN_S} for name, s in pairs]}


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("system", "claim", "setting", "published", "ours", "holds?", "remark")]
    for r in (r for name in PARTS if name not in SPEEDS for r in figures[name]):
        rows.append((r["system"], r["claim"], r["setting"], r["published"], shown(r), verdict(r), r["remark"]))
    return rows


def speed_table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("what", "one core", "target", "met?")]
    for r in (r for name in SPEEDS for r in figures[name]):
        met = "yes" if r["value"] <= r["target"] else "no"
        rows.append((r["what"], f"{r['value']:.3g} {r['unit']}", f"≤ {r['target']:g} {r['unit']}", met))
    return rows
