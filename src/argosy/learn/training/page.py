"""The report page of a training run: its learning curve, and how good the best weights are."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from argosy.atomic import writing
from argosy.learn.training.train import Trained
from argosy.learn.training.validation import ValidationResult
from argosy.report.page import Charts, footer, text_table, whole_page
from argosy.report.plots import HEIGHT, PALETTE, Chart, rows

MARGIN = 0.1  # added above and below, as a share of the span of ratios
HEAD = ("scenario", "mean JCT, h", "teacher's, h", "floor, h", "relative to teacher", "relative to floor")


def lines_of(validation: ValidationResult) -> list[tuple[str, ...]]:
    """Return the figures of a validation by scenario, in the order of `HEAD`."""
    return [
        (
            label,
            *(f"{h:.2f}" for h in (hours, validation.teacher_hours[label], validation.floor_hours[label])),
            f"{hours / validation.teacher_hours[label]:.3f}",
            f"{hours / validation.floor_hours[label]:.3f}",
        )
        for label, hours in validation.hours.items()
    ]


def curve_chart(curve: tuple[ValidationResult, ...]) -> Chart:
    """Draw the mean completion time relative to the teacher's, by scenario, over the updates of the last stage."""
    last = curve[-1].stage
    points: list[dict[str, Any]] = [
        {"update": v.update if v.stage == last else 0, "scenario": label, "ratio": hours / v.teacher_hours[label]}
        for v in curve
        for label, hours in v.hours.items()
    ]
    ratios = [1.0, *(point["ratio"] for point in points)]  # with the teacher's 1, so that a single point has a scale
    around = max(MARGIN * (max(ratios) - min(ratios)), 0.005)
    last_update = max(1, *(point["update"] for point in points))
    return (
        alt.Chart(rows(pl.DataFrame(points)))
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "update:Q",
                title=f"updates ({last})",
                axis=alt.Axis(tickMinStep=1, format="d"),
                scale=alt.Scale(domain=[0, last_update], nice=False),
            ),
            y=alt.Y(
                "ratio:Q",
                title="mean JCT / teacher's",
                scale=alt.Scale(domain=[min(ratios) - around, max(ratios) + around], zero=False),
            ),
            color=alt.Color(
                "scenario:N", scale=alt.Scale(range=list(PALETTE)), legend=alt.Legend(title=None, orient="top")
            ),
            tooltip=["scenario:N", "update:Q", alt.Tooltip("ratio:Q", format=".3f")],
        )
        .properties(width="container", height=HEIGHT)
    )


def write_page(trained: Trained, path: Path, command: str) -> None:
    """Write a page that works offline. `command` is what was run; that of the best weights may have fewer updates."""
    if trained.best is None or trained.weights is None:
        return
    charts, about = Charts(), trained.weights.about
    reading = "on validation windows, which training never sees; 1 is the teacher, and lower is better"
    body = [
        f"<h1>Training of {escape(about['system'])}</h1>",
        charts.figure(curve_chart(trained.curve), "Learning curve", reading),
        "<h2>The best weights</h2>",
        text_table(HEAD, lines_of(trained.best)),
        f"<p>This was run:</p><pre>{escape(command)}</pre>",
        f"<p>This makes the same weights, even if defaults change later:</p><pre>{escape(about['command'])}</pre>",
        footer("the same figures are in the header of the file of weights"),
    ]
    with writing(path) as temporary:
        temporary.write_text(whole_page(f"Training of {about['system']}", body, charts), encoding="utf-8")
