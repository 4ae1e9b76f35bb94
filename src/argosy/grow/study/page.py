"""The page of the growth study, with its charts, and the page of `argosy grow eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from argosy.atomic import writing
from argosy.grow.study.charts import WIDTH, intervals, pays_chart, scratch_chart, search_chart, verdict_chart
from argosy.grow.tables.evaluate import Verdict
from argosy.grow.tables.growth_table import Table
from argosy.report.page import Charts, footer, text_table, whole_page
from argosy.report.plots import PALETTE, rows

Results = Mapping[str, Mapping[str, Any]]


def write_page(path: Path, results: Results, tables: Sequence[Table]) -> None:
    """Write the page; parts without results are left out."""
    charts = Charts()
    body = ["<h1>Networks that grow while they train</h1>"]
    makers = {
        "pays": _pays,
        "search": _search,
        "reference": _reference,
        "starts": _starts,
        "shrinking": _shrinking,
        "speed": _speed,
    }
    body.append(_tables(tables, charts))
    body += [make(results[part], charts) for part, make in makers.items() if part in results]
    body.append(footer("its figures are in the JSON files beside it"))
    with writing(path) as temporary:
        temporary.write_text(whole_page("Growth study", body, charts), encoding="utf-8")


def write_verdicts(path: Path, agent: str, tables: Sequence[Table], verdicts: Sequence[Verdict], command: str) -> None:
    """Write the page of `argosy grow eval`."""
    charts = Charts()
    head = ("table", "decisions", "accuracy", "rank", "regret", "best", "random", "none")
    lines = []
    for table, v in zip(tables, verdicts, strict=True):
        taken = " · ".join(str(s) if s else "–" for s in table.surgeries(v.sequence))
        figures = (f"{100 * x:.1f}" for x in (v.accuracy, v.regret, v.best, v.random, v.none))
        accuracy, *others = figures
        lines.append((v.table, taken, accuracy, f"{v.rank}/{v.of}", *others))
    figure = charts.figure(
        verdict_chart(verdicts),
        "Accuracy by table",
        "the agent's choice beside the best of the table, the mean of all, and doing nothing",
    )
    body = [
        f"<h1>Growth agent {escape(agent)}</h1>",
        figure,
        text_table(head, lines),
        f"<p><code>{escape(command)}</code></p>",
        footer("accuracies are means over runs, in per cent"),
    ]
    with writing(path) as temporary:
        temporary.write_text(whole_page("Growth agent", body, charts), encoding="utf-8")


def _tables(tables: Sequence[Table], charts: Charts) -> str:
    frame = pl.DataFrame(
        [
            {"table": f"{t.key} ({len(t.options)} options)", "accuracy": float(a)}
            for t in tables
            for a in t.means("test")
        ]
    )
    chart = (
        alt.Chart(rows(frame))
        .mark_tick(thickness=2, opacity=0.6, color=PALETTE[0])
        .encode(
            x=alt.X("accuracy:Q", title="test accuracy", scale=alt.Scale(zero=False), axis=alt.Axis(format="%")),
            y=alt.Y("table:N", title=None, sort=None),
        )
        .properties(width=WIDTH, height=alt.Step(26))
    )
    return "<h2>Tables made by training</h2>" + charts.figure(
        chart, "What each sequence of decisions led to", "one tick per sequence, the mean of its runs"
    )


def _pays(part: Mapping[str, Any], charts: Charts) -> str:
    head = ("scenario", "arm", "test accuracy", "95 % interval")
    lines = [
        (scenario, arm, f"{100 * m['mean']:.1f}", _range(m))
        for scenario, found in part["scenarios"].items()
        for arm, m in found["means"].items()
    ]
    return (
        "<h2>Does growing pay?</h2>"
        + charts.figure(
            pays_chart(part),
            "Paired differences over fresh seeds",
            "right of the line is better; all arms of a seed branch from one checkpoint",
        )
        + text_table(head, lines)
    )


def _search(part: Mapping[str, Any], charts: Charts) -> str:
    found = ["<h2>How many tries?</h2>"]
    for which in ("own", "recorded"):
        if which not in part:
            continue
        title = "Tables made here" if which == "own" else "Published tables (one run each)"
        found.append(charts.figure(search_chart(part, which), title, "mean regret over all tables; lower is better"))
        head = (
            "table",
            "first choice",
            "taught 5 / 10",
            "fresh 5 / 10",
            "random 5 / 10",
            "looks to best",
            "stops after",
        )
        found.append(text_table(head, [_search_row(row) for row in part[which]["rows"]]))
    return "\n".join(found)


def _search_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    def two(name: str) -> str:
        return " / ".join(f"{100 * row[name]['regret'][k]['mean']:.2f}" for k in ("5", "10"))

    looks = sorted(row["taught"]["looks_to_best"])[len(row["taught"]["looks_to_best"]) // 2]
    return (
        row["table"],
        f"{100 * row['first_choice']['regret']:.2f}",
        two("taught"),
        two("fresh"),
        two("random"),
        str(looks),
        f"{row['taught']['stops_after']:.1f}",
    )


def _reference(part: Mapping[str, Any], charts: Charts) -> str:
    found = ["<h2>The published agent, again</h2>"]
    head = ("from scratch", "temperature", "ranks", "published", "episodes to the published rank")
    found.append(
        text_table(
            head,
            [
                (
                    r["table"],
                    f"{r['temperature']:g}",
                    ", ".join(map(str, r["ranks"])),
                    str(r["published"]["rank"]),
                    ", ".join("–" if e is None else f"{e:,}" for e in r["episodes_to_published_ranks"]),
                )
                for r in part["from_scratch"]
            ],
        )
    )
    found.append(
        charts.figure(
            scratch_chart(part),
            "Accuracy by scenario",
            "learned from scratch, mean over seeds, beside what is possible",
        )
    )
    frame = pl.DataFrame(
        [
            {"table": r["table"], "episode": e, "accuracy": a, "objective": o}
            for r in part["from_scratch"]
            if r["temperature"] == part["from_scratch"][0]["temperature"]
            for e, a, o in zip(r["curve"]["episode"], r["curve"]["accuracy"], r["curve"]["objective"], strict=True)
        ]
    )
    for column, title in (("accuracy", "Accuracy while it learns"), ("objective", "Objective")):
        chart = (
            alt.Chart(rows(frame))
            .mark_line()
            .encode(
                x=alt.X("episode:Q", title="episodes"),
                y=alt.Y(f"{column}:Q", title=column, scale=alt.Scale(zero=False)),
                color=alt.Color("table:N", title=None, scale=alt.Scale(range=PALETTE)),
            )
            .properties(width=WIDTH, height=220)
        )
        found.append(charts.figure(chart, title, "smoothed, mean over seeds"))
    for name in ("transfers", "curricula", "other_model"):
        found.append(f"<h3>{escape(name.replace('_', ' '))}</h3>" + _plain_rows(part[name]))
    return "\n".join(found)


def _plain_rows(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a table whose rows have their identifying columns, then their ranks by seed."""
    shown = [k for k in ("from", "to", "curriculum", "scenario", "temperature") if k in lines[0]]
    lists = {k: title for k, title in (("rank_befores", "ranks before"), ("ranks", "ranks")) if k in lines[0]}
    cells = [
        [
            *(f"{r[k]:g}" if isinstance(r[k], float) else str(r[k]) for k in shown),
            *(", ".join(map(str, r[k])) for k in lists),
            str((r.get("published") or {}).get("rank", "")),
        ]
        for r in lines
    ]
    return text_table([*shown, *lists.values(), "published rank"], cells)


def _starts(part: Mapping[str, Any], charts: Charts) -> str:
    return _arms("How new weights should be initialised", part, charts)


def _shrinking(part: Mapping[str, Any], charts: Charts) -> str:
    return _arms("When the GPUs are taken back", part, charts)


def _arms(title: str, part: Mapping[str, Any], charts: Charts) -> str:
    frame = pl.DataFrame(
        [
            {
                "difference": key.replace(" - ", " − "),
                "mean": 100 * d["mean"],
                "low": 100 * d["low"],
                "high": 100 * d["high"],
            }
            for key, d in part["differences"].items()
            if d["low"] is not None
        ]
    )
    chart = intervals(frame, "difference", "points of test accuracy", frame["difference"].to_list())
    lines = [(arm, f"{100 * m['mean']:.1f}", _range(m)) for arm, m in part["means"].items()]
    return (
        f"<h2>{escape(title)}</h2>"
        + charts.figure(chart, "Paired differences", "with 95 % intervals over seeds")
        + (text_table(("arm", "test accuracy", "95 % interval"), lines))
    )


def _speed(part: Mapping[str, Any], charts: Charts) -> str:
    return "<h2>Speed of the published loop</h2>" + text_table(
        ("", "ms per episode", "against published"),
        [
            ("published", f"{part['published_ms_per_episode']:.1f}", "1"),
            (
                "one update per episode",
                f"{part['single_ms_per_episode']:.2f}",
                f"{part['published_ms_per_episode'] / part['single_ms_per_episode']:.1f}x",
            ),
            (
                f"batches of {part['batch']}",
                f"{1e3 / part['batched_episodes_per_s']:.3f}",
                f"{part['batched_against_published']:.0f}x",
            ),
        ],
    )


def _range(m: Mapping[str, Any]) -> str:
    return "" if m["low"] is None else f"{100 * m['low']:.1f} to {100 * m['high']:.1f}"
