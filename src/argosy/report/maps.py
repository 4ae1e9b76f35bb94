"""Draw maps of the cluster: which node was busy when, under one run.

A small run shows every placement as a bar, device by device. A large one is binned into a heat map of at most
MOST_ROWS × MOST_COLUMNS cells, so that its size does not depend on the number of jobs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from argosy.report.plots import PALETTE, Chart, time_axis, time_unit
from argosy.sim.timeline import Timeline

MOST_ROWS, MOST_COLUMNS = 60, 120
SMALL_NODES, SMALL_PLACEMENTS = 16, 200
# Tol's light scheme: people with any colour vision can tell it apart, and it differs from the policies' colours.
FAMILIES = ("#77AADD", "#EE8866", "#44BB99", "#EEDD88", "#FFAABB", "#99DDFF", "#BBCC33", "#AAAAAA")


def cluster_map(timeline: Timeline, *, end_s: float) -> Chart:
    """Draw nodes from top to bottom and time from left to right; the same `end_s` makes maps comparable."""
    nodes = len(timeline.result.cluster.nodes)
    if nodes <= SMALL_NODES and timeline.placements.height <= SMALL_PLACEMENTS:
        return gantt(timeline, end_s=end_s)
    return heat_map(timeline, end_s=end_s)


def gantt(timeline: Timeline, *, end_s: float) -> Chart:
    """Draw each placement as bars over the devices it holds, coloured by queue, or by job if all share one."""
    cluster, jobs = timeline.result.cluster, timeline.result.jobs
    unit, seconds = time_unit(end_s)
    tops = np.append(0, np.cumsum([max(node.gpus, 1) for node in cluster.nodes]))
    queues = jobs["queue"].fill_null("no queue")
    by_size = queues.value_counts().sort(["count", "queue"], descending=[True, False])["queue"]
    frequent = by_size.head(len(FAMILIES) - 1).sort().to_list()
    by_queue = len(by_size) > 1
    bars = []
    for row in _by_node(timeline.placements.filter(pl.col("end_s") > pl.col("start_s"))):
        queue, top = queues[row["job"]], int(tops[row["node"]])
        family = queue if queue in frequent else "other"
        for first, last in _stretches(row["devices"]):
            bars.append(
                {
                    "job": jobs["job_id"][row["job"]],
                    "queue": queue,
                    "node": cluster.nodes[row["node"]].name,
                    "start": row["start_s"] / seconds,
                    "end": row["end_s"] / seconds,
                    "top": top + first,
                    "bottom": top + last + 1,
                    "gpus": row["gpus"],
                    "colour": family if by_queue else str(row["job"] % len(FAMILIES)),
                }
            )
    names = [node.name for node in cluster.nodes]
    middles = [(float(a) + float(b)) / 2 for a, b in pairwise(tops)]
    labels = "".join(f"datum.value == {m} ? {_quoted(n)} : " for m, n in zip(middles, names)) + "''"
    y_scale = alt.Scale(domain=[int(tops[-1]), 0], nice=False)
    rest = ["other"] if len(by_size) > len(frequent) else []
    domain = [*frequent, *rest] if by_queue else [str(i) for i in range(len(FAMILIES))]
    colour = alt.Color(
        "colour:N",
        scale=alt.Scale(domain=domain, range=list(FAMILIES[: len(domain)])),
        legend=alt.Legend(title=None, orient="top", symbolType="square") if by_queue else None,
    )
    chart = (
        alt.Chart(alt.InlineData(values=bars))
        .mark_rect(stroke="white", strokeWidth=0.8, clip=True)
        .encode(
            x=time_axis("start", unit, end_s / seconds),
            x2="end:Q",
            y=alt.Y(
                "top:Q",
                title=None,
                scale=y_scale,
                axis=alt.Axis(values=middles, labelExpr=labels, grid=False, ticks=False),
            ),
            y2="bottom:Q",
            color=colour,
            tooltip=[
                "job:N",
                "queue:N",
                "node:N",
                "gpus:Q",
                alt.Tooltip("start:Q", format=".2f"),
                alt.Tooltip("end:Q", format=".2f"),
            ],
        )
    )
    borders = (
        alt.Chart(alt.InlineData(values=[{"y": int(y)} for y in tops]))
        .mark_rule(strokeWidth=1, opacity=0.5)
        .encode(y=alt.Y("y:Q", scale=y_scale, title=None))
    )
    height = min(480, max(120, 9 * int(tops[-1])))
    return alt.layer(chart, borders).properties(width="container", height=height)


def heat_map(timeline: Timeline, *, end_s: float) -> Chart:
    """Draw the share of GPUs held in bins of time and groups of neighbouring nodes."""
    nodes = timeline.result.cluster.nodes
    unit, seconds = time_unit(end_s)
    with_gpus = np.flatnonzero([node.gpus > 0 for node in nodes])
    groups = np.array_split(with_gpus, min(MOST_ROWS, max(with_gpus.size, 1)))
    edges = np.linspace(0.0, end_s, MOST_COLUMNS + 1)
    strips = []
    for place, group in enumerate(groups):
        gpus = sum(nodes[i].gpus for i in group)
        share = timeline.node_gpus(group).average(edges[:-1], edges[1:]) / max(gpus, 1)
        name = " … ".join(dict.fromkeys([nodes[group[0]].name, nodes[group[-1]].name]))
        strip = {"row": place, "row2": place + 1, "nodes": name, "held": share.round(2).tolist()}
        strips.append(strip | {"bin": list(range(MOST_COLUMNS))})
    width = end_s / seconds / MOST_COLUMNS
    return (
        # One datum per row, unfolded by the browser, takes a twelfth of the size of one datum per cell.
        alt.Chart(alt.InlineData(values=strips))
        .transform_flatten(["held", "bin"])
        .transform_calculate(t=f"datum.bin * {width}", t2=f"(datum.bin + 1) * {width}")
        .mark_rect(color=PALETTE[0])  # fades into the page, light or dark, where GPUs are idle
        .encode(
            x=time_axis("t", unit, end_s / seconds, whole_pixels=True),
            x2="t2:Q",
            y=alt.Y(
                "row:Q",
                title=f"{with_gpus.size} nodes",
                scale=alt.Scale(domain=[len(groups), 0], nice=False, round=True),
                axis=alt.Axis(labels=False, ticks=False, grid=False),
            ),
            y2="row2:Q",
            opacity=alt.Opacity("held:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
            tooltip=[
                "nodes:N",
                alt.Tooltip("t:Q", title=unit, format=".2f"),
                alt.Tooltip("held:Q", title="GPUs held", format=".0%"),
            ],
        )
        .properties(width="container", height=min(300, max(120, 5 * len(groups))))
    )


def _by_node(placements: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one row for each node of each placement, with all its devices there as one bit set."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in placements.iter_rows(named=True):
        row["devices"] <<= row["first"]
        other = found.setdefault((row["seq"], row["node"]), row)
        if other is not row:
            other["devices"] |= row["devices"]
            other["gpus"] += row["gpus"]
    return list(found.values())


def _stretches(devices: int) -> list[tuple[int, int]]:
    """Return runs of neighbouring set bits as (first, last)."""
    found: list[tuple[int, int]] = []
    for device in range(devices.bit_length()):
        if devices >> device & 1:
            if found and found[-1][1] == device - 1:
                found[-1] = (found[-1][0], device)
            else:
                found.append((device, device))
    return found


def _quoted(text: str) -> str:
    """Return a string of Vega's expression language; names come from users."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ") + "'"
