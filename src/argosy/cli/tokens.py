"""The commands `argosy token` and `argosy backup`, for operators."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, show, table_of
from argosy.cli._shared import Output, OutputOption, check_writable, emit, say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.live.client import Client

app = typer.Typer(no_args_is_help=True, help="Who may use the daemon (operators).", rich_markup_mode=None)


@app.command()
def add(
    user: Annotated[str, typer.Argument(help="letters, digits, dots and dashes")],
    *,
    role: Annotated[
        str, typer.Option(help="user: own jobs; operator: all, nodes and tokens; agent: of the node USER")
    ] = "user",
    expires: Annotated[
        str, typer.Option(help="the token expires after this time, such as 90d or 12h; or: never")
    ] = "90d",
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Create a token; it is printed only once and stored nowhere.

    \b
    argosy token add ann
    argosy token add olga --role operator --expires 30d
    argosy token add backup-script --role operator --expires never
    argosy token add gpu7 --role agent --expires never > gpu7.token      # for argosy agent on the node gpu7

    Its owner sets ARGOSY_TOKEN to it, and ARGOSY_API to the daemon's address.
    """
    with connect(api, home) as daemon:
        made = daemon.post("/v1/tokens", {"owner": user, "role": role, "expires_s": _seconds(expires)})
        authority = _authority(daemon, home) if role == "agent" else ""
    _show_new(made, output, authority)


@app.command()
def rotate(
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="its number, see argosy token list", min=1)],
    *,
    keep_old: Annotated[
        str, typer.Option("--keep-old", help="how long the old secret stays valid, such as 1h; 0: not at all")
    ] = "1h",
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Replace a token by a new one of the same user, role and lifetime; the new secret is printed only once.

    \b
    argosy token rotate 3                    # both secrets work for an hour, to pass the new one on
    argosy token rotate 3 --keep-old 0       # the old secret has leaked: it ends now
    """
    with connect(api, home) as daemon:
        made = daemon.post(f"/v1/tokens/{token}/rotate", {"keep_old_s": _seconds(keep_old) or 0.0})
        authority = _authority(daemon, home) if made["role"] == "agent" else ""
    _show_new(made, output, authority)
    say(f"token {token} ends {'now' if keep_old == '0' else f'in {keep_old}'}")


def _seconds(text: str) -> float | None:
    if text == "never":
        return None
    from argosy.config import parse_duration

    return parse_duration(text)


def _authority(daemon: Client, home: Path | None) -> str:
    """Return the certificate of the authority that an agent has to trust; "" if the daemon's is publicly known."""
    from argosy.live.home import Home

    given = None if daemon.address.socket else os.environ.get("ARGOSY_CA")
    named = Path(given) if given else daemon.address.ca or Home(home).folder / "tls" / "ca.pem"
    try:
        return named.read_text("utf-8")
    except OSError:
        return ""


def _show_new(made: dict[str, Any], output: Output, authority: str = "") -> None:
    if output is not Output.TABLE:
        emit({**made, **({"authority": authority} if authority else {})}, output)
        return
    typer.echo(made["secret"])
    if authority:
        typer.echo(authority.strip())
    ends = f"expires {moment(made['expires_at'])}" if made["expires_at"] else "never expires"
    say(f"token {made['id']} of {made['owner']} ({made['role']}, {ends}); pass it on in private")


@app.command("list")
def list_(*, output: OutputOption = Output.TABLE, api: ApiOption = None, home: HomeOption = None) -> None:
    """List the tokens: whose they are, when they expire, and on which day each was last used.

    \b
    argosy token list
    """
    with connect(api, home) as daemon:
        found = daemon.get("/v1/tokens")["tokens"]
    if output is not Output.TABLE:
        emit(found, output)
        return
    rows = [
        (
            token["id"],
            token["owner"],
            token["role"],
            moment(token["created_at"]),
            _expiry(token["expires_at"]),
            _day(token["used_at"]),
        )
        for token in found
    ]
    show(table_of(("token", "user", "role", "made", "expires", "last used"), rows, right=("token",)))


def _day(unix_s: float | None) -> str:
    """Format a day, which the daemon counts in UTC."""
    return "never" if unix_s is None else time.strftime("%Y-%m-%d", time.gmtime(unix_s))


def _expiry(unix_s: float | None) -> str:
    if unix_s is None:
        return "never"
    return moment(unix_s) if unix_s > time.time() else f"{moment(unix_s)} (expired)"


@app.command()
def revoke(
    tokens: Annotated[list[int], typer.Argument(metavar="TOKEN…", help="numbers, see argosy token list", min=1)],
    *,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Revoke tokens, which are not accepted any more from now on.

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

    To go back to it: argosy restore argosy-monday.db
    """
    from argosy.atomic import writing

    if not file.parent.is_dir():
        hint = f"make it first (mkdir -p {shlex.quote(str(file.parent))}), or check the path"
        raise InputError(f"there is no folder {str(file.parent)!r}", where=str(file), hint=hint)
    check_writable(file)
    with (
        connect(api, home) as daemon,
        writing(file) as temporary,
        daemon.stream("/v1/backup", method="POST") as (_, content),
        temporary.open("wb") as copy,
    ):
        copy.writelines(content)
    file.chmod(0o600)  # it contains what each user ran
    say(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
