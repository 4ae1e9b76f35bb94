"""Shared parts of the commands that talk to a daemon: find it, print job output safely, wait while it restarts."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._shared import say
from argosy.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from argosy.live.client import Client

DAEMON = "Which daemon"
ApiOption = Annotated[
    str | None,
    typer.Option(
        "--api",
        help="address of the daemon; default: $ARGOSY_API, or the address in its folder",
        rich_help_panel=DAEMON,
    ),
]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="its folder; default: $ARGOSY_HOME or ~/.argosy", rich_help_panel=DAEMON),
]

PATIENCE_S = 60.0  # how long waiting commands retry when no daemon answers, since it may be restarting
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,30}m")


def connect(api: str | None, home: Path | None) -> Client:
    """Connect to the daemon that the options name, or else to that of the home."""
    needs_live("httpx")
    from argosy.live.client import Client

    return Client.find(api, home, warn=_warn_once)


@cache
def _warn_once(text: str) -> None:
    """Print a warning once, although a command may connect several times."""
    say(text)


def needs_live(*libraries: str) -> None:
    """Raise an InputError if libraries of live scheduling are missing; simulation does not need them."""
    from importlib.util import find_spec

    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        from argosy.errors import InputError

        raise InputError(f"not installed: {', '.join(missing)}", hint="pip install 'argosy[live]'")


class Patient:
    """A connection to a daemon that may be away for a while, as during a restart; it then connects again."""

    def __init__(self, api: str | None, home: Path | None) -> None:
        self._where = api, home
        self._client = connect(api, home)
        self._away_since: float | None = None

    def __enter__(self) -> Patient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    @contextmanager
    def bearing(self) -> Iterator[Client]:
        """Yield a client for a request that can be repeated; if no daemon answers, wait, and give up after a minute."""
        from argosy.live.client import NoDaemon

        try:
            yield self._client
            self._away_since = None
        except NoDaemon:
            if self._away_since is None:
                self._away_since = time.monotonic()
                say("the daemon does not answer; waiting for it …")
            elif time.monotonic() - self._away_since > PATIENCE_S:
                raise
            time.sleep(1)
            self._look_again()

    def _look_again(self) -> None:
        from argosy.live.client import NoDaemon

        try:
            fresh = connect(*self._where)
        except NoDaemon:
            return  # it has no address at the moment
        self._client.__exit__()
        self._client = fresh


def check_studies(folder: Path | None) -> None:
    """Raise an InputError if the folder of studies does not exist."""
    if folder is not None and not folder.is_dir():
        raise InputError(f"--studies {folder}: there is no such folder", hint="make it, or leave the option out")


def safe(value: object) -> str:
    """Return text without control characters: a job's text may contain commands for the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


def safe_log(text: str) -> str:
    """Return a log for a terminal: colours are kept, all other control characters are shown as text."""
    shown, end = [], 0
    for colour in _COLOUR.finditer(text):
        shown += [_lines_only(text[end : colour.start()]), colour.group()]
        end = colour.end()
    return "".join([*shown, _lines_only(text[end:])])


def _lines_only(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t\r" else ascii(c)[1:-1] for c in text)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> Table:
    """Return a plain table; its cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    aligned = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in aligned else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else safe(value)) for value in row))
    return table


def show(*parts: Any) -> None:
    """Print tables and lines to stdout."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def span(seconds: float | None) -> str:
    """Format a duration as 2d3h, 4h05m, 3m20s or 12s."""
    if seconds is None:
        return ""
    whole = max(0, round(seconds))
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def moment(unix_s: float | None) -> str:
    """Format a time in the local time zone."""
    if unix_s is None:
        return ""
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).strftime("%Y-%m-%d %H:%M:%S")
