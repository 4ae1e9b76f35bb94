"""Writes the demonstration as an offline page: who ran where, how many workers, losses, and every job's story."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import altair as alt
import polars as pl

from argosy.atomic import writing
from argosy.live.demo.outcome import HEAD, Outcome, exactness
from argosy.live.demo.record import Record
from argosy.report.page import Charts, footer, text_table, whole_page
from argosy.report.plots import PALETTE, Chart, rows

WIDTH = 1000


def write_page(path: Path, record: Record, outcomes: Sequence[Outcome], policies: Sequence[str], slots: int) -> None:
    with writing(path) as temporary:
        temporary.write_text(page(record, outcomes, policies, slots), encoding="utf-8")


def page(record: Record, outcomes: Sequence[Outcome], policies: Sequence[str], slots: int) -> str:
    charts = Charts()
    held_s = sum(stay.end_s - stay.start_s for stay in record.stays if not stay.paused)
    use = held_s / max(slots * record.end_s, 1e-9)
    verdict = exactness(outcomes)
    body = [
        "<h1>Live on this machine</h1>",
        f'<p class="lead">{len(outcomes)} real training jobs on {slots} slots in {record.end_s:.0f} s, scheduled by '
        f"{escape(' and then '.join(policies))}. Slots were held {use:.0%} of the time.</p>",
        f"<p>{escape(verdict)}.</p>" if verdict else "",
        charts.figure(
            gantt(record),
            "Who ran where",
            "A bar is a job on a slot. A faint one is paused: it keeps its "
            "place while another has its turn. Dashed lines: the daemon is killed, another begins "
            "with another policy, a node is emptied.",
        ),
        charts.figure(
            workers(record),
            "Workers of each job",
            "Each step is a hot resize, a suspension or a start; the training goes on through all of them.",
        ),
        charts.figure(losses(record), "Losses", "Of the last batch, as the jobs report it, on a logarithmic scale."),
        "<h2>What came out</h2>",
        text_table(HEAD, [found.cells() for found in outcomes]),
        '<p class="note">Took: from submission to end. Moved: to other slots, or restarted in another size. '
        "Suspended: saved its work and left its slots to others.</p>",
        "<h2>What the daemon measured</h2>",
        text_table(("what", "times", "median s", "longest s"), overheads(record)),
        "<h2>Every job's story</h2>",
        *(_story(record, found) for found in outcomes),
        footer("point at a bar for its times"),
    ]
    return whole_page("Argosy live", body, charts)


def overheads(record: Record) -> list[tuple[str, str, str, str]]:
    """Return what starts, resizes and the like cost, from the jobs' events."""
    seconds: dict[str, list[float]] = {}
    for line in record.story:
        kind, took, rest = line.text.partition(" took ")
        if line.kind == "measured" and took:
            seconds.setdefault(kind, []).append(float(rest.removesuffix(" s")))
    return [
        (kind, str(len(found)), f"{sorted(found)[len(found) // 2]:.2f}", f"{max(found):.2f}")
        for kind, found in sorted(seconds.items())
    ]


def gantt(record: Record) -> Chart:
    names = _names(record)
    bars = (
        alt.Chart(
            rows(
                pl.DataFrame(
                    [
                        {
                            "job": names[stay.job],
                            "slot": stay.slot,
                            "from": stay.start_s,
                            "to": stay.end_s,
                            "paused": stay.paused,
                        }
                        for stay in record.stays
                        if stay.job in names
                    ]
                )
            )
        )
        .mark_bar(cornerRadius=3, height={"band": 0.8})
        .encode(
            x=_time("from", record),
            x2="to:Q",
            y=alt.Y("slot:N", title="slot"),
            color=_colours(record),
            opacity=alt.condition("datum.paused", alt.value(0.25), alt.value(0.9)),
            tooltip=["job:N", "slot:N", "from:Q", "to:Q", "paused:N"],
        )
    )
    return alt.layer(bars, *_marks(record)).properties(width=WIDTH, height=44 * len({s.slot for s in record.stays}))


def workers(record: Record) -> Chart:
    names = _names(record)
    points = [{"job": names[p.job], "t": p.t_s, "workers": p.gpus} for p in record.points if p.job in names]
    lines = (
        alt.Chart(rows(pl.DataFrame(points)))
        .mark_line(interpolate="step-after", strokeWidth=2.5)
        .encode(
            x=_time("t", record),
            color=_colours(record),
            y=alt.Y("workers:Q", title="slots held", axis=alt.Axis(tickMinStep=1)),
        )
    )
    faceted = lines.properties(width=WIDTH, height=52).facet(
        row=alt.Row(
            "job:N",
            title=None,
            header=alt.Header(labelAnchor="start", labelOrient="top", labelPadding=2),
            sort=list(names.values()),
        ),
        spacing=6,
    )
    return faceted


def losses(record: Record) -> Chart:
    names = _names(record)
    points = [
        {"job": names[p.job], "t": p.t_s, "loss": max(p.loss, 1e-4)}
        for p in record.points
        if p.job in names and p.loss is not None
    ]
    frame = pl.DataFrame(points, schema={"job": pl.String, "t": pl.Float64, "loss": pl.Float64})
    return (
        alt.Chart(rows(frame))
        .mark_line(strokeWidth=1.5, opacity=0.9)
        .encode(
            x=_time("t", record),
            y=alt.Y("loss:Q", scale=alt.Scale(type="log")),
            color=_colours(record),
        )
        .properties(width=WIDTH, height=240)
    )


def _names(record: Record) -> dict[int, str]:
    return {number: str(job["name"]) for number, job in record.jobs.items()}


def _colours(record: Record) -> alt.Color:
    names = list(_names(record).values())
    range_ = [PALETTE[i % len(PALETTE)] for i in range(len(names))]
    return alt.Color("job:N", scale=alt.Scale(domain=names, range=range_), legend=alt.Legend(title=None, orient="top"))


def _time(field: str, record: Record) -> alt.X:
    axis, scale = alt.Axis(tickCount=10, format="~r"), alt.Scale(domain=[0, record.end_s], nice=False)
    return alt.X(f"{field}:Q", title="seconds since the beginning", axis=axis, scale=scale)


def _marks(record: Record) -> list[Chart]:
    if not record.marks:
        return []
    data = rows(pl.DataFrame([{"t": t, "what": text} for t, text in record.marks]))
    base = alt.Chart(data).encode(x=alt.X("t:Q"), tooltip="what:N")
    line = base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color="#7f7f7f")
    return [line, base.mark_text(align="left", dx=4, dy=-6, y=0, fontSize=11, color="#7f7f7f").encode(text="what:N")]


def _story(record: Record, found: Outcome) -> str:
    lines = [
        (f"{line.t_s:.1f} s", line.kind, line.text)
        for line in sorted(record.story, key=lambda line: line.t_s)
        if line.job == found.number
    ]
    title = f"{escape(found.name)}: {escape(found.about)}"
    return f"<details><summary>{title}</summary>{text_table(('when', 'what', 'more'), lines)}</details>"
