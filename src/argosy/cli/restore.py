"""`argosy restore` replaces the daemon's database by a copy. For operators."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from argosy.cli._live import DAEMON, moment, needs_live
from argosy.cli._shared import say
from argosy.errors import InputError

if TYPE_CHECKING:
    from argosy.live.store.restore import Restore

SHOWN = 8  # numbers or ranges of numbers


def restore(
    file: Annotated[Path, typer.Argument(help="a copy that argosy backup has made")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    home: Annotated[
        Path | None,
        typer.Option("--home", help="its folder; default: $ARGOSY_HOME or ~/.argosy", rich_help_panel=DAEMON),
    ] = None,
) -> None:
    """Replace the daemon's database by a copy. For operators; the daemon must have ended.

    \b
    argosy backup argosy-monday.db       # while the daemon runs
    argosy restore argosy-monday.db      # after it has ended; then: argosy serve

    The copy is checked, and what will be lost is printed before anything is changed. The present database is moved
    into a folder replaced-DATE of the home; you can restore it in the same way.

    Never copy a file over argosy.db by hand: the files next to it would be mixed into the copy.

    \b
    Jobs that the copy does not know are stopped; their numbers stay unused.
    Jobs that have ended since then run again, from the copy's checkpoints.
    Tokens that were revoked since then are valid again: argosy token list.
    """
    needs_live("pydantic")
    from argosy.live.home import Home
    from argosy.live.store.restore import prepared

    with prepared(Home(home), file) as found:
        _tell(found, file)
        if not yes:
            _ask(found.home.folder)
        aside = found.carry_out()
    if aside is not None:
        say(f"the previous database is now in {aside}")
    say(f"{found.home.database} is now {file}; start the daemon: argosy serve")


def _tell(found: Restore, file: Path) -> None:
    """Print what the copy contains, and what will be lost."""
    of = f", up to {moment(found.found.written_at)}" if found.found.written_at is not None else ""
    say(f"{file}: intact, {_some(len(found.found.jobs), 'job')}{of}")
    loss = found.loss
    if loss is None:
        say("the present database cannot be read, so it is not known what will be lost")
        return
    if not found.home.database.exists():
        say("there is no database now")
        return
    if loss.jobs:
        say(f"will be forgotten: {_some(len(loss.jobs), 'newer job')} ({ranges(loss.jobs)})")
    if loss.rerun:
        say(f"will run again: {_some(len(loss.rerun), 'job')} ended since then ({ranges(loss.rerun)})")
    say(f"will be lost: {_some(loss.events, 'event')} since then" if loss.events else "nothing newer will be lost")


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _ask(folder: Path) -> None:
    if not sys.stdin.isatty():
        what = "this is not a terminal, so you cannot be asked; nothing was changed"
        raise InputError(what, hint="add --yes if you are sure")
    if not typer.confirm(f"replace the database of {folder}?", err=True):
        raise InputError("nothing was changed")


def ranges(numbers: Sequence[int]) -> str:
    """Show sorted numbers as 2, 4–7, 9; only the first few of many."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    shown = ["–".join(map(str, ends)) for ends in found[:SHOWN]]
    return ", ".join([*shown, "…"] if len(found) > SHOWN else shown)
