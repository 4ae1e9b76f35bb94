"""`argosy limits` shows and sets what users may queue, run and hold at once."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, show, table_of
from argosy.cli._shared import Output, OutputOption, emit, say
from argosy.errors import InputError

app = typer.Typer(invoke_without_command=True, help="What users may queue and hold at once.", rich_markup_mode=None)
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="a user's name, or '*' for all other users")]


@app.callback()
def limits(
    context: typer.Context, *, output: OutputOption = Output.TABLE, api: ApiOption = None, home: HomeOption = None
) -> None:
    """Show limits, and how much of them is used now. Users see their own, operators those of all users.

    \b
    argosy limits
    argosy limits set ann --gpus 8 --queued 100 --priority 60 --queues research
    argosy limits set '*' --gpus 4              # all users without limits of their own
    argosy limits set ann --gpus none           # no limit, whatever the limit of the others
    argosy limits clear ann                     # back to the limits of the cluster file

    The row * is for all users without a row. What is set here overrides `limits:` of the cluster file.
    """
    if context.invoked_subcommand is not None:
        return
    with connect(api, home) as daemon:
        found = daemon.get("/v1/limits")["limits"]
    if output is not Output.TABLE:
        emit(found, output)
        return
    columns = ("user", "queued", "running", "GPUs", "of a type", "priority", "queues", "array", "set by")
    rows = [
        (
            one["owner"],
            _of(one, "queued"),
            _of(one, "running"),
            _of(one, "gpus"),
            ", ".join(f"{one['types_now'].get(name, 0.0):g} of {most:g} {name}" for name, most in one["types"].items()),
            _number(one["priority"]),
            "any" if one["queues"] is None else ", ".join(one["queues"]) or "none",
            _number(one["array"]),
            _author(one),
        )
        for one in found
    ]
    show(table_of(columns, rows, right=("queued", "running", "GPUs", "priority", "array")))


@app.command("set")
def set_(
    user: UserArgument,
    *,
    queued: Annotated[str | None, typer.Option(help="jobs that may wait; none: no limit")] = None,
    running: Annotated[str | None, typer.Option(help="jobs that may run at once")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs that may be held at once")] = None,
    priority: Annotated[str | None, typer.Option(help="the highest priority that may be given, 0..100")] = None,
    queues: Annotated[str | None, typer.Option(help="queues that may be used, with commas")] = None,
    array: Annotated[str | None, typer.Option(help="copies in one array")] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE=GPUS", help="GPUs of a type that may be held at once; repeatable"),
    ] = None,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Set limits of a user; those that you do not name stay as they are. For operators.

    \b
    argosy limits set ann --gpus 8 --queued 100
    argosy limits set ann --queues research,default --priority 60
    argosy limits set ann --gpus none
    argosy limits set '*' --type a100=4 --type h100=0

    Running jobs continue. No job of the user starts or grows beyond the limit; `argosy explain` says so.
    """
    numbers = {"queued": queued, "running": running, "gpus": gpus, "priority": priority, "array": array}
    given: dict[str, Any] = {name: _value(name, text) for name, text in numbers.items() if text is not None}
    if type_:
        given["types"] = _types(type_)
    if queues is not None:
        given["queues"] = None if queues == "none" else [name.strip() for name in queues.split(",") if name.strip()]
    with connect(api, home) as daemon:
        daemon.patch(f"/v1/limits/{quote(user, safe='*')}", given)
    say(f"set for {'everybody' if user == '*' else user}; see them: argosy limits")


@app.command()
def clear(user: UserArgument, *, api: ApiOption = None, home: HomeOption = None) -> None:
    """Remove the limits that were set for a user, so that those of the cluster file apply. For operators.

    \b
    argosy limits clear ann
    """
    with connect(api, home) as daemon:
        daemon.delete(f"/v1/limits/{quote(user, safe='*')}")
    say(f"cleared for {'everybody' if user == '*' else user}")


def _value(name: str, text: str) -> float | None:
    if text == "none":
        return None
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"--{name} {text!r} is not a number", hint="write a number, or none for no limit") from None
    return int(number) if number.is_integer() else number


def _types(given: list[str]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for text in given:
        name, equals, most = text.partition("=")
        if not name or not equals:
            raise InputError(f"--type {text!r} is not a limit of a GPU type", hint="write TYPE=GPUS, such as a100=4")
        found[name] = _value("type", most)
    return found


def _of(one: dict[str, Any], name: str) -> str:
    """Format how much of a limit is used."""
    return f"{one[f'{name}_now']:g} of {_number(one[name])}"


def _author(one: dict[str, Any]) -> str:
    if one["set_by"]:
        return f"{one['set_by']}, {moment(one['set_at'])[:10]}"
    return "cluster file" if one["in_file"] else ""


def _number(value: float | None) -> str:
    return "any" if value is None else f"{value:g}"
