"""`argosy compare` runs policies × seeds in parallel, and shows them as a table, a page and a JSON file."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._settings import with_settings
from argosy.cli._shared import (
    MOST_SEEDS,
    MOST_WORKERS,
    WORKLOAD,
    DaysOption,
    JobsOption,
    LikeOption,
    LoadOption,
    Output,
    OutputOption,
    ProgressOption,
    RayOption,
    ReportOption,
    TraceOption,
    WindowOption,
    check_writable,
    emit,
    parse_window,
    progress_bar,
    read_workload,
    say,
    within,
)
from argosy.errors import InputError, UnknownName
from argosy.sim.settings import Settings

if TYPE_CHECKING:
    from argosy.report.comparison import Comparison
    from argosy.sim.compare import Experiment, Outcome
    from argosy.sim.variation import Value

DEFAULT_JOBS = 5000


@with_settings
def compare(
    *,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", help="a YAML or CSV file, or a preset's name, see docs/clusters.md"),
    ] = None,
    policies: Annotated[
        str, typer.Option("--policies", "-p", help="names separated by commas, each with its parameters; all")
    ],
    trace: TraceOption = None,
    like: LikeOption = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="jobs, cluster and settings of a scenario of `argosy league`, instead", rich_help_panel=WORKLOAD
        ),
    ] = None,
    jobs: JobsOption = DEFAULT_JOBS,
    days: DaysOption = None,
    load: LoadOption = None,
    seeds: Annotated[int, typer.Option(help="how many: SEED, SEED+1, …; with --like each has its own jobs")] = 1,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=…",
            help="what if: load=0.6..1.4, nodes=4..16:4, v100=64..256:32, min_run_s=0,300, overheads=none,realistic,"
            " quota.research=8..64, las.quantum_s=60..600:4; twice for a heat map",
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="the policy to measure the others against; default: the first")
    ] = None,
    output: OutputOption = Output.TABLE,
    report: ReportOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures of all runs as JSON")] = None,
    jobs_csv: Annotated[
        Path | None, typer.Option("--jobs-csv", help="write start, wait, finish, GPU-hours and restarts of every job")
    ] = None,
    window: WindowOption = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", help="processes; default: one for each core")
    ] = None,
    ray: RayOption = None,
    progress: ProgressOption = None,
    settings: Settings,
) -> None:
    """Run the same jobs under several policies.

    \b
    argosy compare -t week.csv -c cluster.yaml -p fifo,srtf,las --report out/report.html
    argosy compare --like philly --load 1 -c small -p fifo,las:quantum_s=60 --seeds 5
    argosy compare -t week.csv -c cluster.yaml -p fifo,srtf --sweep load=0.6..1.4
    argosy compare -t week.csv -c cluster.yaml -p fifo,las --sweep nodes=4..16:4 --sweep min_run_s=0,300,1200
    argosy compare --scenario dl2-500 -p drf,optimus --seeds 3
    argosy compare -t week.csv -c cluster.yaml -p actual,fifo,tiresias-las
    argosy compare --like philly --load 1 -c philly -p all --seeds 5 --ray head:6379

    The policy `actual` is the past: jobs start and end when the trace says that they did (start_s and end_s, which
    argosy import keeps). Then it is also shown how well the simulated policies reproduce the past.

    With a trace, seeds change only what is random (faults, noise, random policies); with --like each seed
    also generates other jobs.
    """
    from argosy.policies.base import create

    names, varied, span = parse_policies(policies), parse_sweep(sweep), parse_window(window)
    within("--seeds", 1, MOST_SEEDS, seeds)
    within("--workers", 1, MOST_WORKERS, workers)
    if baseline is not None and baseline not in names:
        raise UnknownName("baseline", baseline, names)
    from argosy.sim.compare import Outcome, run_all, tasks
    from argosy.sim.kept_cells import KeptCells
    from argosy.sim.recorded import ACTUAL

    for name in names:
        if name != ACTUAL:
            create(name)

    if scenario is None:
        experiment = own_experiment(cluster, trace, like, jobs, days, load, settings, span)
    else:
        given = {"--cluster": cluster, "--trace": trace, "--like": like, "--days": days, "--load": load}
        given |= {"--jobs": None if jobs == DEFAULT_JOBS else jobs}
        experiment, names, baseline = from_scenario(scenario, names, baseline, given, settings, span)
    from argosy.sim.variation import Variation, changed, check_name

    for name in varied:
        check_name(name, experiment.cluster, names)
    grid = [
        tuple(Variation(name, value) for name, value in zip(varied, values)) for values in product(*varied.values())
    ]
    grid = grid if varied else []
    for one in dict.fromkeys(one for at in grid for one in at):  # a wrong value is said now, not by every run
        for name in names:
            spec = changed(one, experiment.cluster, experiment.settings, name)[2]
            if name != ACTUAL:
                create(spec)
    check_writable(report, json_file, jobs_csv)
    from argosy.sim.warm import warm_up

    warm_up(say)
    chosen = [settings.seed + i for i in range(seeds)]
    if seeds > 1 and not experiment.chance(names):
        say(f"nothing is random in these runs, so every seed gives the same result; running only seed {chosen[0]}")
        chosen = chosen[:1]
    todo = tasks(names, chosen, grid)
    cells = KeptCells.beside((report or json_file) if grid else None, experiment)
    known = {task: found for task in todo if task.at and (found := cells.find(task)) is not None}
    if known:
        say(f"{len(known)} runs of the sweep are known from {cells.path}; delete it to run them again")
    with progress_bar("runs", len(todo), progress) as bar:
        ended = list(known)

        def done(outcome: Outcome) -> None:
            ended.append(outcome.task)
            bar(len(ended))
            if outcome.task.at and outcome.scores is not None:
                cells.keep(outcome.task, outcome.scores)

        made = iter(run_all(experiment, [task for task in todo if task not in known], workers, done, ray))
        outcomes = [Outcome(task, scores=known[task]) if task in known else next(made) for task in todo]
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed and len(failed) == len(outcomes) and isinstance(failed[0].error, InputError):
        raise failed[0].error  # if all runs fail with the same error, it is not due to a policy
    for outcome in failed:
        say(f"error: {outcome.task}: {outcome.error}")
        if outcome.details and os.environ.get("ARGOSY_DEBUG"):
            say(outcome.details)
    for note in dict.fromkeys(note for o in outcomes if o.result is not None for note in o.result.notes):
        say(f"warning: {note}")
    if any(outcome.result is not None for outcome in outcomes):
        present(outcomes, baseline, span, output, report, json_file, jobs_csv)
    if failed:
        say(f"{len(failed)} of {len(outcomes)} runs failed")
        raise typer.Exit(1)


def own_experiment(
    cluster: str | None,
    trace: Path | None,
    like: str | None,
    jobs: int,
    days: float | None,
    load: float | None,
    settings: Settings,
    window: tuple[float, float] | None,
) -> Experiment:
    """Return the jobs, the cluster and the settings that the options name."""
    from argosy.cluster.cluster import Cluster
    from argosy.sim.compare import Experiment

    if cluster is None:
        hint = "name a file or a preset (--cluster small), or a whole scenario (--scenario philly-rigid)"
        raise InputError("no cluster is named", hint=hint)
    machines = Cluster.read(cluster)
    return Experiment(read_workload(trace, like, jobs, days, load, machines), machines, settings, window)


def from_scenario(
    name: str,
    policies: list[str],
    baseline: str | None,
    given: dict[str, Any],
    settings: Settings,
    window: tuple[float, float] | None,
) -> tuple[Experiment, list[str], str | None]:
    """Return the experiment of a scenario, which fixes all but seeds and window; the caller may set those."""
    from argosy.policies.base import create
    from argosy.scenario import read_scenario
    from argosy.sim.compare import Experiment
    from argosy.sim.recorded import ACTUAL

    hint = "leave it out, or give jobs, cluster and settings without --scenario"
    changed = next((option for option, value in given.items() if value is not None), None)
    for field in fields(Settings):
        if changed is None and field.name != "seed" and getattr(settings, field.name) != field.default:
            changed = f"--{field.name.replace('_', '-')}"
    if changed is not None:
        raise InputError(f"the scenario {name} already fixes what {changed} sets", hint=hint)
    found = read_scenario(name)
    if ACTUAL in policies:
        raise InputError("a scenario has no past", hint=f"leave out {ACTUAL}, or give a trace instead of --scenario")
    specs = [found.spec(policy) for policy in policies]
    for spec in specs:
        create(spec)
    experiment = Experiment(found, found.cluster, found.settings.with_seed(settings.seed), window)
    return experiment, specs, None if baseline is None else found.spec(baseline)


def present(
    outcomes: list[Outcome],
    baseline: str | None,
    window: tuple[float, float] | None,
    output: Output,
    report: Path | None,
    json_file: Path | None,
    jobs_csv: Path | None = None,
) -> None:
    """Print the comparison and write its files."""
    from argosy.report.comparison import Comparison, SweepPoint
    from argosy.report.tables import document, to_json

    results = tuple(o.result for o in outcomes if o.result is not None)
    sweep = tuple(
        SweepPoint(o.task.at, o.task.policy, o.task.seed, o.scores)
        for o in outcomes
        if o.task.at and o.scores is not None
    )
    ran = {result.policy for result in results}
    found = Comparison(
        results,
        command=shlex.join(["argosy", *sys.argv[1:]]),
        baseline=baseline if baseline in ran else "",
        window=window,
        sweep=sweep,
    )
    if output is Output.TABLE:
        show(found)
    else:
        emit(document(found), output)
    if json_file is not None:
        to_json(found, json_file)
        say(f"figures: {json_file}")
    if jobs_csv is not None:
        from argosy.report.jobs_csv import write_jobs

        write_jobs(found, jobs_csv)
        say(f"jobs: {jobs_csv}")
    if report is not None:
        from argosy.report.html import write_report

        write_report(found, report)
        say(f"report: {report}")


def show(comparison: Comparison) -> None:
    """Print the tables for the terminal."""
    from rich.console import Console

    from argosy.report.advice import advice, advice_lines
    from argosy.report.reproduction import reproduction_lines
    from argosy.report.tables import fitting_table, sweep_tables

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    for line in advice_lines(advice(comparison)):
        console.print(line, soft_wrap=True, markup=False)
    console.print()
    console.print(fitting_table(comparison, console.width))
    for table in sweep_tables(comparison) if comparison.sweep else ():
        console.print(table)
    for line in reproduction_lines(comparison):
        console.print(line, soft_wrap=True)


def parse_policies(text: str) -> list[str]:
    """Parse `fifo,las:quantum_s=60` into a list without repeats; `all` means every registered policy."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if "all" in names:
        names = [name for name in names if name != "all"]
        names += [name for name in every_policy() if name not in names]
    if not names:
        raise InputError(f"no policy in {text!r}", hint="for example --policies fifo,srtf,las")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"policy {twice!r} is named twice", hint="name it once, or with other parameters")
    return names


def every_policy() -> list[str]:
    """Return the registered policies, with fifo first, because the first is the baseline."""
    from argosy.policies.base import POLICIES

    return sorted(POLICIES, key=lambda name: (name != "fifo", name))


def parse_sweep(texts: list[str] | None) -> dict[str, list[Value]]:
    """Parse `load=0.6..1.4`, `nodes=4..16:4` or `overheads=none,realistic` into what is varied, and its values."""
    from argosy.sim.variation import LOAD, parse_range

    found: dict[str, list[Value]] = {}
    hint = "write NAME=A..B, NAME=A..B:STEPS or NAME=A,B,C, such as load=0.6..1.4"
    for text in texts or []:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name or name in found:
            raise InputError(f"cannot sweep {text!r}", hint=hint)
        try:
            found[name] = parse_range(values, whole=is_whole(name))
        except InputError as bad:
            raise InputError(f"cannot sweep {text!r}: {bad.what}", hint=hint) from None
        if name == LOAD and not all(isinstance(value, float) and value > 0 for value in found[name]):
            raise InputError(f"cannot sweep {text!r}: a load must be a number above 0", hint=hint)
    if len(found) > 2:
        raise InputError(f"{len(found)} things are varied at once", hint="vary one, or two for a heat map")
    return found


def is_whole(name: str) -> bool:
    """Return whether steps of what is varied are distances, as for nodes and GPUs, and not a number of steps."""
    from argosy.sim.variation import LOAD, SETTINGS

    return name != LOAD and "." not in name and name not in SETTINGS
