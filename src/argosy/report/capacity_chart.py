"""Draw what a figure is at each size of a cluster, and the target that it must meet."""

from __future__ import annotations

import math

import altair as alt
import polars as pl

from argosy.report.plots import DURATION, HEIGHT, PALETTE, TICKS_S, Chart, rows
from argosy.sim.capacity_plan import CapacityPlan


def capacity_curve(plan: CapacityPlan) -> Chart:
    """Draw the median over seeds with its range, the target as a dashed line, and the smallest size that meets it."""
    found = []
    for point in plan.points:
        known = [figure for figure in point.figures if math.isfinite(figure)]
        if known and math.isfinite(point.figure):
            found.append((point.value, point.figure, min(known), max(known), "yes" if point.met else "no"))
    frame = pl.DataFrame(found, schema=["size", "figure", "low", "high", "met"], orient="row")
    title = plan.target.text.split("<")[0].split(">")[0].strip()
    axis = alt.Axis(labelExpr=DURATION, values=[0, *TICKS_S]) if plan.target.is_time else alt.Axis()
    scale = alt.Scale(type="symlog" if plan.target.is_time else "linear", constant=60)
    y = alt.Y("figure:Q", title=title, axis=axis, scale=scale)
    x = alt.X(
        "size:Q", title=plan.name, scale=alt.Scale(zero=False), axis=alt.Axis(values=[p.value for p in plan.points])
    )
    base = alt.Chart(rows(frame)).encode(x=x)
    colour = alt.Color(
        "met:N",
        scale=alt.Scale(domain=["yes", "no"], range=[PALETTE[2], PALETTE[1]]),
        legend=alt.Legend(title="meets the target", orient="top"),
    )
    line = base.mark_line(color="#999").encode(y=y)
    reach = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", axis=axis, scale=scale), y2="high:Q", color=colour)
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(y=y, color=colour)
    bound = alt.Chart(rows(pl.DataFrame({"bound": [plan.target.bound]})))
    limit = bound.mark_rule(strokeDash=[6, 4], color="#333").encode(y=alt.Y("bound:Q", axis=axis, scale=scale))
    label = bound.mark_text(align="left", dx=4, dy=-7, x=0).encode(
        y=alt.Y("bound:Q", axis=axis, scale=scale), text=alt.value(plan.target.text)
    )
    heading = f"{plan.policy}: smallest size {plan.smallest:g}" if plan.smallest is not None else f"{plan.policy}: none"
    return alt.layer(line, reach, dots, limit, label).properties(width="container", height=HEIGHT, title=heading)
