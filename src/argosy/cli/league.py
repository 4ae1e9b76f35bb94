"""`argosy league` runs every policy in every scenario, and shows a table, a page, Markdown and JSON."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._shared import (
    MOST_SEEDS,
    MOST_WORKERS,
    Output,
    OutputOption,
    ProgressOption,
    RayOption,
    check_writable,
    emit,
    progress_bar,
    say,
    within,
)
from argosy.cli.compare import parse_policies
from argosy.errors import InputError, UnknownName

if TYPE_CHECKING:
    from rich.table import Table

    from argosy.league.run import Score, Season
    from argosy.league.table import League
    from argosy.scenario import Scenario

SEEDS, QUICK_SEEDS = 3, 1
AS_NEEDED = 10_000  # columns: wide enough for any table


def league(
    *,
    scenarios: Annotated[
        str, typer.Option("--scenarios", "-s", help="names separated by commas, or YAML files of your own")
    ] = "all",
    policies: Annotated[
        str, typer.Option("--policies", "-p", help="names separated by commas, each with its parameters")
    ] = "all",
    seeds: Annotated[
        int | None,
        typer.Option(help="number of seeds: 0, 1, …; each has its own jobs", show_default="3, with --quick 1"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="folder of real traces, used by the scenarios that name one")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="fewer jobs, for a first look")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="the policy to measure the others against; default: fifo, else the first")
    ] = None,
    output: OutputOption = Output.TABLE,
    report: Annotated[Path | None, typer.Option(help="write one HTML page that works offline")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write Markdown, with two pictures in the same folder")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures of all runs as JSON")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", help="processes; default: one for each core")
    ] = None,
    ray: RayOption = None,
    list_: Annotated[bool, typer.Option("--list", help="list the scenarios and exit")] = False,
    progress: ProgressOption = None,
) -> None:
    """Run every policy in a fixed set of scenarios.

    \b
    argosy league --quick
    argosy league --report out/league.html --markdown out/league.md --json out/league.json
    argosy league --scenarios dl2-500,dl2-100 --policies drf,optimus --seeds 10
    argosy league --data ~/traces --policies fifo,las,my_policy.py:Mine

    A run that fails does not stop the others; it is shown as failed, and the exit code is 1.
    """
    from argosy.league.run import Season

    names = parse_policies(policies)
    chosen = read_scenarios(scenarios, quick, data)
    if list_:
        show_list(chosen, output)
        return
    within("--seeds", 1, MOST_SEEDS, seeds)
    within("--workers", 1, MOST_WORKERS, workers)
    if baseline is not None and baseline not in names:
        raise UnknownName("baseline", baseline, names)
    count = seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS
    season = Season(chosen, tuple(names), tuple(range(count)))
    season.check()
    check_outputs(report, markdown, json_file)
    from argosy.sim.warm import warm_up

    warm_up(say)
    scores = play(season, workers, progress, ray)
    present(season, scores, baseline, output, report, markdown, json_file)


def read_scenarios(text: str, quick: bool, data: Path | None) -> tuple[Scenario, ...]:
    """Parse `all`, names or files into scenarios, each at most once."""
    from argosy.scenario import read_scenario, scenario_names

    if data is not None and not data.is_dir():
        hint = "name the folder that holds the traces"
        raise InputError("there is no such folder", where=str(data), hint=hint)
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if not wanted:
        raise InputError(f"no scenario in {text!r}", hint=f"for example --scenarios {scenario_names()[0]}")
    if wanted == ["all"]:
        wanted = scenario_names()
    found = [read_scenario(name, quick=quick, data=data) for name in wanted]
    names = [scenario.name for scenario in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"scenario {twice!r} is named twice", hint="name it once")
    if data is not None and all(scenario.real is None for scenario in found):
        say(f"note: none of {', '.join(names)} has a real trace; their jobs are generated")
    return tuple(found)


def check_outputs(report: Path | None, markdown: Path | None, json_file: Path | None) -> None:
    from argosy.league.page import pictures

    check_writable(report, markdown, json_file)
    if markdown is not None:
        check_writable(*pictures(markdown))


def play(season: Season, workers: int | None, progress: bool | None, ray: str | None = None) -> list[Score]:
    """Run the whole season with a progress bar; errors are printed at the end."""
    with progress_bar("runs", len(season.matches()), progress) as bar:
        ended: list[Score] = []

        def done(score: Score) -> None:
            ended.append(score)
            bar(len(ended))

        scores = season.play_all(workers, done, ray)
    failed = [score for score in scores if score.error is not None]
    if len(failed) == len(scores) and isinstance(failed[0].error, InputError):
        raise failed[0].error  # if all runs fail with the same error, it is not due to a policy
    for score in failed:
        say(f"error: {score.match}: {score.error}")
        if score.details and os.environ.get("ARGOSY_DEBUG"):
            say(score.details)
    return scores


def present(
    season: Season,
    scores: list[Score],
    baseline: str | None,
    output: Output,
    report: Path | None,
    markdown: Path | None,
    json_file: Path | None,
) -> None:
    """Print the table and write the files; exit with 1 if a run failed."""
    from argosy.atomic import writing
    from argosy.league.table import League, document

    found = League(season, tuple(scores), baseline or "", shlex.join(["argosy", *sys.argv[1:]]))
    if output is Output.TABLE:
        show(found)
    else:
        emit(document(found), output)
    if json_file is not None:
        with writing(json_file) as temporary:
            text = json.dumps(document(found), indent=1, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")
        say(f"figures: {json_file}")
    if markdown is not None:
        from argosy.league.page import write_markdown

        write_markdown(found, markdown)
        say(f"markdown: {markdown}")
    if report is not None:
        from argosy.league.page import write_page

        write_page(found, report)
        say(f"report: {report}")
    if found.errors:
        say(f"{len(found.errors)} of {len(scores)} runs failed")
        raise typer.Exit(1)


def show(found: League) -> None:
    """Print the mean JCT of every policy in every scenario, relative to the baseline's.

    A terminal that is too narrow for all scenarios shows as many as fit, and the others are named below the table.
    """
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else AS_NEEDED, highlight=False)
    unlimited = Console(width=AS_NEEDED)
    shown = len(found.scenarios)
    while shown > 1 and unlimited.measure(ratios_table(found, shown)).maximum > console.width:
        shown -= 1
    console.print(ratios_table(found, shown), crop=False)


def ratios_table(found: League, shown: int) -> Table:
    """Return the table with the first `shown` scenarios; the mean over all of them comes first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from argosy.league.plots import label
    from argosy.league.table import show_ratio
    from argosy.report.tables import FUTURE_NOTE

    many = len(found.scenarios) > 1
    seeds = len(found.season.seeds)
    notes = ["• best of those that see no true durations", FUTURE_NOTE]
    notes += ["all: geometric mean over the scenarios"] if many else []
    if left_out := found.scenarios[shown:]:
        notes.append(f"no room for {', '.join(left_out)}:")
        notes.append("use a wider terminal, --report, --json or --output json")
    title = Text(f"Mean JCT relative to {found.baseline}, {seeds} seed{'s' * (seeds > 1)}", "bold")
    table = Table(
        title=title,
        caption=Text("\n".join(notes)),
        title_justify="left",
        caption_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        min_width=len(title),
    )
    table.add_column("policy", no_wrap=True)
    for name in (*(["all"] if many else []), *found.scenarios[:shown]):
        table.add_column(name.replace("-", "-\n"), justify="right", no_wrap=True)
    for policy in found.ranking:
        cells = [Text(show_ratio(found.overall(policy)))] if many else []
        for scenario in found.scenarios[:shown]:
            if found.failed(scenario, policy):
                cells.append(Text("failed", style="red"))
                continue
            text, best = show_ratio(found.ratio(scenario, policy).mean), policy == found.best(scenario)
            cells.append(Text(f"• {text}", style="bold green") if best else Text(text))
        table.add_row(Text(label(found, policy)), *cells)
    return table


def show_list(scenarios: tuple[Scenario, ...], output: Output) -> None:
    """Print the list of scenarios."""
    from argosy.league.page import scenario_facts

    if output is not Output.TABLE:
        emit([{"name": s.name, "title": s.file.title, "facts": scenario_facts(s)} for s in scenarios], output)
        return
    for scenario in scenarios:
        typer.echo(f"{scenario.name:<14} {scenario.file.title}")
        typer.echo(f"{'':<14} {'; '.join(scenario_facts(scenario)[:2])}")
