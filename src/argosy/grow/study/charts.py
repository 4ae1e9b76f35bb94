"""Draw the plots of the growth study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from argosy.grow.tables.evaluate import Verdict
from argosy.report.plots import PALETTE, rows

WIDTH = "container"
_DOTS = [PALETTE[0], PALETTE[2], PALETTE[1], "#888888", "#cccccc"]


def verdict_chart(verdicts: Sequence[Verdict]) -> Any:
    """Draw the accuracies of each table as dots: agent, best, random, none."""
    frame = pl.DataFrame(
        [
            {"table": v.table, "what": what, "accuracy": value}
            for v in verdicts
            for what, value in (("agent", v.accuracy), ("best", v.best), ("random", v.random), ("none", v.none))
        ]
    )
    return dots(frame, "table", "accuracy", "what", "accuracy", ["agent", "best", "random", "none"], percent=True)


def pays_chart(part: Mapping[str, Any]) -> Any:
    """Draw paired differences from doing nothing, with intervals."""
    wanted = {
        "chosen - none": "grown: chosen − none",
        "chosen - none_reset": "grown: chosen − none, reset",
        "chosen - random": "grown: chosen − random",
        "agent - none": "agent − none",
        "agent - none_reset": "agent − none, reset",
        "replicas - none": "replicas − none",
        "chosen, parameters - none": "chosen, paid by parameters − none",
        "chosen, flops - none": "chosen, paid by FLOPs − none",
    }
    frame = pl.DataFrame(
        [
            {
                "scenario": scenario,
                "difference": label,
                "mean": 100 * d["mean"],
                "low": 100 * d["low"],
                "high": 100 * d["high"],
            }
            for scenario, found in part["scenarios"].items()
            for key, label in wanted.items()
            if (d := found["differences"].get(key)) and d["low"] is not None
        ]
    )
    return intervals(frame, "difference", "points of test accuracy", list(wanted.values()), facet="scenario")


def search_chart(part: Mapping[str, Any], which: str) -> Any:
    """Draw the mean regret over tables against the number of look-ups."""
    names = {"taught": "with what other tables taught", "fresh": "starting fresh", "random": "random search"}
    frame = pl.DataFrame(
        [
            {"looks": int(k), "regret": 100 * value, "search": label}
            for key, label in names.items()
            for k, value in part[which]["mean"][key]["regret"].items()
        ]
    )
    colour = alt.Color(
        "search:N",
        title=None,
        sort=list(names.values()),
        scale=alt.Scale(domain=list(names.values()), range=[PALETTE[0], PALETTE[1], "#888888"]),
        legend=alt.Legend(orient="top"),
    )
    return (
        alt.Chart(rows(frame))
        .mark_line(point=True)
        .encode(
            x=alt.X("looks:Q", title="look-ups", scale=alt.Scale(type="log")),
            y=alt.Y("regret:Q", title="regret, points"),
            color=colour,
        )
        .properties(width=WIDTH, height=240)
    )


def scratch_chart(part: Mapping[str, Any]) -> Any:
    """Draw accuracy by scenario against the best, random growth and none."""
    order = ["agent", "published agent", "best", "random", "none"]
    first = part["from_scratch"][0]["temperature"]
    frame = pl.DataFrame(
        [
            {"table": r["table"], "what": what, "accuracy": value}
            for r in part["from_scratch"]
            if r["temperature"] == first
            for what, value in zip(
                order,
                (r["mean_accuracy"], r["published"]["accuracy"], r["best"], r["random"], r["none"]),
                strict=True,
            )
        ]
    )
    return dots(frame, "table", "accuracy", "what", "accuracy", order, percent=True)


def intervals(frame: pl.DataFrame, y: str, title: str, order: Sequence[str], facet: str | None = None) -> Any:
    base = alt.Chart().encode(y=alt.Y(f"{y}:N", title=None, sort=list(order), axis=alt.Axis(labelLimit=300)))
    bars = base.mark_rule(strokeWidth=3, color=PALETTE[0]).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    points = base.mark_point(filled=True, size=70, color=PALETTE[0]).encode(
        x="mean:Q", tooltip=["mean:Q", "low:Q", "high:Q"]
    )
    zero = alt.Chart().mark_rule(color="#999").encode(x=alt.datum(0))
    layered = alt.layer(zero, bars, points, data=rows(frame))
    if facet is None:
        return layered.properties(width=WIDTH, height=alt.Step(24))
    wanted = frame[facet].unique(maintain_order=True).to_list()
    return layered.properties(width=200, height=alt.Step(24)).facet(
        column=alt.Column(f"{facet}:N", sort=wanted, title=None)
    )


def dots(frame: pl.DataFrame, y: str, x: str, what: str, title: str, order: Sequence[str], *, percent: bool) -> Any:
    axis = alt.Axis(format="%") if percent else alt.Axis()
    return (
        alt.Chart(rows(frame))
        .mark_point(filled=True, size=80)
        .encode(
            x=alt.X(f"{x}:Q", title=title, scale=alt.Scale(zero=False), axis=axis),
            y=alt.Y(f"{y}:N", title=None, sort=None),
            color=alt.Color(
                f"{what}:N",
                title=None,
                sort=list(order),
                scale=alt.Scale(domain=list(order), range=_DOTS[-len(order) :]),
            ),
        )
        .properties(width=WIDTH, height=alt.Step(26))
    )
