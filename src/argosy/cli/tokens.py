"""`argosy token` and `argosy backup`: for operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, show, table_of
from argosy.cli._shared import Output, OutputOption, check_writable, emit, say

app = typer.Typer(no_args_is_help=True, help="Who may use the daemon (operators).", rich_markup_mode=None)


@app.command()
def add(
    user: Annotated[str, typer.Argument(help="letters, digits, dots and dashes")],
    *,
    role: Annotated[str, typer.Option(help="user: own jobs; operator: all, nodes and tokens")] = "user",
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Make a token; it is printed this once and kept nowhere.

    \b
    argosy token add ann
    argosy token add olga --role operator

    Its owner sets ARGOSY_TOKEN to it, and ARGOSY_API to the daemon's address.
    """
    with connect(api, home) as daemon:
        made = daemon.post("/v1/tokens", {"owner": user, "role": role})
    if output is not Output.TABLE:
        emit(made, output)
        return
    typer.echo(made["secret"])
    say(f"token {made['id']} of {made['owner']} ({made['role']}); pass it on in private")


@app.command("list")
def list_(*, output: OutputOption = Output.TABLE, api: ApiOption = None, home: HomeOption = None) -> None:
    """Show whose tokens there are.

    \b
    argosy token list
    """
    with connect(api, home) as daemon:
        found = daemon.get("/v1/tokens")["tokens"]
    if output is not Output.TABLE:
        emit(found, output)
        return
    rows = [(token["id"], token["owner"], token["role"], moment(token["created_at"])) for token in found]
    show(table_of(("token", "user", "role", "made"), rows, right=("token",)))


@app.command()
def revoke(
    tokens: Annotated[list[int], typer.Argument(metavar="TOKEN…", help="numbers, see argosy token list", min=1)],
    *,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """End tokens: from now on they open nothing.

    \b
    argosy token revoke 3
    """
    with connect(api, home) as daemon:
        for token in tokens:
            daemon.delete(f"/v1/tokens/{token}")
            say(f"token {token} is revoked")


def backup(
    file: Annotated[Path, typer.Argument(help="where to write it")], *, api: ApiOption = None, home: HomeOption = None
) -> None:
    """Copy the daemon's database into a file, while it runs. For operators.

    \b
    argosy backup argosy-monday.db

    To go back to it, stop the daemon and put the file in the place of argosy.db in its home.
    """
    from argosy.atomic import writing

    check_writable(file)
    with (
        connect(api, home) as daemon,
        writing(file) as temporary,
        daemon.stream("/v1/backup", method="POST") as (_, content),
        temporary.open("wb") as copy,
    ):
        copy.writelines(content)
    file.chmod(0o600)  # it tells who ran what
    say(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
