"""Define the command `argosy`; commands import heavy libraries when they run, so that help is shown at once."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from argosy import __version__
from argosy.errors import ArgosyError, PluginWarning, caused_by_ctrl_c

HOMES = {  # command → (module in argosy.cli, name there), in the order in which help lists them
    "simulate": "simulate.simulate",
    "compare": "compare.compare",
    "advise": "advise.advise",
    "plan-capacity": "plan_capacity.plan_capacity",
    "replay": "replay.replay",
    "league": "league.league",
    "train": "train.train",
    "zoo": "zoo.zoo",
    "import": "import_.import_trace",
    "generate": "generate.generate",
    "demo": "demo.demo",
    "serve": "serve.serve",
    "dashboard": "dashboard.dashboard",
    "agent": "agent.agent",
    "submit": "submit.submit",
    "queue": "queue.queue",
    "status": "jobs.status",
    "logs": "logs.logs",
    "explain": "jobs.explain",
    "eta": "eta.eta",
    "cancel": "jobs.cancel",
    "hold": "control.hold",
    "release": "control.release",
    "requeue": "control.requeue",
    "resubmit": "control.resubmit",
    "update": "control.update",
    "wait": "wait.wait",
    "top": "top.top",
    "exec": "exec_.exec_",
    "attach": "exec_.attach",
    "history": "history.history",
    "shadow": "shadow.shadow",
    "promote": "shadow.promote",
    "fidelity": "fidelity.fidelity",
    "backup": "tokens.backup",
    "restore": "restore.restore",
    "audit": "audit.audit",
    "notices": "notices.notices",
    "policies": "policies.policies",
    "doctor": "doctor.doctor",
    "nodes": "nodes.app",
    "token": "tokens.app",
    "limits": "limits.app",
    "grow": "grow.app",
    "completion": "completion.completion",
}


class LazyGroup(TyperGroup):
    """The commands by name; each is imported when it is used, because most runs need only one of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: dict[str, Any] = dict.fromkeys(HOMES)  # None: not imported yet; the names are for suggestions

    def list_commands(self, ctx: Any) -> list[str]:
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in HOMES and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the names of commands, without importing them for their help."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        own = find_spec("typer._click") is not None  # newer versions of Typer have their own copy of Click
        items = import_module(f"{'typer._click' if own else 'click'}.shell_completion")
        return [items.CompletionItem(name) for name in HOMES if name.startswith(incomplete)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.rich_markup_mode = None  # loading Rich to draw frames would take longer than everything else
        super().format_help(ctx, formatter)


def _load(name: str) -> Any:
    module, _, attribute = HOMES[name].partition(".")
    found = getattr(import_module(f"argosy.cli.{module}"), attribute)
    outer = typer.Typer()
    if isinstance(found, typer.Typer):
        outer.add_typer(found, name=name)
    else:
        outer.command(name)(found)
    return typer.main.get_group(outer).commands[name]


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    """Format our own warnings as a sentence; other warnings are shown with their source line, as usual."""
    if issubclass(category, PluginWarning):
        return f"warning: {message}\n"
    return _usual_format(message, category, filename, lineno, line)


_usual_format = warnings.formatwarning


def main() -> None:
    """Run the command line. Exit codes: 0 ok, 1 failed, 2 wrong input, 130 interrupted, 141 the output was closed."""
    debugging = bool(os.environ.get("ARGOSY_DEBUG"))
    if "_ARGOSY_COMPLETE" in os.environ:  # the shell asks for completions
        from typer._completion_classes import completion_init

        completion_init()
    warnings.formatwarning = _plain_warning
    try:
        try:
            app(standalone_mode=True, complete_var="_ARGOSY_COMPLETE")
        except Exception as problem:
            if caused_by_ctrl_c(problem):
                raise KeyboardInterrupt from problem
            raise
        finally:
            sys.stdout.flush()  # here a reader that has gone is not an error
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
        elif isinstance(end.__context__, BrokenPipeError):  # Typer treats it as a failure
            _end_without_reader()
        raise


def _end_without_reader() -> None:
    """End silently, as other programs do, when the reader of our output (such as `head`) has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    sys.exit(128 + signal.SIGPIPE)


if __name__ == "__main__":
    main()
