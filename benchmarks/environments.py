"""Steps a second in the learning environments, with agents that pick any valid action.

Where a step is a whole decision of bids, a second run measures how much of it is compiled code, function by function:
no change of the Python around it makes a step faster than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Json, Options, Row, measure, warm

if TYPE_CHECKING:
    from argosy.learn.envs.speed import Speed

SEEDS = (0,)
TARGETS = (20_000, 50_000)  # steps/s in every mode, apart from resets: the first aim, and the later one
PROCESSES = 2
COMPILED = {  # the compiled code of a decision of bids: what it does, module and function
    "choice": ("argosy.mechanism.kernels.bids", "carry_out_bids"),
    "walk": ("argosy.mechanism.kernels.entry", "enter"),  # and what happens until the next decision
    "candidates": ("argosy.policies.common.candidate_rows", "write_rows"),
    "features": ("argosy.policies.learned.kernels.bid_values", "bid_features"),
    "rows": ("argosy.learn.envs.kernels.bid_rows", "find_rows"),
    "table": ("argosy.learn.envs.kernels.bid_rows", "show_rows"),
    "bids": ("argosy.learn.envs.kernels.bid_rows", "make_bids"),
}
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
    found = case(scenario, mode, 1, measured(env, steps, SEEDS[0]))
    return {**found, "compiled_s": compiled_s(lambda: measured(env, steps, SEEDS[0]))} if mode == "bid" else found


def compiled_s(run: Callable[[], Speed]) -> dict[str, float]:
    """Return the CPU time of a step in each compiled function; `run` measures steps."""
    spent_ns = dict.fromkeys(COMPILED, 0)

    def timed(function: Any, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.process_time_ns()
            found = function(*arguments)
            spent_ns[name] += time.process_time_ns() - began
            return found

        return call

    modules = {name: (import_module(module), function) for name, (module, function) in COMPILED.items()}
    plain = {name: getattr(module, function) for name, (module, function) in modules.items()}
    try:
        for name, (module, function) in modules.items():
            setattr(module, function, timed(plain[name], name))
        steps = run().steps
    finally:
        for name, (module, function) in modules.items():
            setattr(module, function, plain[name])
    return {name: ns / 1e9 / steps for name, ns in spent_ns.items()}


def pair(scenario: str, steps: int) -> Json:
    from argosy.learn.envs.pair import PairEnv
    from argosy.learn.envs.speed import measure_pair

    warm()
    return case(scenario, "order and place", 1, measure_pair(PairEnv(scenario, metrics=False), steps, SEEDS[0]))


def bid_pair(scenario: str, steps: int) -> Json:
    from argosy.learn.envs.bid_pair import BidPairEnv
    from argosy.learn.envs.speed import measure_bid_pair

    warm()
    return case(
        scenario, "values of jobs and sizes", 1, measure_bid_pair(BidPairEnv(scenario, metrics=False), steps, SEEDS[0])
    )


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
    head = (
        "mode",
        "scenario",
        "processes",
        "steps/s",
        "of `size`",
        *(f"≥ {target:,}?" for target in TARGETS),
        "with resets",
        "a reset, ms",
        "compiled alone, steps/s",
        "its µs: all, choice",
        "steps",
        "decisions",
    )
    rows: list[Row] = [head]
    size = next((c["steps_per_s"] for c in figures["cases"] if c["mode"] == "size"), None)
    for c in figures["cases"]:
        wanted = "vectorised" not in c["mode"]
        compiled = c.get("compiled_s", {})
        reset_s = c.get("reset_s", 0.0)
        rows.append(
            (
                c["mode"],
                f"`{c['scenario']}`",
                str(c["processes"]),
                f"{c['steps_per_s']:,.0f}",
                f"{c['steps_per_s'] / size:.2g}" if wanted and size else "",
                *(met(c["steps_per_s"], target) if wanted else "" for target in TARGETS),
                f"{c['steps_per_s_with_resets']:,.0f}" if "steps_per_s_with_resets" in c and wanted else "",
                f"{1000 * reset_s / c['episodes']:.0f}" if reset_s and c["episodes"] else "",
                f"{1 / sum(compiled.values()):,.0f}" if compiled else "",
                f"{1e6 * sum(compiled.values()):.0f}, {1e6 * compiled['choice']:.0f}" if compiled else "",
                f"{c['steps']:,}",
                f"{c['decisions']:,}" if c["decisions"] else "",
            )
        )
    return rows


def met(steps_per_s: float, target: float) -> str:
    return "yes" if steps_per_s >= target else f"no, {steps_per_s / target:.2g}×"
