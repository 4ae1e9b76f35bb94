"""Draw charts of a comparison in Altair, for both interactive pages and PNG pictures.

Colours are Okabe and Ito's, which people with any colour vision can tell apart, and a policy has the same one
in every chart. Data are thinned before they are embedded, so that a report of a million jobs is as small as one
of ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import altair as alt
import numpy as np
import polars as pl

from argosy.atomic import writing
from argosy.report.comparison import SIZE_NAMES, Comparison
from argosy.report.stats import paired_ratio
from argosy.sim.timeline import Steps, Timeline
from argosy.sim.variation import Value, value_text

Chart: TypeAlias = Any  # Altair gives single, layered and faceted charts types without a common name

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
DASHES = ([1, 0], [6, 3], [2, 2])  # line styles for the first, second and third use of the palette
CDF_POINTS = 300
TIME_POINTS = 240
MOST_QUEUES = 12
HEIGHT = 280

# Ticks of a logarithmic axis of seconds that are round in words: for a long axis, and for a short one.
TICKS_S = [1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400]
FINE_TICKS_S = [n * u for u in (1, 60, 3600) for n in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 15, 20, 30, 40)]
# Ticks of a logarithmic axis of ratios that are round numbers, finest first.
RATIO_STEPS = (
    [n / 20 for n in range(12, 32)],
    [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2],
    [n * 10.0**e for e in range(-1, 2) for n in (1, 2, 3, 5, 7)],
    [n * 10.0**e for e in range(-6, 6) for n in (1, 2, 5)],
    [10.0**e for e in range(-9, 9)],
)
MOST_TICKS = 11
DURATION = (
    "datum.value < 60 ? datum.value + ' s' : datum.value < 3600 ? datum.value / 60 + ' min' : "
    "datum.value < 86400 ? datum.value / 3600 + ' h' : datum.value / 86400 + ' d'"
)


def rows(frame: pl.DataFrame, *, digits: int = 5) -> alt.InlineData:
    """Return a frame as inline data, with numbers rounded to the digits that a picture can show."""
    rounded = frame.with_columns(pl.col(pl.Float64).round_sig_figs(digits))
    return alt.InlineData(values=rounded.to_dicts())


def colours(
    comparison: Comparison, symbol: Literal["stroke", "square"] | None = "stroke", *, baseline: bool = True
) -> alt.Color:
    """Return a policy's colour; `symbol` is what the legend shows, None for no legend."""
    policies = list(comparison.policies)
    range_ = [PALETTE[i % len(PALETTE)] for i in range(len(policies))]
    scale = alt.Scale(domain=policies, range=range_)
    if symbol is None:
        return alt.Color("policy:N", scale=scale, legend=None)
    named = [policy for policy in policies if baseline or policy != comparison.baseline]
    legend = alt.Legend(title=None, orient="top", values=named, symbolType=symbol, symbolStrokeWidth=4, symbolOpacity=1)
    return alt.Color("policy:N", scale=scale, legend=legend)


def dashes(comparison: Comparison) -> alt.StrokeDash:
    policies = list(comparison.policies)
    range_ = [DASHES[i // len(PALETTE) % len(DASHES)] for i in range(len(policies))]
    return alt.StrokeDash("policy:N", scale=alt.Scale(domain=policies, range=range_), legend=None)


def time_unit(span_s: float) -> tuple[str, float]:
    """Return the unit that gives an axis of this length readable numbers, and its seconds."""
    for name, seconds in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if span_s >= 3 * seconds:
            return name, seconds
    return "seconds", 1.0


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ticks for a logarithmic axis between two ratios, as fine as there is room for labels."""
    reaching = [ticks for ticks in RATIO_STEPS if ticks[0] <= low and high <= ticks[-1]] or [RATIO_STEPS[-1]]
    shown = [[float(f"{tick:.3g}") for tick in ticks if low <= tick <= high] for ticks in reaching]
    return next((ticks for ticks in shown if len(ticks) <= MOST_TICKS), shown[-1])


def time_axis(field: str, unit: str, end: float, *, whole_pixels: bool = False) -> alt.X:
    """Return a time axis from 0 to `end`, in the unit of `time_unit`; whole pixels let cells touch without seams."""
    scale = alt.Scale(domain=[0, end], nice=False, round=whole_pixels)
    axis = alt.Axis(tickCount=8, format="~r")
    return alt.X(f"{field}:Q", title=f"time since the trace began [{unit}]", scale=scale, axis=axis)


def jct_cdf(comparison: Comparison) -> Chart:
    """Draw the share of jobs finished within a time; with unfinished jobs a curve ends below 100 %."""
    frames = []
    tail = 1 - np.geomspace(1, 1e-4, CDF_POINTS // 2)  # denser towards the end, where the few long jobs are
    chances = np.unique(np.concatenate([np.linspace(0, 1, CDF_POINTS // 2), tail]))
    for policy, runs in comparison.runs.items():
        jct, admitted = [], 0
        for result in runs.values():
            jobs = _counted(comparison, result.jobs).filter(pl.col("status") != "refused")
            admitted += jobs.height
            done = jobs.filter(pl.col("status").is_in(["completed", "failed", "killed"]))
            jct.append((done["finish_s"] - done["submit_s"]).to_numpy())
        times = np.sort(np.concatenate(jct))
        if not times.size:
            continue
        reached = np.unique(np.ceil(chances * (times.size - 1)).astype(np.int64))
        curve = pl.DataFrame({"jct_s": np.maximum(times[reached], 1.0), "share": (reached + 1) / admitted})
        frames.append(curve.with_columns(pl.lit(policy).alias("policy")))
    data = pl.concat(frames) if frames else pl.DataFrame()
    x = alt.X(
        "jct_s:Q",
        title="job completion time (log scale)",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=TICKS_S, labelExpr=DURATION, grid=True),
    )
    y = alt.Y("share:Q", title="jobs finished", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    tips = ["policy:N", _seconds("jct_s"), _percent("share")]
    return _lines(comparison, rows(data), x, y, "step-after", tips)


def queue_length(comparison: Comparison) -> Chart:
    """Draw waiting jobs over time."""
    return _over_time(comparison, lambda timeline: timeline.waiting, "waiting jobs", 1.0, ",.4~r")


def gpu_use(comparison: Comparison) -> Chart:
    """Draw the share of the cluster's GPUs that jobs hold, over time."""
    total = max(comparison.results[0].cluster.total_gpus, 1)
    return _over_time(comparison, lambda timeline: timeline.gpus_held, "GPUs held", 1.0 / total, ".0%")


def winners_and_losers(comparison: Comparison, kind: str) -> Chart:
    """Draw mean JCT against the baseline's, by job size or by queue: bars to the left are faster."""
    data = comparison.winners.filter(pl.col("kind") == kind)
    if kind == "size":
        order = [name for name in SIZE_NAMES if name in set(data["class"])]
    else:
        queues = data.group_by("class").agg(pl.col("jobs").max())
        order = queues.sort(["jobs", "class"], descending=[True, False])["class"].head(MOST_QUEUES).to_list()
        data = data.filter(pl.col("class").is_in(order))
    data = data.with_columns(
        pl.lit(1.0).alias("one"),
        ((pl.col("ratio") - 1) * 100).round(0).cast(pl.Int64).alias("percent"),
    ).with_columns(
        pl.when(pl.col("percent") <= -100)
        .then(pl.lit("under −99 %"))
        .when(pl.col("percent") > 0)
        .then(pl.format("+{} %", "percent"))
        .otherwise(pl.format("{} %", pl.col("percent").cast(pl.String).str.replace("-", "−")))
        .alias("text")
    )
    reach = max([float(v) for v in np.abs(np.log2(data["ratio"].to_numpy())) if np.isfinite(v)] or [0.0])
    edge = 2.0 ** max(0.25, reach * 1.25)
    others = [policy for policy in comparison.policies if policy != comparison.baseline]
    base = alt.Chart(rows(data)).encode(
        y=alt.Y("class:N", title=None, sort=order, axis=alt.Axis(labelLimit=160, grid=False)),
        yOffset=alt.YOffset("policy:N", sort=others),
    )
    x = alt.X(
        "ratio:Q",
        title=f"mean JCT relative to {comparison.baseline}   (← faster · slower →)",
        scale=alt.Scale(type="log", base=2, domain=[1 / edge, edge], nice=False),
        axis=alt.Axis(format="~r", values=ratio_ticks(1 / edge, edge)),
    )
    tips = [
        "policy:N",
        alt.Tooltip("class:N", title="jobs of"),
        alt.Tooltip("jobs:Q", format=","),
        alt.Tooltip("ratio:Q", title="ratio of mean JCTs", format=".3f"),
        alt.Tooltip("median_ratio:Q", title="median ratio of a job", format=".3f"),
        _percent("faster"),
        _percent("slower"),
    ]
    colour = colours(comparison, "square", baseline=False)
    bars = base.mark_bar(cornerRadius=2).encode(x=x, x2="one:Q", color=colour, tooltip=tips)
    left = base.transform_filter("datum.ratio <= 1").mark_text(align="right", dx=-4, fontSize=10)
    right = base.transform_filter("datum.ratio > 1").mark_text(align="left", dx=4, fontSize=10)
    rule = alt.Chart(alt.InlineData(values=[{"one": 1}])).mark_rule(strokeWidth=1.2).encode(x="one:Q")
    texts = [layer.encode(x=x, text="text:N") for layer in (left, right)]
    height = max(120, 14 * max(1, len(others)) * max(1, len(order)) + 12 * len(order))
    return alt.layer(bars, *texts, rule).properties(width="container", height=height)


def paired_differences(comparison: Comparison) -> Chart:
    """Draw the change of mean JCT against the baseline, with its interval."""
    found = comparison.against_baseline
    others = [pair.policy for pair in found]
    data = pl.DataFrame(
        {
            "policy": others,
            "mean": [p.change.mean for p in found],
            "low": [p.change.low for p in found],
            "high": [p.change.high for p in found],
            "by": [p.by for p in found],
            "left_out": [p.left_out for p in found],
        },
        schema_overrides={"mean": pl.Float64, "low": pl.Float64, "high": pl.Float64},
    ).fill_nan(None)
    title = f"change of mean JCT against {comparison.baseline}   (← better · worse →)"
    axis = alt.Axis(format="+.0%", tickCount=8)
    y = alt.Y("policy:N", title=None, sort=others, axis=alt.Axis(grid=False))
    tips = ["policy:N", *(alt.Tooltip(f"{c}:Q", format="+.1%") for c in ("mean", "low", "high"))]
    tips += [alt.Tooltip("by:N", title="paired by"), alt.Tooltip("left_out:Q", title="jobs left out")]
    base = alt.Chart(rows(data)).encode(y=y, color=colours(comparison, None))
    whiskers = base.mark_rule(strokeWidth=2.5).encode(x=alt.X("low:Q", title=title, axis=axis), x2="high:Q")
    x = alt.X("mean:Q", title=title, axis=axis)
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(x=x, tooltip=tips)
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(strokeDash=[4, 3]).encode(x="zero:Q")
    return alt.layer(zero, whiskers, dots).properties(width="container", height=max(70, 34 * len(others)))


def losses(comparison: Comparison) -> Chart:
    """Draw the GPU-hours held by jobs that were lost, by cause and policy."""
    names = {"overhead": "overhead", "interference": "interference", "lost": "redone after faults"}
    data = pl.DataFrame(
        [
            {
                "policy": policy,
                "lost to": label,
                "order": place,
                "share": _share(scores[f"{part}_gpu_h"].mean, scores["held_gpu_h"].mean),
                "gpu_h": scores[f"{part}_gpu_h"].mean,
            }
            for policy, scores in comparison.summary.items()
            for place, (part, label) in enumerate(names.items())
        ]
    )
    return (
        alt.Chart(rows(data))
        .mark_bar(cornerRadius=1, size=min(24, HEIGHT // (2 * len(comparison.policies)) + 4))
        .encode(
            x=alt.X("share:Q", title="share of GPU-hours held", axis=alt.Axis(format="~%", tickCount=6)),
            y=alt.Y("policy:N", title=None, sort=list(comparison.policies), axis=alt.Axis(grid=False)),
            color=alt.Color(
                "lost to:N",
                scale=alt.Scale(domain=list(names.values()), range=["#E69F00", "#CC79A7", "#7F7F7F"]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            order="order:Q",
            tooltip=[
                "policy:N",
                "lost to:N",
                _percent("share"),
                alt.Tooltip("gpu_h:Q", title="GPU-hours", format=",.1f"),
            ],
        )
        .properties(width="container", height=HEIGHT)
    )


def sweep(comparison: Comparison) -> Chart:
    """Draw mean JCT against what is varied; against two things, as a heat map for each policy."""
    return _heat_maps(comparison) if len(comparison.swept) > 1 else _sweep_lines(comparison)


def _sweep_lines(comparison: Comparison) -> Chart:
    """Draw mean JCT with the interval over seeds as a band; both in logarithms, as the axis is."""
    ((name, steps),) = comparison.swept.items()
    values: dict[tuple[str, Value], list[float]] = {}
    for point in comparison.sweep:
        values.setdefault((point.policy, point.at[0].value), []).append(point.scores["jct_mean_s"])
    found = [(*key, *paired_ratio(means, np.ones(len(means)))[:3]) for key, means in values.items()]
    names = ["policy", "varied", "mean", "low", "high"]
    frame = pl.DataFrame(found, schema=names, orient="row").fill_nan(None)
    seen = np.array([value for row in found for value in row[2:]])
    low, high = float(np.nanmin(seen)), float(np.nanmax(seen))
    scale = alt.Scale(type="log", nice=False, domain=[low, high])
    axis = alt.Axis(labelExpr=DURATION, values=TICKS_S if high > 50 * low else FINE_TICKS_S)
    y = alt.Y("mean:Q", title="mean JCT (log scale)", scale=scale, axis=axis)
    numbers = [step for step in steps if isinstance(step, float)]
    title = "offered load" if name == "load" else name
    if len(numbers) == len(steps):
        x = alt.X("varied:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(values=numbers))
    else:
        x = alt.X("varied:N", title=title, sort=[str(step) for step in steps])
    base = alt.Chart(rows(frame)).encode(x=x, color=colours(comparison))
    bottom = alt.Y("low:Q", title="mean JCT (log scale)", scale=scale, axis=axis)
    band = base.mark_area(opacity=0.12).encode(y=bottom, y2="high:Q")
    tips = [
        "policy:N",
        alt.Tooltip("varied:Q" if len(numbers) == len(steps) else "varied:N", title=title),
        _seconds("mean"),
        _seconds("low"),
        _seconds("high"),
    ]
    line = base.mark_line(strokeWidth=2.2).encode(y=y, strokeDash=dashes(comparison))
    dots = base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=tips)
    return alt.layer(band, line, dots).properties(width="container", height=HEIGHT)


def _heat_maps(comparison: Comparison) -> Chart:
    """Draw a square for each pair of values, darker for a longer mean JCT, on one scale for all policies."""
    (across, columns), (down, lines) = list(comparison.swept.items())[:2]
    values: dict[tuple[str, Value, Value], list[float]] = {}
    for point in comparison.sweep:
        key = (point.policy, point.at[0].value, point.at[1].value)
        values.setdefault(key, []).append(point.scores["jct_mean_s"])
    found = [(policy, value_text(a), value_text(b), float(np.mean(means))) for (policy, a, b), means in values.items()]
    frame = pl.DataFrame(found, schema=["policy", "across", "down", "mean"], orient="row")
    shown = frame.with_columns(text=pl.col("mean").map_elements(_short_time, pl.String))
    base = alt.Chart(rows(shown)).encode(
        x=alt.X("across:N", title=across, sort=[value_text(v) for v in columns], axis=alt.Axis(labelAngle=0)),
        y=alt.Y("down:N", title=down, sort=[value_text(v) for v in reversed(lines)]),
    )
    scale = alt.Scale(type="log", scheme="blues")
    fill = base.mark_rect().encode(color=alt.Color("mean:Q", scale=scale, legend=None), tooltip=[_seconds("mean")])
    means = shown["mean"].to_numpy()
    middle = float(np.sqrt(means.min() * means.max()))
    ink = alt.condition(alt.datum.mean > middle, alt.value("white"), alt.value("black"))
    text = base.mark_text().encode(text="text:N", color=ink)
    return (
        alt.layer(fill, text)
        .properties(width=46 * len(columns), height=28 * len(lines))
        .facet(alt.Facet("policy:N", title=None), columns=2)
    )


def _short_time(seconds: float) -> str:
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.2g} s"


def save_png(chart: Any, path: str | Path, *, width: int = 720, scale: float = 2.0) -> None:
    """Write a chart as a picture; `width` is for charts that would fill their container."""
    import vl_convert

    spec = chart.to_dict()
    if spec.get("width") == "container":
        spec["width"] = width
    spec["config"] = spec.get("config", {}) | {"font": "sans-serif", "view": {"stroke": None}}
    spec["background"] = "white"
    picture = vl_convert.vegalite_to_png(spec, scale=scale, vl_version=vega_lite_version())
    with writing(path) as temporary:
        temporary.write_bytes(picture)


def vega_lite_version() -> str:
    """Return the version that Altair writes, as vl-convert names it (major.minor)."""
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def _over_time(
    comparison: Comparison, steps_of: Callable[[Timeline], Steps], title: str, scale: float, format_: str
) -> Chart:
    """Return a step function of every run, averaged in bins and over seeds."""
    end_s = comparison.shown_s
    unit, seconds = time_unit(end_s)
    frames = []
    for policy, timelines in comparison.timelines.items():
        curves = [steps_of(timeline).resample(TIME_POINTS, 0.0, end_s) for timeline in timelines.values()]
        mean = np.mean([values for _, values in curves], axis=0)
        frame = pl.DataFrame({"t": curves[0][0] / seconds, "value": mean * scale})
        frames.append(frame.with_columns(pl.lit(policy).alias("policy")))
    x = time_axis("t", unit, end_s / seconds)
    y = alt.Y("value:Q", title=title, axis=alt.Axis(format=format_))
    value = alt.Tooltip("value:Q", title=title, format=format_)
    tips = ["policy:N", alt.Tooltip("t:Q", title=unit, format=".2f"), value]
    return _lines(comparison, rows(pl.concat(frames), digits=4), x, y, "linear", tips)


def _lines(
    comparison: Comparison,
    data: alt.InlineData,
    x: alt.X,
    y: alt.Y,
    interpolate: Literal["linear", "step-after"],
    tips: list[Any],
) -> Chart:
    """Draw lines by policy. A click in the legend singles one out; invisible points carry the tooltips."""
    chosen = alt.selection_point(fields=["policy"], bind="legend")
    base = alt.Chart(data).encode(x=x, y=y, color=colours(comparison))
    faint = alt.condition(chosen, alt.value(0.95), alt.value(0.12))
    lines = (
        base.mark_line(strokeWidth=2, interpolate=interpolate)
        .encode(strokeDash=dashes(comparison), opacity=faint)
        .add_params(chosen)
    )
    points = base.mark_point(size=60, opacity=0).encode(tooltip=tips)
    return alt.layer(lines, points).properties(width="container", height=HEIGHT)


def _counted(comparison: Comparison, jobs: pl.DataFrame) -> pl.DataFrame:
    if comparison.window is None:
        return jobs
    return jobs.filter(pl.col("submit_s").is_between(*comparison.window, closed="left"))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _percent(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", format=".1%")


def _seconds(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", title=field.replace("_s", " [s]"), format=",.0f")
