"""The command `argosy`. Commands import what is heavy when they run, so that asking for help is instant."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from argosy import __version__
from argosy.cli.compare import compare
from argosy.cli.demo import demo
from argosy.cli.doctor import doctor
from argosy.cli.generate import generate
from argosy.cli.grow import app as grow
from argosy.cli.history import history
from argosy.cli.import_ import import_trace
from argosy.cli.jobs import cancel, explain, status
from argosy.cli.league import league
from argosy.cli.logs import logs
from argosy.cli.nodes import app as nodes
from argosy.cli.policies import policies
from argosy.cli.queue import queue
from argosy.cli.serve import serve
from argosy.cli.simulate import simulate
from argosy.cli.submit import submit
from argosy.cli.tokens import app as token
from argosy.cli.tokens import backup
from argosy.cli.train import train
from argosy.cli.wait import wait
from argosy.cli.zoo import zoo
from argosy.errors import ArgosyError


class PlainHelp(TyperGroup):
    """The list of commands without frames: loading what draws them would take longer than all the rest."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=PlainHelp,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(simulate)
app.command()(compare)
app.command()(league)
app.command()(train)
app.command()(zoo)
app.command("import")(import_trace)
app.command()(generate)
app.command()(demo)
app.command()(serve)
app.command()(submit)
app.command()(queue)
app.command()(status)
app.command()(logs)
app.command()(explain)
app.command()(cancel)
app.command()(wait)
app.command()(history)
app.command()(backup)
app.command()(policies)
app.command()(doctor)
app.add_typer(nodes, name="nodes")
app.add_typer(token, name="token")
app.add_typer(grow, name="grow")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"argosy {__version__}")
        raise typer.Exit


@app.callback()
def argosy(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Schedule deep-learning jobs on shared GPU clusters: simulate, compare, explain.

    \b
    First steps:
      argosy compare --like philly --jobs 500 --load 1 --cluster small --policies fifo,srtf,las
    """


def main() -> None:
    """Run the command line: exit code 0 ok, 1 failed, 2 wrong input, 130 interrupted."""
    debugging = bool(os.environ.get("ARGOSY_DEBUG"))
    try:
        app(standalone_mode=True)
    except ArgosyError as problem:
        if debugging:
            raise
        typer.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
    except SystemExit as end:
        if end.code == 130:
            typer.echo("interrupted", err=True)
        raise


if __name__ == "__main__":
    main()
