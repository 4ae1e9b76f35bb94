"""Spare GPUs in the scenario `spare`: `grow-when-spare` against its rivals, on ten seeds with the same jobs.

The rivals never grow, always grow, or give replicas only, first come, first served; by benefit they choose by the same
forecasts as the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from argosy.report.stats import paired_difference, paired_ratio
from argosy.scenario import read_scenario
from argosy.sim.metrics import metrics
from argosy.sim.run import simulate
from benchmarks.harness import Json, Options, Row

SEEDS = tuple(range(10))
SCENARIO = "spare"
BEST, NEVER = "grow-when-spare", "fifo"
RIVALS = {
    "never grow": NEVER,
    "always grow": "grow-when-spare:use=growth:by=arrival",
    "replicas only": "grow-when-spare:use=replicas:by=arrival",
    "growth by benefit": "grow-when-spare:use=growth",
    "replicas by benefit": "grow-when-spare:use=replicas",
}
KEPT = (
    "quality_mean",
    "quality_gain_mean",
    "spare_gpu_h",
    "spare_wasted_gpu_h",
    "jct_others_mean_s",
    "jct_mean_s",
    "deadlines_met",
)
LEAST, UNHARMED = 0.005, 0.01


def run(options: Options) -> Json:
    """All policies on all seeds."""
    scenario = read_scenario(SCENARIO, quick=options.quick)
    seeds = SEEDS[:2] if options.quick else SEEDS
    found: dict[str, list[Json]] = {name: [] for name in ("grow-when-spare", *RIVALS)}
    for seed in seeds:
        trace = scenario.trace(seed)
        for name, rows in found.items():
            spec = scenario.spec(RIVALS.get(name, BEST))
            result = simulate(trace, scenario.cluster, spec, scenario.settings.with_seed(seed))
            every = metrics(result, window=scenario.window(trace))
            rows.append({key: every[key] for key in KEPT})
    best = [row["quality_mean"] for row in found["grow-when-spare"]]
    others = [row["jct_others_mean_s"] for row in found["grow-when-spare"]]
    against: Json = {}
    for name in RIVALS:
        gain = paired_difference(best, [row["quality_mean"] for row in found[name]])
        against[name] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    harm = paired_ratio(others, [row["jct_others_mean_s"] for row in found["never grow"]])
    named = ("never grow", "always grow", "replicas only")
    least = min(against[name]["mean"] for name in named)
    return {
        "runs": {name: [{k: _plain(v) for k, v in row.items()} for row in rows] for name, rows in found.items()},
        "against": against,
        "jct_of_others": {"mean": harm.mean, "low": harm.low, "high": harm.high},
        "targets": {
            "quality": {"least": LEAST, "measured": least, "met": least >= LEAST},
            "others": {"most": UNHARMED, "measured": harm.mean - 1, "met": abs(harm.mean - 1) <= UNHARMED},
        },
    }


def _plain(value: float) -> float | None:
    return value if value == value else None


def table(figures: Json) -> list[Row]:
    """A row for each policy."""
    rows: list[Row] = [
        (
            "spare GPUs",
            "mean accuracy",
            "gained by them",
            "GPU·h given",
            "wasted",
            "grow-when-spare gains",
            "JCT of others",
            "deadlines met",
        )
    ]
    never = fmean(row["jct_others_mean_s"] for row in figures["runs"]["never grow"])
    for name, runs in figures["runs"].items():
        against = figures["against"].get(name)
        rows.append(
            (
                name,
                f"{100 * fmean(r['quality_mean'] for r in runs):.2f} %",
                f"{100 * fmean(r['quality_gain_mean'] for r in runs):+.2f}",
                f"{fmean(r['spare_gpu_h'] or 0.0 for r in runs):,.0f}",
                f"{fmean(r['spare_wasted_gpu_h'] or 0.0 for r in runs):,.0f}",
                _points(against) if against else "",
                f"{100 * (fmean(r['jct_others_mean_s'] for r in runs) / never - 1):+.1f} %",
                f"{100 * fmean(r['deadlines_met'] for r in runs):.1f} %",
            )
        )
    return rows


def target_table(figures: Json) -> Sequence[Row]:
    """The targets with what was measured."""
    quality, others = figures["targets"]["quality"], figures["targets"]["others"]
    return [
        ("target", "measured", ""),
        (
            f"accuracy ≥ best of never, always, replicas only {100 * quality['least']:+.1f}",
            f"{100 * quality['measured']:+.2f}",
            _yes(quality["met"]),
        ),
        ("mean JCT of other jobs within ±1 %", f"{100 * others['measured']:+.2f} %", _yes(others["met"])),
    ]


def _points(d: Json) -> str:
    return f"{100 * d['mean']:+.2f} ({100 * d['low']:+.2f} to {100 * d['high']:+.2f})"


def _yes(holds: bool) -> str:
    return "yes" if holds else "**no**"
