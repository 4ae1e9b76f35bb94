"""The shipped growth agent, judged on what it was not taught: each family, and each data set, left out in turn.

`python -m argosy.grow.study.teach` teaches and judges, and writes what it found into the agent's file; this reads it.
"""

from __future__ import annotations

from argosy.grow.agents.forecasting_agent import PRETRAINED
from argosy.grow.study.make_branches import SCENARIOS
from argosy.grow.tables.branch_table import read_all
from argosy.zoo import weights
from benchmarks.harness import Json, Options, Row

BEFORE = {  # mean error of an earlier agent's forecasts of leaving alone, taught by the same tables, families left out
    "early": 0.156,
    "middle": 0.139,
    "late": 0.129,
}
SEEDS = (0,)  # those of the branch tables
COLUMNS = ("none", "none_reset", "random", "better")
COVERED = (0.75, 0.85)


def run(options: Options) -> Json:
    """Read what was found; count the trainings behind it."""
    about, tables = weights.read(PRETRAINED).about, read_all()
    points = [point for table in tables for run in table.runs for point in run]
    return {
        "tables": len(tables),
        "trainings": sum(len(table.runs) for table in tables),
        "points": len(points),
        "arms": sum(len(point.arms) for point in points),
        "command": about["command"],
        "settings": about["settings"],
        "spread": about["spread"],
        "caution tried": about["caution tried"],
        "left out": about["left out"],
        "left alone": about["left alone"],
        "left alone before": BEFORE,
    }


def table(figures: Json) -> list[Row]:
    """A row for each family and each data set that was left out, in points of test accuracy."""
    rows: list[Row] = [
        (
            "left out",
            "decisions",
            "80 % intervals cover",
            "grew",
            "agent − none",
            "− none with reset",
            "− random growth",
        )
    ]
    for by, found in figures["left out"].items():
        for name, row in found.items():
            left = f"each {by}" if name == "all" else name
            cells = [_points(row[column]) for column in COLUMNS[:3]]
            rows.append(
                (left, str(row["points"]), f"{100 * row['coverage']:.0f} %", f"{100 * row['grew']:.0f} %", *cells)
            )
    return rows


def alone_table(figures: Json) -> list[Row]:
    """What was forecast of networks that are left alone, for each scenario, in points of validation accuracy."""
    rows: list[Row] = [
        (
            "left out",
            "when",
            "forecast is off by",
            "before",
            "if the present score stays",
            "forecasts > 2 points below the present score",
            "80 % intervals cover",
        )
    ]
    for by, found in figures["left alone"].items():
        for when in SCENARIOS:
            row = found[when]
            before = figures["left alone before"].get(when) if by == "family" else None
            cells = [f"{100 * value:.1f}" if value is not None else "" for value in (row["off"], before, row["stays"])]
            rows.append((f"each {by}", when, *cells, *(f"{100 * row[name]:.0f} %" for name in ("below", "coverage"))))
    return rows


def _points(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f}"
