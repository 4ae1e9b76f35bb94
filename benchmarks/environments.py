"""Steps a second in the learning environments, with agents that pick any valid action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Json, Options, Row, measure, warm

if TYPE_CHECKING:
    from argosy.learn.envs.speed import Speed

SEEDS = (0,)
TARGET = 20_000  # in every mode, apart from resets
PROCESSES = 2
ALONE = (  # scenario, mode, steps
    ("dl2-500", "size", 100_000),
    ("dl2-100", "size", 100_000),
    ("dl2-500", "pick", 10_000),
    ("dl2-500", "joint", 10_000),
    ("mixed", "pick", 10_000),
    ("mixed", "joint", 10_000),
    ("dl2-500", "bid", 1_000),
    ("mixed", "bid", 1_000),
)


def run(options: Options) -> Json:
    part = 50 if options.quick else 1
    cases = [
        measure("environments", "alone", {"scenario": scenario, "mode": mode, "steps": steps // part})
        for scenario, mode, steps in ALONE
    ]
    cases.append(measure("environments", "pair", {"scenario": "philly-rigid", "steps": 5_000 // part}))
    cases.append(measure("environments", "bid_pair", {"scenario": "mixed", "steps": 1_000 // part}))
    cases += [
        measure("environments", "together", {"scenario": "dl2-500", "processes": count, "rounds": 5_000 // part})
        for count in (1, PROCESSES)
    ]
    return {"cases": cases}


def alone(scenario: str, mode: str, steps: int) -> Json:
    """One environment in one process, without the metrics at the end of an episode."""
    from argosy.learn.envs.cluster import ClusterEnv
    from argosy.learn.envs.speed import measure as measured

    warm()
    env = ClusterEnv(scenario, mode, metrics=False)
    return case(scenario, mode, 1, measured(env, steps, SEEDS[0]))


def pair(scenario: str, steps: int) -> Json:
    from argosy.learn.envs.pair import PairEnv
    from argosy.learn.envs.speed import measure_pair

    warm()
    return case(scenario, "order and place", 1, measure_pair(PairEnv(scenario), steps, SEEDS[0]))


def bid_pair(scenario: str, steps: int) -> Json:
    from argosy.learn.envs.bid_pair import BidPairEnv
    from argosy.learn.envs.speed import measure_bid_pair

    warm()
    return case(scenario, "values of jobs and sizes", 1, measure_bid_pair(BidPairEnv(scenario), steps, SEEDS[0]))


def together(scenario: str, processes: int, rounds: int) -> Json:
    from argosy.learn.envs.speed import measure_many

    return case(scenario, "size, vectorised", processes, measure_many(scenario, processes, rounds, SEEDS[0]))


def case(scenario: str, mode: str, processes: int, speed: Speed) -> Json:
    return {
        "scenario": scenario,
        "mode": mode,
        "processes": processes,
        "steps": speed.steps,
        "decisions": speed.decisions,
        "episodes": speed.episodes,
        "seconds": speed.seconds,
        "reset_s": speed.reset_s,
        "steps_per_s": speed.steps_per_s,
        "steps_per_s_with_resets": speed.steps_per_s_with_resets,
    }


def table(figures: Json) -> Sequence[Row]:
    head = ("mode", "scenario", "processes", "steps/s", "target", "with resets", "steps", "decisions", "episodes")
    rows: list[Row] = [head]
    for c in figures["cases"]:
        wanted = "vectorised" not in c["mode"]
        met = "yes" if c["steps_per_s"] >= TARGET else f"no, {c['steps_per_s'] / TARGET:.2g}×"
        rows.append(
            (
                c["mode"],
                f"`{c['scenario']}`",
                str(c["processes"]),
                f"{c['steps_per_s']:,.0f}",
                f"≥ {TARGET:,}: {met}" if wanted else "",
                f"{c.get('steps_per_s_with_resets', c['steps_per_s']):,.0f}",
                f"{c['steps']:,}",
                f"{c['decisions']:,}" if c["decisions"] else "",
                f"{c['episodes']:,}",
            )
        )
    return rows
