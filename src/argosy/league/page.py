"""Show a league as one HTML page that works offline, and as Markdown with pictures in the same folder."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path

from argosy.atomic import writing
from argosy.explain.words import listed
from argosy.league import plots
from argosy.league.table import CLOSE, FIGURES, MAIN, League, Standing, show_ratio, surely
from argosy.report.page import Charts, footer, text_table, whole_page, wide_table, with_small_spread
from argosy.report.plots import save_png
from argosy.report.stats import Interval
from argosy.report.tables import FUTURE_NOTE, show, versions
from argosy.scenario import Scenario
from argosy.sim.metrics import DEFINITIONS
from argosy.sim.settings import Settings

STYLE = """
td.failed { color: var(--warn); background: var(--warn-paper); text-align: center; }
.vega-bind { font-size: 13.5px; margin-top: 8px; }
.vega-bind-name { color: var(--soft); }
td.list { text-align: left; white-space: normal; min-width: 200px; vertical-align: top; }
h3 { margin-top: 34px; }
"""
PICTURES = ("heat", "wins")  # pictures that are written next to the Markdown file: NAME-heat.png, NAME-wins.png


def write_page(league: League, path: str | Path) -> None:
    """Write the HTML page atomically."""
    with writing(path) as temporary:
        temporary.write_text(page(league), encoding="utf-8")


def write_markdown(league: League, path: str | Path) -> None:
    """Write the Markdown text and its pictures, each atomically."""
    charts = (plots.heat_map(league, choices=False), plots.wins_and_losses(league))
    for chart, picture in zip(charts, pictures(path)):
        save_png(chart, picture, width=max(420, 92 * (len(league.scenarios) + 1)))
    with writing(path) as temporary:
        temporary.write_text(markdown(league, path), encoding="utf-8")


def pictures(path: str | Path) -> list[Path]:
    """Return where Markdown at `path` has its pictures."""
    target = Path(path)
    return [target.with_name(f"{target.stem}-{name}.png") for name in PICTURES]


def page(league: League) -> str:
    """Return the whole page as text."""
    charts = Charts()
    body = [
        "<h1>The league of policies</h1>",
        f'<p class="lead">{escape(verdict(league))}</p>',
        _cards(league),
        "<h2>Policies against scenarios</h2>",
        charts.figure(plots.heat_map(league), "Every policy in every scenario", heat_reading(league)),
        "<h2>Where each policy wins and where it loses</h2>",
        charts.figure(plots.wins_and_losses(league), "Against the median policy", wins_reading()),
        _standings(league),
        _failures(league),
        "<h2>Figures by scenario</h2>",
        f'<p class="soft">{escape(figures_reading(league))} Green marks the best policy without ★. In the first column '
        f"it marks policies that are better than {escape(league.baseline)} with their whole interval.</p>",
        *(_scenario(league, scenario) for scenario in league.season.scenarios),
        _definitions(league),
        _made(league),
        footer("choose another figure, or what it is relative to, below the first picture"),
    ]
    return whole_page("The league of policies", body, charts, style=STYLE)


def verdict(league: League) -> str:
    """Return a sentence that names the leading policies."""
    whole = [policy for policy in league.ranking if league.overall(policy) > 0]
    if not whole:
        return "No policy completed all scenarios."
    fair = [policy for policy in whole if policy not in league.future]
    texts = []
    if fair:
        least = league.overall(fair[0])
        first = [policy for policy in fair if math.isclose(league.overall(policy), least)]
        have = "has" if len(first) == 1 else "tie for"
        texts.append(
            f"Of the policies that see no true durations, {listed(first)} {have} the shortest mean job completion time "
            f"over all scenarios: {_times(least)} that of {league.baseline} (geometric mean)."
        )
    if whole[0] not in fair:
        texts.append(f"With true durations {whole[0]} reaches {_times(league.overall(whole[0]))}.")
    return " ".join(texts)


def heat_reading(league: League) -> str:
    return (
        f"Mean job completion time relative to {league.baseline}'s with the same jobs: 0.50 is half as long. Blue is "
        "better, orange worse. A frame marks the best policy that sees no true durations; ★ marks those that do, which "
        "no real scheduler can. The last column is the geometric mean; policies are sorted by it."
    )


def wins_reading() -> str:
    return (
        "Each dot is a scenario: mean job completion time relative to the median over all policies, geometric mean "
        "over seeds. The labels name the scenarios where the policy does best and worst."
    )


def figures_reading(league: League) -> str:
    spread = " ±: 95 % interval over seeds (Student-t)." if len(league.season.seeds) > 1 else ""
    return (
        f"Figures are means over seeds.{spread} {FUTURE_NOTE}. Policies are sorted as in the table of the whole league."
    )


def standing_rule(league: League) -> str:
    sure = "the 95 % interval over seeds excludes 1, and " if len(league.season.seeds) > 1 else ""
    return (
        f"The table compares with the median policy's mean JCT and shows the ratio. It lists only clear differences: "
        f"{sure}the difference is above {CLOSE:.0%}. First means that no policy without ★ is better there."
    )


def _cards(league: League) -> str:
    season = league.season
    cpu_s = sum(score.cpu_s for score in league.scores)
    cards = [
        ("scenarios", f"{len(season.scenarios)}", "see below"),
        ("policies", f"{len(season.policies)}", f"baseline {league.baseline}"),
        ("seeds", f"{len(season.seeds)}", "each has its own jobs"),
        ("runs", f"{len(league.scores):,}", f"{cpu_s:,.0f} s of CPU in policies and simulator"),
        ("failed", f"{len(league.errors)}", "runs; see below" if league.errors else "runs"),
    ]
    shown = [
        f'<div class="card"><span>{name}</span><b>{escape(value)}</b><small>{escape(more)}</small></div>'
        for name, value, more in cards
    ]
    return f'<div class="cards">{"".join(shown)}</div>'


def _standings(league: League) -> str:
    head = "".join(f'<th class="text">{name}</th>' for name in ("policy", "first in", "wins in", "loses in"))
    lines = [
        f'<tr><td class="text">{escape(plots.label(league, s.policy))}</td>'
        + "".join(f'<td class="list">{escape(text)}</td>' for text in standing_texts(s))
        + "</tr>"
        for s in league.standings
    ]
    return f'<p class="note">{escape(standing_rule(league))}</p>' + wide_table(f"<tr>{head}</tr>{''.join(lines)}")


def standing_texts(standing: Standing) -> tuple[str, str, str]:
    """Return first in, wins in, loses in."""
    return ", ".join(standing.firsts) or "–", _with_ratios(standing.wins), _with_ratios(standing.losses)


def _with_ratios(found: Iterable[tuple[str, Interval]]) -> str:
    return ", ".join(f"{scenario} ({_times(ratio.mean)})" for scenario, ratio in found) or "–"


def _failures(league: League) -> str:
    if not league.errors:
        return ""
    rows = [(str(score.match), str(score.error)) for score in league.errors]
    return f"<h2>What failed</h2>{text_table(('run', 'why'), rows)}"


def _scenario(league: League, scenario: Scenario) -> str:
    shown = league.columns(scenario.name)
    head = "".join(
        f'<th title="{escape(DEFINITIONS[c.metric].text)}">{escape(c.label)}<small>{c.unit or "&nbsp;"}</small></th>'
        for c in shown
    )
    best = {
        c.metric: league.figure(scenario.name, who, c.metric).mean
        for c in shown
        if (who := league.best(scenario.name, c.metric)) is not None
    }
    lines = []
    for policy in league.ranking:
        name = f"<td>{escape(plots.label(league, policy))}</td>"
        if league.failed(scenario.name, policy):
            lines.append(f'<tr>{name}<td class="failed" colspan="{len(shown) + 1}">failed</td></tr>')
            continue
        ratio = league.ratio(scenario.name, policy)
        cells = [_td(_ratio_text(ratio), surely(ratio) < 0)]
        for column in shown:
            value = league.figure(scenario.name, policy, column.metric)
            good = not league.sees_future(scenario.name, policy) and value.mean == best.get(column.metric)
            cells.append(_td(show(value, column.divisor), good))
        lines.append(f"<tr>{name}{''.join(cells)}</tr>")
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in scenario_facts(scenario))
    first = f"<th>JCT mean<small>/ {escape(league.baseline)}</small></th>"
    return (
        f"<h3>{escape(scenario.name)}: {escape(scenario.file.title)}</h3>"
        f'<p class="soft">{escape(scenario.file.description)}</p>'
        f"<details><summary>Jobs, cluster and settings</summary><ul>{facts}</ul></details>"
        + wide_table(f"<tr><th>policy</th>{first}{head}</tr>{''.join(lines)}")
    )


def _td(text: str, good: bool) -> str:
    return f"<td{' class=best' if good else ''}>{with_small_spread(text)}</td>"


def _ratio_text(ratio: Interval) -> str:
    reach = ratio.half_width
    return show_ratio(ratio.mean) + (f" ± {reach:.2f}" if reach >= 0.005 else "")


def scenario_facts(scenario: Scenario) -> list[str]:
    """Return what a reader needs to know to judge a scenario."""
    file, cluster = scenario.file, scenario.cluster
    jobs, real = file.jobs, scenario.real
    kinds: dict[str, int] = {}
    for node in cluster.nodes:
        kinds[node.gpu_type] = kinds.get(node.gpu_type, 0) + node.gpus
    source = f"like {jobs.like}" if real is None else f"of {real.name}, each seed another stretch"
    load = "at the source's own pace" if jobs.load is None else f"at load {jobs.load:g}"
    facts = [
        f"{scenario.count:,} jobs {source}, {load}",
        f"{len(cluster.nodes)} nodes with {', '.join(f'{count} {kind}' for kind, count in kinds.items())} GPUs",
    ]
    changes = file.changes.model_dump(exclude_none=True, exclude_defaults=True)
    facts += [f"jobs changed: {name}: {value}" for name, value in changes.items()]
    default = Settings().as_dict()
    facts += [f"{name}: {value}" for name, value in scenario.settings.as_dict().items() if value != default[name]]
    facts += [f"{policy} runs as {scenario.spec(policy)}" for policy in file.parameters]
    if file.measure is not None:
        facts.append(f"measured: jobs submitted in {file.measure.start:.0%} to {file.measure.end:.0%} of the arrivals")
    return facts


def _definitions(league: League) -> str:
    rows = [(name, DEFINITIONS[name].unit, DEFINITIONS[name].text) for name in FIGURES]
    table = text_table(("figure", "unit", "definition"), rows)
    return f"<h2>What the figures mean</h2><details><summary>Definitions</summary>{table}</details>"


def _made(league: League) -> str:
    command = f"<pre>{escape(league.command)}</pre>" if league.command else ""
    table = text_table(("library", "version"), versions().items())
    return f"<h2>How this was made</h2>{command}<details><summary>Versions</summary>{table}</details>"


def markdown(league: League, path: str | Path) -> str:
    """Return the text; its pictures are expected in the folder of `path`."""
    heat, wins = (picture.name for picture in pictures(path))
    runs = f"{len(league.season.policies)} policies × {len(league.season.scenarios)} scenarios × "
    parts = [
        "# The league of policies",
        verdict(league),
        f"{runs}{len(league.season.seeds)} seeds; {len(league.errors)} of {len(league.scores)} runs failed.",
        f"![Every policy in every scenario]({heat})",
        heat_reading(league),
        _markdown_matrix(league),
        "## Where each policy wins and where it loses",
        f"![Against the median policy]({wins})",
        standing_rule(league),
        _markdown_table(
            ("policy", "first in", "wins in", "loses in"),
            [(plots.label(league, s.policy), *standing_texts(s)) for s in league.standings],
            "llll",
        ),
        *(_markdown_failures(league)),
        "## Figures by scenario",
        figures_reading(league),
        *(part for scenario in league.season.scenarios for part in _markdown_scenario(league, scenario)),
        "## What the figures mean",
        _markdown_table(("figure", "definition"), [(name, DEFINITIONS[name].text) for name in FIGURES], "ll"),
        f"Made by `{league.command}` with Argosy {versions()['argosy']}." if league.command else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_matrix(league: League) -> str:
    many = len(league.scenarios) > 1
    rows = []
    for policy in league.ranking:
        cells = []
        for scenario in league.scenarios:
            text = show_ratio(league.ratio(scenario, policy).mean)
            text = f"**{text}**" if policy == league.best(scenario, MAIN) else text
            cells.append("failed" if league.failed(scenario, policy) else text)
        overall = [show_ratio(league.overall(policy))] if many else []
        rows.append((plots.label(league, policy), *cells, *overall))
    head = ("policy", *league.scenarios, *(["all"] if many else []))
    return _markdown_table(head, rows, "l" + "r" * (len(head) - 1))


def _markdown_failures(league: League) -> list[str]:
    if not league.errors:
        return []
    lines = [f"- {_plain(str(score.match))}: {_plain(str(score.error))}" for score in league.errors]
    return ["## What failed", "\n".join(lines)]


def _markdown_scenario(league: League, scenario: Scenario) -> list[str]:
    shown = league.columns(scenario.name)
    rows = []
    for policy in league.ranking:
        figures = [show(league.figure(scenario.name, policy, column.metric), column.divisor) for column in shown]
        failed = league.failed(scenario.name, policy)
        ratio = "failed" if failed else show_ratio(league.ratio(scenario.name, policy).mean)
        rows.append((plots.label(league, policy), ratio, *figures))
    head = ("policy", f"JCT / {league.baseline}", *(column.title for column in shown))
    return [
        f"### {scenario.name}: {scenario.file.title}",
        scenario.file.description,
        "\n".join(f"- {_plain(fact)}" for fact in scenario_facts(scenario)),
        _markdown_table(head, rows, "l" + "r" * (len(head) - 1)),
    ]


def _markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]], sides: str) -> str:
    lines = [head, [{"l": "---", "r": "---:"}[side] for side in sides], *rows]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines)


def _plain(text: str) -> str:
    """Escape a text so that nothing in it ends a cell or a line."""
    return text.replace("|", "\\|").replace("\n", " ")


def _times(ratio: float) -> str:
    return "–" if math.isnan(ratio) else f"{show_ratio(ratio)} ×"
