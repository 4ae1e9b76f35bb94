"""`argosy audit` shows which user did what, and when."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, show, table_of
from argosy.cli._shared import Output, at_least, emit
from argosy.cli.queue import PAGE

COLUMNS = ("id", "at", "who", "role", "address", "token", "action", "object", "result", "detail")


class AuditOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def audit(
    *,
    who: Annotated[str | None, typer.Option(help="only what this user did")] = None,
    job: Annotated[int | None, typer.Option(help="only what concerns this job", min=1)] = None,
    since: Annotated[
        str | None,
        typer.Option(help="only from the last span of time, such as 2h or 7d, or since a day, such as 2026-12-01"),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            help="submit, cancel, hold, release, requeue, update, priority, drain, undrain, token-add, token-rotate, "
            "token-revoke, limits-set, limits-clear, backup, or authenticate (wrong tokens)"
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="show at most this many")] = 100,
    output: Annotated[
        AuditOutput, typer.Option("--output", "-o", help="how the answer is printed")
    ] = AuditOutput.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show who did what to which job, node, token or limit, from where, newest first; refusals too. For operators.

    \b
    argosy audit
    argosy audit --job 7                            # who submitted it, who cancelled it
    argosy audit --who ann --since 1d
    argosy audit --action authenticate              # wrong and expired tokens, and from where they came
    argosy audit -n 100000 --since 2026-12-01 -o csv > december.csv

    The daemon only ever adds to this log. It is part of argosy.db, and so of every backup.
    """
    at_least("--limit", 1, limit)
    begin = None if since is None else _since(since)
    found: list[dict[str, Any]] = []
    before = None
    with connect(api, home) as daemon:
        while len(found) < limit:
            page = daemon.get(
                "/v1/audit",
                who=who,
                job=job,
                since=begin,
                action=action,
                limit=min(PAGE, limit - len(found)),
                before=before,
            )
            found += page["entries"]
            before = page["next"]
            if before is None:
                break
    if output is AuditOutput.JSON:
        emit(found, Output.JSON)
    elif output is AuditOutput.CSV:
        _csv(found)
    else:
        columns = ("when", "who", "from", "action", "what", "result", "")
        rows = [
            (
                moment(entry["at"]),
                entry["who"] or "?",
                entry["address"],
                entry["action"],
                entry["object"],
                entry["result"],
                entry["detail"],
            )
            for entry in found
        ]
        show(table_of(columns, rows))


def _since(text: str) -> float:
    from datetime import datetime

    from argosy.config import parse_duration

    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return max(0.0, time.time() - parse_duration(text))


def _csv(entries: list[dict[str, Any]]) -> None:
    import csv
    import sys

    from argosy.live.sanitize import cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in entries:
        writer.writerow([cell(v) if isinstance(v := entry[name], str) else v for name in COLUMNS])
