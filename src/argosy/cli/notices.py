"""`argosy notices` shows what was sent to users about their jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, show, table_of
from argosy.cli._shared import Output, OutputOption, at_least, emit, say


def notices(
    *,
    secret: Annotated[
        bool, typer.Option("--secret", help="print the secret that signs your notices to web addresses")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="show at most this many")] = 50,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show mails and web requests about your jobs (`notify:` in a job file): sent, waiting or failed, and why.

    \b
    argosy notices
    argosy notices --secret          # to check the header Argosy-Signature; docs/notices.md says how
    """
    at_least("--limit", 1, limit)
    with connect(api, home) as daemon:
        if secret:
            answer = daemon.get("/v1/notices/secret")
            typer.echo(answer["secret"]) if output is Output.TABLE else emit(answer, output)
            return
        found = daemon.get("/v1/notices", limit=limit)["notices"]
    if output is not Output.TABLE:
        emit(found, output)
        return
    if not found:
        say("no notices yet; a job asks for them with notify: in its job file")
        return
    columns = ("when", "job", "about", "to", "state", "tries", "")
    rows = [
        (moment(one["made_at"]), one["job"], one["event"], one["target"], one["state"], one["tries"], one["error"])
        for one in found
    ]
    show(table_of(columns, rows, right=("job", "tries")))
