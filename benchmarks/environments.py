"""Steps a second in the learning environments, with agents that pick any valid action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Json, Options, Row, measure, warm

if TYPE_CHECKING:
    from argosy.learn.envs.speed import Speed

SEEDS = (0,)
TARGET = 20_000  # in DL2's own mode and setting
PROCESSES = 2
ALONE = (  # scenario, mode, steps
    ("dl2-500", "size", 100_000),
    ("dl2-100", "size", 100_000),
    ("dl2-500", "pick", 10_000),
    ("dl2-500", "joint", 10_000),
    ("mixed", "pick", 10_000),
)


def run(options: Options) -> Json:
    part = 50 if options.quick else 1
    cases = [
        measure("environments", "alone", {"scenario": scenario, "mode": mode, "steps": steps // part})
        for scenario, mode, steps in ALONE
    ]
    cases.append(measure("environments", "pair", {"scenario": "philly-rigid", "steps": 5_000 // part}))
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
        "steps_per_s": speed.steps_per_s,
    }


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [("mode", "scenario", "processes", "steps/s", "target", "steps", "decisions", "episodes")]
    for c in figures["cases"]:
        wanted = c["mode"] == "size" and c["scenario"] == "dl2-500"
        met = "yes" if c["steps_per_s"] >= TARGET else f"no, {c['steps_per_s'] / TARGET:.2g}×"
        rows.append(
            (
                c["mode"],
                f"`{c['scenario']}`",
                str(c["processes"]),
                f"{c['steps_per_s']:,.0f}",
                f"≥ {TARGET:,}: {met}" if wanted else "",
                f"{c['steps']:,}",
                f"{c['decisions']:,}" if c["decisions"] else "",
                f"{c['episodes']:,}",
            )
        )
    return rows
