"""Show comparisons as tables: rows for any renderer, a table for the terminal, and JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.atomic import writing
from argosy.report.advice import advice
from argosy.report.comparison import Comparison, sees_future
from argosy.report.reproduction import reproductions
from argosy.report.stats import Interval, interval
from argosy.sim.metrics import DEFINITIONS
from argosy.sim.variation import value_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

LEAST_SEES = 14  # characters that the column "sees" needs to be readable
FUTURE_NOTE = "★ sees true durations"
UNFINISHED_NOTE = "† JCT, queueing and fairness are over finished jobs only; some were unfinished"

# The metrics for which a terminal of usual width has room, and those for a page.
SHORT = (
    "jct_mean_s",
    "quality_mean",
    "jct_others_mean_s",
    "spare_gpu_h",
    "spare_wasted_gpu_h",
    "jct_p50_s",
    "jct_p99_s",
    "queueing_mean_s",
    "rho_over_1",
    "utilisation_held",
    "cost_held",
    "energy_kwh",
    "restarts_per_job",
    "decision_p99_us",
)
LONG = (
    "jct_mean_s",
    "jct_p50_s",
    "jct_p90_s",
    "jct_p99_s",
    "queueing_mean_s",
    "makespan_s",
    "slowdown_mean",
    "rho_max",
    "rho_over_1",
    "utilisation_held",
    "utilisation_useful",
    "fragmentation",
    "restarts_per_job",
    "cost_held",
    "energy_kwh",
    "deadlines_met",
    "quality_mean",
    "spare_gpu_h",
    "spare_wasted_gpu_h",
    "jct_others_mean_s",
    "decision_p99_us",
)
LABELS = {
    "jct_mean_s": "JCT mean",
    "jct_p50_s": "JCT p50",
    "jct_p90_s": "JCT p90",
    "jct_p99_s": "JCT p99",
    "queueing_mean_s": "queueing",
    "makespan_s": "makespan",
    "slowdown_mean": "slowdown",
    "rho_max": "ρ max",
    "rho_over_1": "ρ > 1",
    "utilisation_held": "GPUs held",
    "utilisation_useful": "useful",
    "fragmentation": "fragm.",
    "restarts_per_job": "restarts/job",
    "cost_held": "cost",
    "energy_kwh": "energy",
    "deadlines_met": "deadlines",
    "quality_mean": "accuracy",
    "quality_gain_mean": "gained",
    "spare_gpu_h": "spare",
    "spare_wasted_gpu_h": "wasted",
    "jct_others_mean_s": "JCT others",
    "decision_p99_us": "decision p99",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A metric in the unit that suits its size: shown = value / divisor."""

    metric: str
    label: str
    unit: str
    divisor: float

    @property
    def title(self) -> str:
        return f"{self.label} [{self.unit}]" if self.unit else self.label


@dataclass(frozen=True, slots=True)
class Row:
    """One policy: shown values by metric, which of them are the best, and what it was allowed to see."""

    policy: str
    values: dict[str, str]
    best: frozenset[str]
    sees: str
    future: bool
    unfinished: bool


def columns(comparison: Comparison, names: Iterable[str] = SHORT) -> list[Column]:
    """Return the metrics among `names` for which any policy has a value, and counts of lost jobs if there are any."""
    known = [n for n in names if not all(math.isnan(v) for v in _means(comparison, n))]
    losing = [n for n in ("unfinished", "refused", "cancelled") if n not in known]
    lost = [n for n in losing if any(v > 0 for v in _means(comparison, n))]
    return [Column(n, LABELS.get(n, n), *fitting_unit(n, _means(comparison, n))) for n in [*known, *lost]]


def comparison_rows(comparison: Comparison, names: Iterable[str] = SHORT) -> list[Row]:
    """Return one row for each policy, in the order they were asked for."""
    shown = columns(comparison, names)
    best = {column.metric: comparison.best(column.metric) for column in shown}
    rows = []
    for policy in comparison.policies:
        summary = comparison.summary[policy]
        run = next(iter(comparison.runs[policy].values()))
        rows.append(
            Row(
                policy,
                {c.metric: show(summary[c.metric], c.divisor) for c in shown},
                frozenset(metric for metric, policies in best.items() if policy in policies),
                ", ".join(run.uses) or "nothing",
                sees_future(run),
                summary["unfinished"].mean > 0,
            )
        )
    return rows


def table(comparison: Comparison, names: Iterable[str] = SHORT) -> Table:
    """Build the table for the terminal; the best of each column is bold and green, and has a dot."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = columns(comparison, names)
    rows = comparison_rows(comparison, names)
    runs = f"{len(comparison.seeds)} seed{'s' if len(comparison.seeds) > 1 else ''}"
    first = comparison.results[0]
    notes = ["• best in column"]
    notes += ["± 95 % interval over seeds"] if len(comparison.seeds) > 1 else []
    notes += [FUTURE_NOTE] if any(row.future for row in rows) else []
    notes += [UNFINISHED_NOTE] if any(row.unfinished for row in rows) else []
    found = Table(
        title=Text(f"{first.trace} on {first.cluster.name}: {first.jobs.height:,} jobs, {runs}", "bold"),
        caption=Text("\n".join(notes)),
        caption_justify="left",
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    found.add_column("policy", no_wrap=True)
    for column in shown:
        found.add_column(Text(f"{column.label}\n{column.unit}"), justify="right", no_wrap=True)
    found.add_column("sees")
    for row in rows:
        marks = " ★" * row.future + " †" * row.unfinished
        cells = [_cell(text, metric in row.best) for metric, text in row.values.items()]
        found.add_row(Text(row.policy + marks), *cells, Text(row.sees, style="dim"))
    return found


def fitting_table(comparison: Comparison, width: int) -> Table:
    """Return the table with as many columns as a terminal of this width shows uncut; it names the others."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=10_000)  # wide enough for any table
    everything = columns(comparison)
    for count in range(len(SHORT), 1, -1):
        found = table(comparison, SHORT[:count])
        sees = found.columns.pop()  # this column may be wrapped, or left out if it has no room
        needed = console.measure(found).maximum
        left_out = [column.label for column in everything if column.metric in SHORT[count:]]
        if needed + LEAST_SEES <= width:
            found.columns.append(sees)
        else:
            left_out.append("sees")
        if needed <= width:
            break
    if left_out:
        note = f"no room for: {', '.join(left_out)}; for all, a wider terminal, -o json or --report FILE"
        found.caption = Text(f"{found.caption}\n{note}")
    return found


def _cell(text: str, best: bool) -> Text:
    """Return a figure with its spread below it, which keeps columns narrow."""
    from rich.text import Text

    mean, plus_minus, spread = text.partition(" ± ")
    found = Text(f"• {mean}", style="bold green") if best else Text(mean)
    return found.append(f"\n± {spread}", style="not bold dim") if plus_minus else found


def sweep_tables(comparison: Comparison) -> list[Table]:
    """Return mean JCT by what the sweep varies: of each policy in one table, or in one for each if two things vary."""
    first, *second = comparison.swept.items()
    means: dict[tuple[str, ...], list[float]] = {}
    for point in comparison.sweep:
        key = (point.policy, *(value_text(one.value) for one in point.at))
        means.setdefault(key, []).append(point.scores["jct_mean_s"])
    cells = {key: interval(values) for key, values in means.items()}
    unit, divisor = fitting_unit("jct_mean_s", [cell.mean for cell in cells.values()])
    policies = [policy for policy in comparison.policies if any(key[0] == policy for key in cells)]
    columns_ = [value_text(value) for value in first[1]]
    if not second:
        title = f"JCT mean [{unit}] by {title_of(first[0])}"
        rows = [(policy, [cells.get((policy, column)) for column in columns_]) for policy in policies]
        return [_grid(title, "policy", columns_, rows, divisor)]
    down = [value_text(value) for value in second[0][1]]
    return [
        _grid(
            f"{policy}: JCT mean [{unit}] by {title_of(first[0])} (across) and {title_of(second[0][0])} (down)",
            second[0][0],
            columns_,
            [(row, [cells.get((policy, column, row)) for column in columns_]) for row in down],
            divisor,
        )
        for policy in policies
    ]


def title_of(name: str) -> str:
    return "offered load" if name == "load" else name


def _grid(
    title: str, corner: str, heads: list[str], rows: list[tuple[str, list[Interval | None]]], divisor: float
) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Text(title, style="bold")
    found = Table(title=shown, title_justify="left", header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    found.min_width = len(shown)
    found.add_column(corner, no_wrap=True)
    for head in heads:
        found.add_column(head, justify="right")
    for name, cells in rows:
        texts = (show(interval([]) if cell is None else cell, divisor) for cell in cells)
        found.add_row(Text(name), *(_cell(text, best=False) for text in texts))
    return found


def show(value: Interval, divisor: float = 1.0) -> str:
    """Return a mean, with ± half of its interval if that is not zero; – if there is no value."""
    if math.isnan(value.mean):
        return "–"
    mean, reach = value.mean / divisor, value.half_width / divisor
    digits = 0 if abs(mean) >= 100 else 1 if abs(mean) >= 10 else 2
    if mean == round(mean) and not reach > 0:
        digits = 0
    spread = f" ± {reach:,.{digits}f}" if reach > 0 else ""
    return f"{mean:,.{digits}f}{spread}"


def _means(comparison: Comparison, name: str) -> list[float]:
    return [comparison.summary[policy][name].mean for policy in comparison.policies]


def fitting_unit(name: str, means: list[float]) -> tuple[str, float]:
    """Return the shown unit of a column and what to divide by, from its smallest non-zero mean."""
    unit = DEFINITIONS[name].unit
    size = min((abs(v) for v in means if not math.isnan(v) and v != 0), default=0.0)
    if unit == "s":
        steps = (("d", 86400.0, 2.0), ("h", 3600.0, 1.0), ("min", 60.0, 1.0), ("s", 1.0, 0.0))
        return next((name, length) for name, length, least in steps if size >= least * length)
    if unit == "µs" and size >= 1000:
        return "ms", 1000.0
    if unit == "share":
        return "%", 0.01
    return ("" if unit in ("jobs", "1/job", "times") else unit), 1.0


def to_json(comparison: Comparison, path: str | Path) -> None:
    """Write all figures of the comparison as strict JSON (NaN becomes null), atomically."""
    with writing(path) as temporary:
        text = json.dumps(document(comparison), indent=2, ensure_ascii=False, allow_nan=False, default=str)
        temporary.write_text(text + "\n", encoding="utf-8")


def document(comparison: Comparison) -> dict[str, Any]:
    """Return what `to_json` writes."""
    from argosy.report.users import as_dicts  # imported late, because it uses the units of this module

    first = comparison.results[0]
    cluster = first.cluster
    found = {
        "command": comparison.command,
        "versions": versions(),
        "trace": first.trace,
        "cluster": {"name": cluster.name, "nodes": len(cluster.nodes), "gpus": cluster.total_gpus},
        "seeds": list(comparison.seeds),
        "window_s": comparison.window,
        "baseline": comparison.baseline,
        "policies": [_policy(comparison, policy) for policy in comparison.policies],
        "paired_jct": [
            {"policy": p.policy, "against": p.other, "paired_by": p.by, "left_out": p.left_out} | p.change._asdict()
            for p in comparison.paired.values()
        ],
        "sweep": [
            {one.name: one.value for one in point.at}
            | {"policy": point.policy, "seed": point.seed, "metrics": point.scores}
            for point in comparison.sweep
        ],
        "advice": None if (found_advice := advice(comparison)) is None else found_advice.as_dict(),
        "users": as_dicts(comparison),
        "reproduction": [found._asdict() for found in reproductions(comparison)],
        "notes": list(dict.fromkeys(note for result in comparison.results for note in result.notes)),
        "units": {name: definition.unit for name, definition in DEFINITIONS.items()},
    }
    return without_nan(found)  # type: ignore[no-any-return]


def _policy(comparison: Comparison, policy: str) -> dict[str, Any]:
    runs = comparison.runs[policy]
    first = next(iter(runs.values()))
    return {
        "name": policy,
        "uses": list(first.uses),
        "sees_true_durations": sees_future(first),
        "runs": [
            {"seed": seed, "trace": run.trace, "settings": run.settings, "end_s": run.end_s}
            | {"cpu_s": run.cpu_s, "metrics": comparison.scores[policy][seed]}
            for seed, run in runs.items()
        ],
        "aggregate": {name: value._asdict() for name, value in comparison.summary[policy].items()},
    }


def versions() -> dict[str, str]:
    """Return the versions that could change a figure: of Argosy, Python and the numerical libraries."""
    packages = ("argosy", "numpy", "numba", "polars", "scipy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def without_nan(value: Any) -> Any:
    """Return the same nested value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
