"""Pollux and Sia: agreement with the authors' simulator, their claims, the speed of decisions and of whole runs.

Agreement needs --data; without it, its rows keep what was measured last. So do parts that are not asked for, as with
--parts claims,agreement. With data, runs and claims use the measured tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import RESULTS, Json, Options, Row, chosen_parts, measure, verdict, warm

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster
    from argosy.policies.pollux.problem import Problem
    from argosy.workload.trace import Trace

SEEDS = (0, 1, 2)
AGREEMENT_SEEDS = (0,)  # the authors' figures are of one run, too
ROUND_S, NODE_GPUS = 60.0, 4
DECISIONS = (  # policy, what is there, nodes (of pollux) or times 64 GPUs (of sia), jobs, rounds, target in ms
    ("pollux", "64 GPUs, 40 jobs", 16, 40, 20, 60.0),
    ("pollux", "1,000 GPUs, 1,000 jobs", 250, 1000, 5, 2000.0),
    ("sia", "64 GPUs, 40 jobs", 1, 40, 20, 50.0),
    ("sia", "1,984 GPUs, 1,000 jobs", 31, 1000, 5, 2000.0),
)
RUNS = (  # of elastic-64, with what they may take in seconds
    ("pollux", 20.0),
    *((name, 2.0) for name in ("sia", "las", "tiresias-las", "optimus", "lyra", "edf", "elasticflow", "gandiva-fair")),
    *((name, 2.0) for name in ("tesserae", "kai", "rubick", "shockwave")),
)
RIVALS = {  # those named "authors' …" are as Pollux' authors define them: with sizes and batches that they tuned
    "elastic-64": ("authors' tiresias", "authors' optimus", "tiresias-las", "optimus", "las"),
    "hetero-elastic-64": ("gavel-max-min", "pollux", "las"),
}
LEAST_GAIN, LEAST_CPU_RATIO = 0.30, 50.0
CAUSES = (  # of what sia gains over pollux in hetero-elastic-64, with what is different in `cause`
    ("restarts as long as in Sia's simulator", {"restarts": True}),
    ("pollux does not know GPU types, as in Sia's simulator", {"blind": True}),
    ("twice as many jobs in an hour", {"pace": 2.0}),
)


def run(options: Options, parts: Sequence[str] | None = None) -> Json:
    """Measure these parts; the others keep what was measured last."""
    parts = chosen_parts(parts, PARTS)
    found = {part: PARTS[part](options) for part in parts if part != "agreement" or options.data is not None}
    last = RESULTS / "goodput.json"
    known = json.loads(last.read_text("utf-8"))["figures"] if last.is_file() and not options.quick else {}
    return {part: found.get(part, known.get(part, [])) for part in PARTS}


def decided(options: Options) -> list[Json]:
    return [
        measure("goodput", "decisions", {"policy": p, "size": n, "jobs": j, "rounds": 3 if options.quick else r})
        | {"policy": p, "setting": text, "target_ms": target}
        for p, text, n, j, r, target in (DECISIONS[:1] if options.quick else DECISIONS)
    ]


def searched(options: Options) -> list[Json]:
    sizes = ({"nodes": 16, "jobs": 40, "dense": True}, {"nodes": 250, "jobs": 1000, "dense": False})
    return [measure("goodput", "search", size) for size in (sizes[:1] if options.quick else sizes)]


def ran(options: Options) -> list[Json]:
    given = {"quick": options.quick, "data": tables_of(options)}
    return [
        measure("goodput", "whole_run", {"policy": policy} | given) | {"target_s": target} for policy, target in RUNS
    ]


def claimed(options: Options) -> list[Json]:
    given = {"seeds": [0] if options.quick else list(SEEDS), "quick": options.quick, "data": tables_of(options)}
    return [measure("goodput", "claim", {"scenario": scenario} | given) for scenario in RIVALS]


def caused(options: Options) -> list[Json]:
    given = {"seeds": [0] if options.quick else list(SEEDS), "quick": options.quick, "data": tables_of(options)}
    return [measure("goodput", "cause", given | changes) | {"setting": text} for text, changes in CAUSES]


def agreed(options: Options) -> list[Json]:
    from benchmarks.pollux_rivals import PAIRS

    pairs = PAIRS[:1] if options.quick else PAIRS
    given = [
        {"data": str(options.data), "workload": w, "name": name, "seeds": list(AGREEMENT_SEEDS)} for name, w in pairs
    ]
    return [measure("pollux_rivals", "agreement", each) for each in given]


def tables_of(options: Options) -> str | None:
    """Return the folder of measured tables, which runs use where they are at hand."""
    return None if options.data is None else str(options.data / "throughput")


PARTS = {
    "decisions": decided,
    "searches": searched,
    "runs": ran,
    "claims": claimed,
    "causes": caused,
    "agreement": agreed,
}


# -- cases -----------------------------------------------------------------------------------------------------------


def crowd(jobs: int, later: int, seed: int = 3) -> Trace:
    """Return so many long adaptive jobs at once, then one in every round."""
    import polars as pl

    from argosy.scenario.changes import Changes
    from argosy.workload.synth import generate
    from argosy.workload.trace import Trace

    drawn = Changes(adaptive=True, largest_gpus=16).apply(generate("pollux", jobs + later, seed), seed, 64)
    arrivals = np.concatenate([np.zeros(jobs), ROUND_S * np.arange(1, later + 1)])
    shuffled = drawn.frame.sample(fraction=1, shuffle=True, seed=seed)
    return Trace.of(shuffled.with_columns(submit_s=pl.Series(arrivals), work=pl.col("work") * 50), "crowd")


def machines(policy: str, size: int) -> Cluster:
    from argosy.cluster.cluster import Cluster, Node

    if policy == "pollux":
        return Cluster.uniform(size, NODE_GPUS, "t4", nodes_per_rack=size)
    kinds = (("t4", 4, 6), ("a100", 8, 2), ("2080ti", 8, 3))  # Sia's mix: 64 GPUs for each `size`
    return Cluster(tuple(Node(f"{t}-{i}", t, gpus) for t, gpus, count in kinds for i in range(count * size)))


def decisions(policy: str, size: int, jobs: int, rounds: int) -> Json:
    """Time the policy's answers in milliseconds of CPU, and carrying them out beside it. The first does not count."""
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings

    warm()
    took: list[float] = []
    for repeat in (2, rounds + 1):  # the first compiles
        engine = Engine(crowd(jobs, repeat), machines(policy, size), create(policy), Settings(measurement_noise=0.0))
        took = []
        engine.advance()
        for _ in range(repeat):
            began = time.process_time()
            engine.ask()
            engine.apply()
            took.append(1000 * (time.process_time() - began))
            engine.advance()
    ms = np.array(took[1:])
    return {"p50_ms": float(np.median(ms)), "max_ms": float(ms.max()), "first_ms": took[0], "rounds": len(ms)}


def problem_of(nodes: int, jobs: int) -> Problem:
    """Return what Pollux searches for in the third round of a crowd."""
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings

    engine = Engine(crowd(jobs, 3), machines("pollux", nodes), create("pollux"), Settings(measurement_noise=0.0))
    kept: list[Any] = []
    population: Any = engine.policy._population  # type: ignore[attr-defined]
    inner = population.search

    def search(problem: Problem, *arguments: Any, **named: Any) -> Any:
        kept.append(problem)
        return inner(problem, *arguments, **named)

    population.search = search
    engine.advance()
    for _ in range(3):
        engine.ask()
        engine.apply()
        engine.advance()
    found: Problem = kept[-1]
    return found


def search(nodes: int, jobs: int, dense: bool) -> Json:
    """Compare the search, from nothing but what runs now, with a straightforward NSGA-II of 100 × 100.

    That is plain_nsga2 where dense arrays are small enough; otherwise the compiled one, without a head start or an
    early end.
    """
    from argosy.policies.pollux.problem import Population
    from benchmarks.plain_nsga2 import plain_search

    warm()
    problem = problem_of(nodes, jobs)

    def compiled(seed: int, *, greedy: bool, patience: int) -> float:
        population = Population(100)
        population.search(problem, -1.0, avoid=True, greedy=greedy, generations=100, patience=patience, seed=seed)
        return population.fitness

    rows = []
    for seed in (0, 1, 2):
        began = time.process_time()
        ours = compiled(seed, greedy=True, patience=30)
        ours_s, began = time.process_time() - began, time.process_time()
        plain = plain_search(problem, seed, generations=100) if dense else compiled(seed, greedy=False, patience=100)
        rows.append((ours, plain, ours_s, time.process_time() - began))
    fitness, plain_fitness, fitness_s, plain_s = (np.array(column) for column in zip(*rows))
    return {
        "gpus": nodes * NODE_GPUS,
        "jobs": jobs,
        "dense": dense,
        "fitness": float(fitness.mean()),
        "plain_fitness": float(plain_fitness.mean()),
        "worst_ratio": float((fitness / plain_fitness).min()),
        "ms": float(1000 * np.median(fitness_s)),
        "plain_ms": float(1000 * np.median(plain_s)),
    }


def whole_run(policy: str, quick: bool, data: str | None) -> Json:
    """Time a run of all jobs of elastic-64, in CPU seconds."""
    from argosy.sim.run import simulate

    warm()
    scenario, settings = _scenario("elastic-64", quick, data)
    simulate(scenario.with_count(4).trace(0), scenario.cluster, policy, settings)  # compiles
    trace = scenario.trace(0)
    began = time.process_time()
    simulate(trace, scenario.cluster, policy, settings)
    return {"policy": policy, "jobs": len(trace), "cpu_s": time.process_time() - began}


def claim(scenario: str, seeds: list[int], quick: bool, data: str | None) -> Json:
    """Compare mean completion times with those of rivals, seed by seed."""
    from argosy.policies.base import create
    from argosy.report.stats import paired_ratio
    from argosy.sim.engine import Engine
    from argosy.sim.metrics import metrics
    from benchmarks.pollux_rivals import policy_of

    warm()
    found, settings = _scenario(scenario, quick, data)
    ours = "pollux" if scenario == "elastic-64" else "sia"
    jct: dict[str, list[float]] = {name: [] for name in (ours, *RIVALS[scenario])}
    for seed in seeds:
        trace = found.trace(seed)
        for name, values in jct.items():
            _, theirs, rival = name.partition("authors' ")
            policy = policy_of(rival) if theirs else create(name)
            result = Engine(trace, found.cluster, policy, settings.with_seed(seed)).run()
            values.append(metrics(result)["jct_mean_s"])
    rows = []
    for rival in RIVALS[scenario]:
        mean, low, high, _ = paired_ratio(jct[ours], jct[rival])
        rows.append({"rival": rival, "jct_s": float(np.mean(jct[rival])), "ratio": mean, "low": low, "high": high})
    return {
        "scenario": scenario,
        "policy": ours,
        "jct_s": float(np.mean(jct[ours])),
        "rivals": rows,
        "seeds": len(seeds),
    }


def cause(
    seeds: list[int], quick: bool, data: str | None, restarts: bool = False, blind: bool = False, pace: float = 1.0
) -> Json:
    """Compare sia with pollux where restarts, what pollux knows, or the pace of arrivals are not as in the claim."""
    from dataclasses import replace

    from argosy.policies.base import create
    from argosy.report.stats import paired_ratio
    from argosy.sim.engine import Engine
    from argosy.sim.metrics import metrics
    from benchmarks.pollux_rivals import SIA_DELAYS, TypeBlind, delays

    warm()
    found, settings = _scenario("hetero-elastic-64", quick, data)
    jct: dict[str, list[float]] = {"sia": [], "pollux": []}
    with delays(SIA_DELAYS) as overheads:
        settings = replace(settings, overheads=overheads, hot_resize=True) if restarts else settings
        for seed in seeds:
            trace = found.trace(seed).at_load(pace) if pace != 1 else found.trace(seed)
            for name, values in jct.items():
                policy = TypeBlind() if blind and name == "pollux" else create(name)
                result = Engine(trace, found.cluster, policy, settings.with_seed(seed)).run()
                values.append(metrics(result)["jct_mean_s"])
    mean, low, high, _ = paired_ratio(jct["sia"], jct["pollux"])
    means = {name: float(np.mean(values)) for name, values in jct.items()}
    return {"jct_s": means["sia"], "their_jct_s": means["pollux"], "ratio": mean, "low": low, "high": high}


def _scenario(name: str, quick: bool, data: str | None) -> Any:
    from dataclasses import replace

    from argosy.scenario import read_scenario

    found = read_scenario(name, quick=quick)
    return found, found.settings if data is None else replace(found.settings, goodput=data)


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("what", "setting", "figure", "target")]
    for one in figures["decisions"]:
        figure = f"{one['p50_ms']:.1f} ms of CPU (max {one['max_ms']:.1f})"
        rows.append((f"{one['policy']}: a round", one["setting"], figure, verdict(one["p50_ms"], one["target_ms"])))
    for one in figures["searches"]:
        setting = f"{one['gpus']:,} GPUs, {one['jobs']:,} jobs"
        what = "NSGA-II in numpy" if one["dense"] else "plain NSGA-II"
        plain = f"{what} {one['plain_fitness']:.4g} in {one['plain_ms']:.0f}"
        figure = f"{one['fitness']:.4g} in {one['ms']:.0f} ms; {plain}"
        rows.append(("pollux: fitness", setting, figure, f"≥ 1: {one['worst_ratio']:.3f}"))
    for one in figures["runs"]:
        setting = f"elastic-64, {one['jobs']} jobs"
        rows.append(
            (f"{one['policy']}: a run", setting, f"{one['cpu_s']:.2f} s of CPU", verdict(one["cpu_s"], one["target_s"]))
        )
    return rows


def claim_table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("claim", "setting", "mean JCT s", "the rival's", "lower by", "≥ 30 %?")]
    for one in figures["claims"]:
        for rival in one["rivals"]:
            names = f"{one['policy']} / {rival['rival']}"
            jct = (f"{one['jct_s']:.0f}", f"{rival['jct_s']:.0f}")
            rows.append((names, f"`{one['scenario']}`", *jct, gain(rival), "yes" if enough(rival) else "no"))
    for one in figures["causes"]:
        jct = (f"{one['jct_s']:.0f}", f"{one['their_jct_s']:.0f}")
        where = f"`hetero-elastic-64`, {one['setting']}"
        rows.append(("sia / pollux", where, *jct, gain(one), "yes" if enough(one) else "no"))
    return rows


def gain(row: Json) -> str:
    return f"{1 - row['ratio']:.1%} [{1 - row['high']:.1%}, {1 - row['low']:.1%}]"


def enough(row: Json) -> bool:
    return bool(1 - row["ratio"] >= LEAST_GAIN)


def agreement_table(figures: Json) -> Sequence[Row]:
    head = ("policy", "trace", "their JCT s", "our JCT s", "difference", "within", "their CPU s", "our CPU s", "≥ 50×?")
    rows: list[Row] = [head]
    for one in figures["agreement"]:
        cells = (f"{one['their_jct_s']:.1f}", f"{one['jct_s']:.1f}", f"{one['off']:+.2%}")
        within = f"{one['tolerance']:.0%}: {'yes' if one['holds'] else 'no'}"
        theirs = f"{'about ' if one['estimated'] else ''}{one['their_cpu_s']:.4g}"
        ratio = one["their_cpu_s"] / one["cpu_s"]
        less = f"{ratio:.0f}×: {'yes' if ratio >= LEAST_CPU_RATIO else 'no'}"
        rows.append((f"authors' {one['policy']}", one["trace"], *cells, within, theirs, f"{one['cpu_s']:.2f}", less))
    return rows
