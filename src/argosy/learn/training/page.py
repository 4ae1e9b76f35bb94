"""A training as one page: its learning curve, and how good it became."""

from __future__ import annotations

from html import escape
from pathlib import Path

import altair as alt
import polars as pl

from argosy.atomic import writing
from argosy.learn.training.judge import Verdict
from argosy.learn.training.train import Trained
from argosy.report.page import Charts, footer, text_table, whole_page
from argosy.report.plots import HEIGHT, PALETTE, Chart, rows

HEAD = ("scenario", "mean JCT, h", "teacher's, h", "floor, h", "relative to teacher", "relative to floor")


def lines_of(verdict: Verdict) -> list[tuple[str, ...]]:
    """Its figures by scenario, in the order of `HEAD`."""
    return [
        (
            label,
            *(f"{h:.2f}" for h in (hours, verdict.teacher_hours[label], verdict.floor_hours[label])),
            f"{hours / verdict.teacher_hours[label]:.3f}",
            f"{hours / verdict.floor_hours[label]:.3f}",
        )
        for label, hours in verdict.hours.items()
    ]


def curve_chart(curve: tuple[Verdict, ...]) -> Chart:
    """Mean completion time relative to the teacher's, by scenario, over the updates of the last stage."""
    last = curve[-1].stage
    points = [
        {"update": v.update if v.stage == last else 0, "scenario": label, "ratio": hours / v.teacher_hours[label]}
        for v in curve
        for label, hours in v.hours.items()
    ]
    scale = alt.Scale(range=list(PALETTE))
    return (
        alt.Chart(rows(pl.DataFrame(points)))
        .mark_line(point=True)
        .encode(
            x=alt.X("update:Q", title=f"updates ({last})"),
            y=alt.Y("ratio:Q", title="mean JCT / teacher's", scale=alt.Scale(zero=False)),
            color=alt.Color("scenario:N", scale=scale, legend=alt.Legend(title=None, orient="top")),
            tooltip=["scenario:N", "update:Q", alt.Tooltip("ratio:Q", format=".3f")],
        )
        .properties(width="container", height=HEIGHT)
    )


def write_page(trained: Trained, path: Path) -> None:
    """Works offline."""
    if trained.best is None or trained.weights is None:
        return
    charts, about = Charts(), trained.weights.about
    reading = "on validation windows, which training never sees; 1 is the teacher, lower is better"
    body = [
        f"<h1>Training of {escape(about['system'])}</h1>",
        charts.figure(curve_chart(trained.curve), "Learning curve", reading),
        "<h2>The best weights</h2>",
        text_table(HEAD, lines_of(trained.best)),
        f"<pre>{escape(about['command'])}</pre>",
        footer("the same figures are in the header of the file of weights"),
    ]
    with writing(path) as temporary:
        temporary.write_text(whole_page(f"Training of {about['system']}", body, charts), encoding="utf-8")
