"""`argosy grow branches` and `argosy grow teach`: how the growth agent that ships is made."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from argosy.cli._shared import MOST_SEEDS, check_writable, say, within


def branches(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder of branch tables")] = Path("branches"),
    runs: Annotated[int, typer.Option(help="runs of each network, from different seeds")] = 3,
    only: Annotated[
        str | None, typer.Option(help="such as mlp-digits-sgd,residual-cifar10-adam; default: the whole family")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="of CPU time; then no further run begins")] = None,
    finish: Annotated[bool, typer.Option("--finish", help="train nothing; only write tables of finished runs")] = False,
) -> None:
    """Train a family of networks and, at moments of training, everything that could be done.

    \b
    argosy grow branches --only mlp-digits-sgd,residual-digits-sgd --runs 1 -o branches/

    All of it takes a night. Runs that are finished are kept, so the same command continues where it stopped. Picture
    collections must have been fetched: argosy grow data.
    """
    within("--runs", 1, MOST_SEEDS, runs)
    from argosy.grow.study.make_branches import make_tables

    wanted = [key.strip() for key in only.split(",") if key.strip()] if only is not None else None
    for path in make_tables(output, runs, wanted, minutes, _command(), finish=finish, say=say):
        say(f"wrote {path}")


def teach(
    *,
    tables: Annotated[
        Path | None, typer.Option("--tables", "-t", help="a folder of branch tables; default: those that ship")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="the agent's file")] = Path("agent.safetensors"),
) -> None:
    """Teach the agent that forecasts what growth gains, and judge it on families and data left out in turn.

    \b
    argosy grow teach -t branches/ -o agent.safetensors

    Takes about a minute. Use it with Trainer(agent="agent.safetensors").
    """
    check_writable(output)
    from argosy.grow.study.teach import teach_agent
    from argosy.grow.tables.branch_table import SHIPPED

    teach_agent(output, tables if tables is not None else SHIPPED, _command(), say)
    say(f"wrote {output}")


def _command() -> str:
    return shlex.join(["argosy", *sys.argv[1:]])
