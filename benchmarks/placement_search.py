"""How many placements REINFORCE and PPO measure until they find the optimum of random problems.

A problem's optimum is known from trying all placements; a search that does not find it counts with its whole budget.
Both algorithms run on both networks, each network with its own learning rates, from nothing and trained before on other
problems. Beside them: trained networks that learn nothing from what is measured, random placements, and random ones of
those that a search may draw: they fit into memory, and none is equal to another but for an exchange of equal devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.harness import Json

BUDGET = 200
REINFORCE = "REINFORCE, sequence network (Mirhoseini), trained before"
PPO = "PPO, network of stages (Spotlight), trained before"
MAIN = (REINFORCE, PPO)
SMALLER = ((5, 4), (6, 3), (4, 2))
QUICK = {"updates": 2, "problems": 2, "samples": 4}
Ways = dict[str, Callable[[Any, int, int], Any]]


def study(seeds: Sequence[int], fresh: Sequence[int], *, quick: bool) -> Json:
    """All ways on problems of 6 tasks and 4 devices, of both kinds of seeds; the main ones on smaller problems."""
    tasks, devices, budget = (4, 2, 16) if quick else (6, 4, BUDGET)
    ways, cpu_s = every_way(tasks, devices, quick=quick)
    sets = [compare(ways, tasks, devices, chosen, budget) for chosen in (seeds, fresh)]
    for size in () if quick else SMALLER:
        some, more_s = every_way(*size, quick=quick)
        cpu_s.update({f"{name}, {size[0]} tasks, {size[1]} devices": s for name, s in more_s.items()})
        sets.append(compare({way: some[way] for way in MAIN}, *size, fresh, budget))
    return {"budget": budget, "pretraining_cpu_s": cpu_s, "sets": sets}


def every_way(tasks: int, devices: int, *, quick: bool) -> tuple[Ways, dict[str, float]]:
    """Return the searches (of a problem, a seed and a budget) by name, and the CPU seconds of training before."""
    from argosy.learn.placement import mirhoseini, spotlight

    size, trained, cpu_s = QUICK if quick else {}, {}, {}
    for name, module in (("sequence", mirhoseini), ("stages", spotlight)):
        began = time.process_time()
        trained[name] = module.pretrain(tasks, devices, **size)
        cpu_s[name] = time.process_time() - began
    by_reinforce, by_ppo = mirhoseini.Settings(), spotlight.Settings()
    sequence_rates = {"lr": by_reinforce.lr, "table_lr": by_reinforce.table_lr}
    stages_rates = {"lr": by_ppo.lr, "table_lr": by_ppo.table_lr}

    def way(module: Any, settings: Any, network: Any) -> Callable[[Any, int, int], Any]:
        return lambda problem, seed, budget: module.search(problem, settings, seed=seed, budget=budget, network=network)

    sequence, stages = trained["sequence"], trained["stages"]
    still = {"lr": 0.0, "table_lr": 0.0}
    ways = {
        REINFORCE: way(mirhoseini, by_reinforce, sequence),
        PPO: way(spotlight, by_ppo, stages),
        "REINFORCE, network of stages, trained before": way(mirhoseini, replace(by_reinforce, **stages_rates), stages),
        "PPO, sequence network, trained before": way(spotlight, replace(by_ppo, **sequence_rates), sequence),
        "sequence network, trained before, learns no more": way(mirhoseini, replace(by_reinforce, **still), sequence),
        "network of stages, trained before, learns no more": way(spotlight, replace(by_ppo, **still), stages),
        "REINFORCE, sequence network (Mirhoseini), from nothing": way(mirhoseini, by_reinforce, None),
        "PPO, network of stages (Spotlight), from nothing": way(spotlight, by_ppo, None),
        "random placements that a search may draw": different_ones,
        "random placements": any_ones,
    }
    return ways, cpu_s


def different_ones(problem: Any, seed: int, budget: int) -> Any:
    """Measure random ones of the placements that a search may draw."""
    from argosy.learn.placement.decoding import beam
    from argosy.learn.placement.problem import Meter
    from argosy.learn.placement.spotlight import StagePolicy
    from argosy.seeding import stream

    found, _ = beam(StagePolicy(problem.tasks, problem.devices), problem, problem.devices**problem.tasks)
    meter = Meter(problem)
    meter.measure(stream(seed, "placement.different").permutation(found)[:budget])
    return meter


def any_ones(problem: Any, seed: int, budget: int) -> Any:
    """Measure random placements until `budget` different ones are known, or all are."""
    from argosy.learn.placement.problem import Meter
    from argosy.seeding import stream

    rng, meter = stream(seed, "placement.random"), Meter(problem)
    while meter.measured < min(budget, problem.devices**problem.tasks):
        meter.measure(rng.integers(problem.devices, size=(1, problem.tasks)))
    return meter


def compare(ways: Ways, tasks: int, devices: int, seeds: Sequence[int], budget: int) -> Json:
    """Search the problems of these seeds in every way."""
    from argosy.learn.placement.problem import draw_problem

    found: dict[str, list[int | None]] = {way: [] for way in ways}
    slower: dict[str, list[float]] = {way: [] for way in ways}
    for seed in seeds:
        problem = draw_problem(seed, tasks, devices)
        _, best_s = problem.optimum()
        for way, search in ways.items():
            meter = search(problem, seed, budget)
            found[way].append(meter.measured_until(best_s))
            slower[way].append(meter.best_s / best_s)
    rows = [
        {
            "way": way,
            "found": float(np.mean([n is not None for n in counts])),
            "measured": counts,
            "most": max(n or budget for n in counts),
            **mean_and_interval([float(n or budget) for n in counts]),
            "step_time_over_optimum": float(np.mean(slower[way])) if np.isfinite(slower[way]).all() else None,
        }
        for way, counts in found.items()
    ]
    fewer = [float(a or budget) - float(b or budget) for a, b in zip(found[REINFORCE], found[PPO])]
    return {
        "tasks": tasks,
        "devices": devices,
        "seeds": list(seeds),
        "rows": rows,
        "reinforce_minus_ppo": mean_and_interval(fewer),
    }


def mean_and_interval(values: Sequence[float]) -> Json:
    """The mean, with its 95 % interval by Student's t."""
    from argosy.report.stats import interval

    if len(values) < 2:
        return {"mean": float(np.mean(values)), "low": float("nan"), "high": float("nan")}
    found = interval(values)
    return {"mean": found[0], "low": found[1], "high": found[2]}
