"""Draw pictures of a league, which show where each policy does well.

Blue is better and orange is worse, on a logarithmic scale around 1, in colours that people with any colour
vision can tell apart.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import polars as pl

from argosy.league.table import CLOSE, COMPARED, MAIN, NAMES, League, Reference, show_ratio
from argosy.report.plots import Chart, ratio_ticks, rows
from argosy.report.stats import Interval
from argosy.sim.metrics import DEFINITIONS

BETTER, EVEN, WORSE, FAILED = "#0072B2", "#F3F3F0", "#D55E00", "#8A8F98"
SHADES = [(-3, BETTER), (-1, "#8FC1DF"), (0, EVEN), (1, "#F2BC93"), (3, WORSE)]  # by log2; a factor of 8 is the end
INK = "#1d2430"
DEEP = 1.8  # by log2; on darker cells text is white
ROW = 25  # pixels
ALL = "all scenarios"
REFERENCES: tuple[Reference, ...] = ("baseline", "best", "middle")
_SCHEMA = {
    "policy": pl.String,
    "scenario": pl.String,
    "figure": pl.String,
    "reference": pl.String,
    "ratio": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "shade": pl.Float64,
    "text": pl.String,
    "failed": pl.Boolean,
    "best": pl.Boolean,
}


def label(league: League, policy: str) -> str:
    """Return a policy's name, with a star if it sees true durations."""
    return f"{policy} ★" if policy in league.future else policy


def reference_name(league: League, reference: Reference) -> str:
    return {
        "baseline": league.baseline,
        "best": "best without ★",
        "middle": "median policy",
    }[reference]


def heat_map(league: League, *, choices: bool = True) -> Chart:
    """Draw policies against scenarios; `choices` adds menus for the figure and for what it is relative to."""
    figures = COMPARED if choices else (MAIN,)
    references = REFERENCES if choices else ("baseline",)
    data = pl.DataFrame(
        [cell for figure in figures for to in references for cell in _cells(league, figure, to)], schema=_SCHEMA
    )
    columns = [*league.scenarios, *([ALL] if len(league.scenarios) > 1 else [])]
    gaps = alt.Scale(paddingInner=0.04, paddingOuter=0.02)
    top = alt.Axis(orient="top", labelAngle=-30, labelLimit=200, ticks=False, domain=False)
    x = alt.X("scenario:N", title=None, sort=columns, scale=gaps, axis=top)
    y = alt.Y(
        "policy:N",
        title=None,
        sort=[label(league, policy) for policy in league.ranking],
        scale=gaps,
        axis=alt.Axis(labelLimit=260, ticks=False, domain=False),
    )
    base: Any = alt.Chart(rows(data))
    if choices:
        menus = {
            "figure": ("figure  ", [NAMES[figure] for figure in figures]),
            "reference": ("relative to  ", [reference_name(league, to) for to in references]),
        }
        for name, (text, options) in menus.items():
            menu = alt.param(name=name, value=options[0], bind=alt.binding_select(options=options, name=text))
            base = base.add_params(menu)
        base = base.transform_filter("datum.figure == figure && datum.reference == reference")
    base = base.encode(x=x, y=y)
    shade = alt.Color(
        "shade:Q",
        scale=alt.Scale(
            domain=[at for at, _ in SHADES], range=[colour for _, colour in SHADES], clamp=True, interpolate="rgb"
        ),
        legend=alt.Legend(
            title="ratio (blue: better)",
            orient="bottom",
            gradientLength=260,
            values=[-3, -2, -1, 0, 1, 2, 3],
            labelExpr="datum.value < 0 ? '1/' + pow(2, -datum.value) : pow(2, datum.value)",
        ),
    )
    tips = [
        "policy:N",
        "scenario:N",
        "figure:N",
        alt.Tooltip("reference:N", title="relative to"),
        alt.Tooltip("ratio:Q", format=".3f"),
        alt.Tooltip("low:Q", format=".3f", title="95 % interval from"),
        alt.Tooltip("high:Q", format=".3f", title="to"),
    ]
    cells = base.transform_filter("!datum.failed").mark_rect(cornerRadius=2).encode(color=shade, tooltip=tips)
    broken = base.transform_filter("datum.failed").mark_rect(
        fill=FAILED, fillOpacity=0.35, stroke=FAILED, strokeDash=[4, 3], cornerRadius=2
    )
    firsts = base.transform_filter("datum.best").mark_rect(fill=None, stroke=INK, strokeWidth=2, cornerRadius=2)
    deep = f"abs(datum.shade) > {DEEP}"
    text = base.mark_text(fontSize=11).encode(
        text="text:N",
        color=alt.condition(deep, alt.value("white"), alt.value(INK)),
    )
    height = ROW * len(league.ranking)
    return alt.layer(cells, broken, firsts, text).properties(width="container", height=height)


def _cells(league: League, figure: str, to: Reference) -> list[dict[str, Any]]:
    lower = DEFINITIONS[figure].lower_is_better
    common = {"figure": NAMES[figure], "reference": reference_name(league, to)}
    found = []
    for policy in league.ranking:
        for scenario in league.scenarios:
            ratio, failed = league.ratio(scenario, policy, figure, to), league.failed(scenario, policy)
            cell = _cell(ratio, lower is True) | common | {"policy": label(league, policy), "scenario": scenario}
            best = policy == league.best(scenario, figure)
            found.append(cell | {"failed": failed, "best": best} | ({"text": "failed"} if failed else {}))
        if len(league.scenarios) > 1:
            mean = league.overall(policy, figure, to)
            cell = _cell(Interval(mean, math.nan, math.nan, 1), lower is True)
            found.append(
                cell | common | {"policy": label(league, policy), "scenario": ALL, "failed": False, "best": False}
            )
    return found


def _cell(ratio: Interval, lower_is_better: bool) -> dict[str, Any]:
    known = ratio.mean > 0
    shade = math.log2(ratio.mean) * (1 if lower_is_better else -1) if known else None
    bounds = {name: value if known else None for name, value in zip(("ratio", "low", "high"), ratio)}
    return {name: None if value is None or math.isnan(value) else value for name, value in bounds.items()} | {
        "shade": shade,
        "text": show_ratio(ratio.mean),
    }


def wins_and_losses(league: League) -> Chart:
    """Draw each policy's mean JCT in every scenario relative to the median policy's; the extremes are labelled."""
    data: list[dict[str, Any]] = []
    for policy in league.ranking:
        ratios = {scenario: league.ratio(scenario, policy, MAIN, "middle").mean for scenario in league.scenarios}
        known = {scenario: ratio for scenario, ratio in ratios.items() if ratio > 0}
        low, high = min(known, key=known.__getitem__, default=None), max(known, key=known.__getitem__, default=None)
        for scenario, ratio in known.items():
            end = "wins" if scenario == low and ratio < 1 - CLOSE else "between"
            end = "loses" if scenario == high and ratio > 1 + CLOSE else end
            data.append(
                {
                    "policy": label(league, policy),
                    "scenario": scenario,
                    "ratio": ratio,
                    "end": end,
                    "name": "" if end == "between" else f"{scenario} {show_ratio(ratio)}",
                }
            )
    schema = {"policy": pl.String, "scenario": pl.String, "ratio": pl.Float64, "end": pl.String, "name": pl.String}
    frame = pl.DataFrame(data, schema=schema)
    least, most = min([1.0, *frame["ratio"]]), max([1.0, *frame["ratio"]])
    room = (most / least) ** 0.16 * 1.1  # for the names
    x = alt.X(
        "ratio:Q",
        title="mean JCT relative to the median policy's   (← faster · slower →)",
        scale=alt.Scale(type="log", base=2, domain=[least / room, most * room], nice=False),
        axis=alt.Axis(format="~r", values=ratio_ticks(least / room, most * room)),
    )
    y = alt.Y(
        "policy:N",
        title=None,
        sort=[label(league, policy) for policy in league.ranking],
        axis=alt.Axis(labelLimit=260, ticks=False, grid=True),
    )
    base = alt.Chart(rows(frame))
    names = base.encode(x=x, y=y, text="name:N")
    colour = alt.Color(
        "end:N",
        scale=alt.Scale(domain=["wins", "between", "loses"], range=[BETTER, FAILED, WORSE]),
        legend=None,
    )
    spans = base.mark_rule(color=FAILED, opacity=0.6).encode(x=alt.X("min(ratio):Q"), x2="max(ratio):Q", y=y)
    tips = ["policy:N", "scenario:N", alt.Tooltip("ratio:Q", format=".3f")]
    dots = base.mark_point(filled=True, size=55, opacity=0.9).encode(x=x, y=y, color=colour, tooltip=tips)
    left = names.transform_filter("datum.end == 'wins'").mark_text(align="right", dx=-8, fontSize=10.5, color=BETTER)
    right = names.transform_filter("datum.end == 'loses'").mark_text(align="left", dx=8, fontSize=10.5, color=WORSE)
    even = alt.Chart(alt.InlineData(values=[{"one": 1}])).mark_rule(strokeDash=[4, 3]).encode(x="one:Q")
    return alt.layer(even, spans, dots, left, right).properties(width="container", height=ROW * len(league.ranking))
