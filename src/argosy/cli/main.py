"""The command `argosy`. Commands import what is heavy when they run, so that asking for help is instant."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from argosy import __version__
from argosy.cli.audit import audit
from argosy.cli.compare import compare
from argosy.cli.demo import demo
from argosy.cli.doctor import doctor
from argosy.cli.generate import generate
from argosy.cli.grow import app as grow
from argosy.cli.history import history
from argosy.cli.import_ import import_trace
from argosy.cli.jobs import cancel, explain, status
from argosy.cli.league import league
from argosy.cli.limits import app as limits
from argosy.cli.logs import logs
from argosy.cli.nodes import app as nodes
from argosy.cli.policies import policies
from argosy.cli.queue import queue
from argosy.cli.restore import restore
from argosy.cli.serve import serve
from argosy.cli.simulate import simulate
from argosy.cli.submit import submit
from argosy.cli.tokens import app as token
from argosy.cli.tokens import backup
from argosy.cli.train import train
from argosy.cli.wait import wait
from argosy.cli.zoo import zoo
from argosy.errors import ArgosyError, PluginWarning


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
app.command()(restore)
app.command()(audit)
app.command()(policies)
app.command()(doctor)
app.add_typer(nodes, name="nodes")
app.add_typer(token, name="token")
app.add_typer(limits, name="limits")
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


def _plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours as a sentence; whatever else warns is shown with its place, as usual."""
    if issubclass(category, PluginWarning):
        return f"warning: {message}\n"
    return _usual_format(message, category, filename, lineno, line)


_usual_format = warnings.formatwarning


def main() -> None:
    """Run the command line: exit code 0 ok, 1 failed, 2 wrong input, 130 interrupted, 141 nobody reads on."""
    debugging = bool(os.environ.get("ARGOSY_DEBUG"))
    warnings.formatwarning = _plain_warning
    try:
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()  # here, where a reader who has gone is no error
    except BrokenPipeError:
        _end_without_reader()
    except ArgosyError as problem:
        if debugging:
            raise
        typer.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
    except MemoryError as problem:
        if debugging:
            raise
        text = f"error: there is not enough memory: {problem}\n  → ask for less: fewer jobs, seeds, workers"
        typer.echo(text, err=True)
        sys.exit(1)
    except SystemExit as end:
        if end.code == 130:
            typer.echo("interrupted", err=True)
        elif isinstance(end.__context__, BrokenPipeError):  # which Typer takes for a failure
            _end_without_reader()
        raise


def _end_without_reader() -> None:
    """Whoever read our output wants no more of it, such as `head`: end as other programs do, without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    sys.exit(128 + signal.SIGPIPE)


if __name__ == "__main__":
    main()
