"""Show a comparison as one HTML page that needs nothing else: no network, no server, no other files.

Names of traces, policies, queues and jobs come from people and are escaped everywhere.
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

import numpy as np

from argosy.atomic import writing
from argosy.cluster.view import INFORMATION
from argosy.explain.words import signed
from argosy.report import maps, plots
from argosy.report.advice import advice, advice_lines
from argosy.report.comparison import Comparison, sees_future
from argosy.report.page import Charts, footer, text_table, whole_page, wide_table, with_small_spread
from argosy.report.reproduction import reproduction_lines
from argosy.report.tables import (
    FUTURE_NOTE,
    LONG,
    UNFINISHED_NOTE,
    columns,
    comparison_rows,
    show,
    versions,
)
from argosy.report.users import user_rows
from argosy.report.verdict import verdict
from argosy.sim.metrics import DEFINITIONS

MOST_MAPS = 8


def write_report(comparison: Comparison, path: str | Path) -> None:
    """Write the page atomically."""
    with writing(path) as temporary:
        temporary.write_text(page(comparison), encoding="utf-8")


def page(comparison: Comparison) -> str:
    """Return the whole page as text."""
    first = comparison.results[0]
    charts = Charts()
    body = [
        f"<h1>{escape(first.trace)} on {escape(first.cluster.name)}</h1>",
        f'<p class="lead">{verdict(comparison)}</p>',
        _advice(comparison),
        _cards(comparison),
        _scores(comparison),
        _differences(comparison, charts),
        _distributions(comparison, charts),
        _sweep(comparison, charts),
        _reproduction(comparison),
        _winners(comparison, charts),
        _users(comparison),
        _maps(comparison, charts),
        _sight(comparison),
        _settings(comparison),
        _definitions(comparison),
        footer("click a name in a legend to single out a policy"),
    ]
    return whole_page(f"{', '.join(comparison.policies)}: {first.trace}", body, charts)


def _advice(comparison: Comparison) -> str:
    """Return what to run, what it saves and who loses; the lead above it says how sure that is."""
    return "".join(f"<p class=note>{escape(line.strip())}</p>" for line in advice_lines(advice(comparison)))


def _cards(comparison: Comparison) -> str:
    first = comparison.results[0]
    jobs, cluster = first.jobs, first.cluster
    submits = jobs["submit_s"].to_numpy()
    span_s = float(np.ptp(submits)) if submits.size else 0.0
    asked_gpu_s, offered_gpu_s = float((jobs["gpus"] * jobs["alone_s"]).sum()), span_s * cluster.total_gpus
    load = f"{asked_gpu_s / offered_gpu_s:.0%}" if offered_gpu_s > 0 else "–"
    unit, seconds = plots.time_unit(span_s)
    window = comparison.window
    types = ", ".join(cluster.gpu_types)
    cards = [
        ("jobs", f"{jobs.height:,}", f"over {span_s / seconds:.3g} {unit}"),
        ("cluster", f"{cluster.total_gpus:,} GPUs", f"{len(cluster.nodes):,} nodes, {types}"),
        ("offered load", load, "GPU-time asked for / available"),
        ("policies", f"{len(comparison.policies)}", f"baseline {comparison.baseline}"),
        ("seeds", f"{len(comparison.seeds)}", ", ".join(map(str, comparison.seeds[:8]))),
    ]
    if window:
        bounds = f"{window[0] / seconds:.3g}–{window[1] / seconds:.3g}"
        cards.append(("window", bounds, f"{unit}; only jobs submitted in it"))
    shown = [
        f'<div class="card"><span>{name}</span><b>{escape(value)}</b><small>{escape(more)}</small></div>'
        for name, value, more in cards
    ]
    return f'<div class="cards">{"".join(shown)}</div>'


def _scores(comparison: Comparison) -> str:
    shown, rows = columns(comparison, LONG), comparison_rows(comparison, LONG)
    head = "".join(
        f'<th title="{escape(DEFINITIONS[c.metric].text)}">{c.label}<small>{c.unit or "&nbsp;"}</small></th>'
        for c in shown
    )
    lines = []
    for row in rows:
        star = ' <span class="star" title="sees true durations">★</span>' if row.future else ""
        name = _named(comparison, row.policy) + (" †" if row.unfinished else "") + star
        cells = "".join(
            f"<td{' class=best' if metric in row.best else ''}>{with_small_spread(text)}</td>"
            for metric, text in row.values.items()
        )
        lines.append(f"<tr><td>{name}</td>{cells}</tr>")
    notes = ["Green: best of its column."]
    notes += ["±: 95 % interval over seeds (Student-t)."] if len(comparison.seeds) > 1 else []
    notes += [f"{FUTURE_NOTE}, which no real scheduler can."] if any(row.future for row in rows) else []
    notes += [f"{UNFINISHED_NOTE}."] if any(row.unfinished for row in rows) else []
    return (
        "<h2>Results</h2><p class=soft>Mean over seeds; point at a heading for its definition.</p>"
        f"{_by_policy(head, lines)}"
        f'<p class="note">{escape(" ".join(notes))}</p>'
    )


def _differences(comparison: Comparison, charts: Charts) -> str:
    """Return how much each policy differs from each other one, and how certain that is."""
    if len(comparison.policies) < 2:
        return ""
    head = "".join(f'<th class="middle">{escape(policy)}</th>' for policy in comparison.policies)
    lines = []
    for policy in comparison.policies:
        cells = []
        for other in comparison.policies:
            if policy == other:
                cells.append('<td class="middle soft">·</td>')
                continue
            change = comparison.paired[policy, other].change
            best = " best" if change.high < 0 else ""
            bounds = f"<small>{signed(change.low)} … {signed(change.high)}</small>"
            bounds = "" if math.isnan(change.low) else f"<br>{bounds}"
            cells.append(f'<td class="middle{best}">{signed(change.mean)}{bounds}</td>')
        lines.append(f"<tr><td>{_named(comparison, policy)}</td>{''.join(cells)}</tr>")
    by = " or ".join(sorted({pair.by for pair in comparison.against_baseline}))
    out = max(pair.left_out for pair in comparison.against_baseline)
    left = f" Up to {out:,} jobs that did not finish under both are left out." if out else ""
    reading = (
        f"Dots left of the dashed line: shorter mean JCT than {comparison.baseline}. Whiskers: 95 % interval "
        f"of the paired difference, by {by}; one that crosses the line may be chance.{left}"
    )
    return (
        "<h2>Differences between policies</h2>"
        + charts.figure(plots.paired_differences(comparison), "Mean JCT against the baseline", reading)
        + "<details><summary>Every policy against every other</summary>"
        "<p class=note>Change of mean JCT of the row's policy against the column's, with its interval. "
        "Green: surely shorter.</p>"
        f"{_by_policy(head, lines)}</details>"
    )


def _distributions(comparison: Comparison, charts: Charts) -> str:
    end_s = max(result.end_s for result in comparison.results)
    unit, seconds = plots.time_unit(end_s)
    cut = "" if comparison.shown_s == end_s else f" The last jobs end after {end_s / seconds:.3g} {unit}."
    figures = [
        charts.figure(
            plots.jct_cdf(comparison),
            "How soon jobs finish",
            "Height of a curve at a time: share of jobs that took no longer. Further left is better.",
        ),
        charts.figure(
            plots.queue_length(comparison),
            "Jobs waiting",
            "Jobs that hold nothing, preempted ones included; average over seeds. Lower is better." + cut,
        ),
        charts.figure(
            plots.gpu_use(comparison),
            "GPUs in use",
            "Share of all GPUs held by jobs. High while jobs wait is good.",
        ),
        charts.figure(
            plots.losses(comparison),
            "Why GPU-hours were lost",
            "Of all GPU-hours held, the share that did not move jobs forward. Shorter is better.",
        ),
    ]
    return f'<h2>Where the time goes</h2><div class="pair">{"".join(figures)}</div>'


def _sweep(comparison: Comparison, charts: Charts) -> str:
    if not comparison.sweep:
        return ""
    names = list(comparison.swept)
    reading = "Geometric mean over seeds; bands: its 95 % interval."
    if len(names) > 1:
        reading = "Mean over seeds; the darker, the longer."
    elif names == ["load"]:
        reading = (
            "The same jobs arriving faster or slower; at 1 they ask for as much GPU-time as there is. "
            f"A curve that stays low further to the right carries more. {reading}"
        )
    title = "Under more load" if names == ["load"] else f"What if: {' and '.join(names)}"
    against = " and ".join(names)
    return f"<h2>{escape(title)}</h2>" + charts.figure(plots.sweep(comparison), f"Mean JCT against {against}", reading)


def _reproduction(comparison: Comparison) -> str:
    """Return how near the simulations are to what happened, if that is part of the comparison."""
    title, *lines = reproduction_lines(comparison) or [""]
    notes = dict.fromkeys(note for result in comparison.results for note in result.notes)
    said = "".join(f"<p class=note>{escape(text)}</p>" for text in (*notes, *lines))
    return f"<h2>{escape(title.rstrip(':'))}</h2>{said}" if title else said


def _winners(comparison: Comparison, charts: Charts) -> str:
    if comparison.winners.is_empty():
        return ""
    by_size = charts.figure(
        plots.winners_and_losers(comparison, "size"),
        "By job size",
        f"Mean JCT of a class of jobs, relative to {comparison.baseline}. To the left: these jobs gained.",
    )
    by_queue = charts.figure(
        plots.winners_and_losers(comparison, "queue"),
        "By queue",
        f"The same for the jobs of a queue (at most the {plots.MOST_QUEUES} largest are shown).",
    )
    return f'<h2>Who won, who lost</h2><div class="pair">{by_size}{by_queue}</div>'


def _users(comparison: Comparison) -> str:
    """Return the mean JCT of each user's jobs under each policy, if the trace has users."""
    head, rows, users = user_rows(comparison)
    if users < 2:
        return ""
    few = f" The {len(rows)} users with most GPU-hours, of {users:,}; JSON has all." if users > len(rows) else ""
    return (
        "<h2>What each user got</h2><p class=soft>Mean JCT of a user's finished jobs, and its change against "
        f"{escape(comparison.baseline)}; jobs and GPU-hours of a run.{few}</p>{text_table(head, rows)}"
    )


def _maps(comparison: Comparison, charts: Charts) -> str:
    seed = comparison.results[0].seed
    shown = [policy for policy in comparison.policies if seed in comparison.runs[policy]][:MOST_MAPS]
    end_s = comparison.shown_s
    figures = "".join(
        charts.figure(maps.cluster_map(comparison.timelines[policy][seed], end_s=end_s), policy, "") for policy in shown
    )
    few = f" The first {MOST_MAPS} policies are shown." if len(shown) < len(comparison.policies) else ""
    return (
        "<h2>The cluster over time</h2><p class=soft>Nodes from top to bottom, time from left to right, "
        f"seed {seed}; the fainter a place, the more of its GPUs were idle.{few}</p>"
        f'<div class="pair">{figures}</div>'
    )


def _sight(comparison: Comparison) -> str:
    """Return what each policy was allowed to see."""
    firsts = {policy: next(iter(runs.values())) for policy, runs in comparison.runs.items()}
    used = {use for run in firsts.values() for use in run.uses}
    known = [use for use in INFORMATION if use in used] + sorted(used - set(INFORMATION))
    head = "".join(
        f'<th class="middle" title="{escape(INFORMATION.get(use, use))}">{escape(use)}</th>' for use in known
    )
    lines = []
    for policy, run in firsts.items():
        cells = "".join(f'<td class="middle">{"●" if use in run.uses else ""}</td>' for use in known)
        name = _named(comparison, policy) + _star(comparison, policy)
        lines.append(f"<tr><td>{name}</td>{cells}</tr>")
    meanings = [f"<b>{use}</b>: {escape(INFORMATION[use])}" for use in known if use in INFORMATION]
    return (
        "<h2>What each policy was allowed to see</h2><p class=soft>A policy that reads anything else is "
        "stopped with an error, so this is what its decisions rest on.</p>"
        f"{_by_policy(head, lines)}"
        f'<p class="note">{"; ".join(meanings)}.</p>'
    )


def _settings(comparison: Comparison) -> str:
    rows = []
    keys = dict.fromkeys(key for result in comparison.results for key in result.settings)
    for key in (key for key in keys if key != "seed"):  # seeds are shown at the top
        values = {run.policy: str(run.settings.get(key, "–")) for run in comparison.results}
        one = len(set(values.values())) == 1
        texts = [next(iter(values.values()))] if one else [f"{p}: {value}" for p, value in values.items()]
        rows.append((str(key), "; ".join(texts)))
    rows += [(f"{name} version", text) for name, text in versions().items()]
    table = text_table(("setting", "value"), rows)
    command = f"<pre>{escape(comparison.command)}</pre>" if comparison.command else ""
    return f"<h2>How this was made</h2>{command}<details><summary>Settings and versions</summary>{table}</details>"


def _definitions(comparison: Comparison) -> str:
    """Return every metric: what it means and what each policy got."""
    rows = [
        (name, meant.unit, *(show(summary[name]) for summary in comparison.summary.values()), meant.text)
        for name, meant in DEFINITIONS.items()
    ]
    table = text_table(("metric", "unit", *comparison.policies, "definition"), rows)
    return (
        "<h2>All metrics</h2><p class=soft>Each has one definition, whatever the policy.</p>"
        f"<details><summary>Values and definitions</summary>{table}</details>"
    )


def _by_policy(head: str, lines: list[str]) -> str:
    return wide_table(f"<tr><th>policy</th>{head}</tr>{''.join(lines)}")


def _named(comparison: Comparison, policy: str) -> str:
    """Return a policy's name with the colour it has in the charts."""
    colour = plots.PALETTE[comparison.policies.index(policy) % len(plots.PALETTE)]
    return f'<i class="swatch" style="background:{colour}"></i>{escape(policy)}'


def _star(comparison: Comparison, policy: str) -> str:
    first = next(iter(comparison.runs[policy].values()))
    return f' <span class="star">{FUTURE_NOTE}</span>' if sees_future(first) else ""
