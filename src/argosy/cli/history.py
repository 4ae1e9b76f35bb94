"""`argosy history` shows jobs that have ended, for people, programs and the simulator."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, show, span, table_of
from argosy.cli._shared import Output, at_least, emit
from argosy.cli.queue import PAGE


class HistoryOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    OVERHEADS = "overheads"


def history(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", help="show at most this many")] = 100,
    user: Annotated[str | None, typer.Option(help="only jobs of this user (operators)")] = None,
    output: Annotated[
        HistoryOutput,
        typer.Option(
            "--output",
            "-o",
            help="csv: a trace of all of them, for argosy simulate; overheads: what was measured of"
            " starts, stops, moves and resizes, for its --overheads",
        ),
    ] = HistoryOutput.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show jobs that have ended, newest first: how long they took, waited and ran.

    \b
    argosy history
    argosy history -n 1000 -o json
    argosy history -o csv > week.csv && argosy history -o overheads > costs.csv
    argosy simulate -t week.csv -c cluster.yaml -p srtf --overheads costs.csv
    """
    at_least("--limit", 1, limit)
    with connect(api, home) as daemon:
        if output in (HistoryOutput.CSV, HistoryOutput.OVERHEADS):
            name = "history" if output is HistoryOutput.CSV else "overheads"
            typer.echo(daemon.get(f"/v1/{name}.csv"), nl=False)
            return
        jobs: list[dict[str, Any]] = []
        before = None
        while len(jobs) < limit:
            page = daemon.get("/v1/history", owner=user, limit=min(PAGE, limit - len(jobs)), before=before)
            jobs += page["jobs"]
            before = page["next"]
            if before is None:
                break
    if output is not HistoryOutput.TABLE:
        emit(jobs, Output(output.value))
        return
    figures = ("took", "waited", "ran", "GPU h", "runs", "preempted", "resized")
    columns = ("job", "name", "user", "state", "ended", *figures, "")
    rows = [
        (
            job["id"],
            job["name"],
            job["owner"],
            job["state"],
            moment(job["ended_at"]),
            span(job["jct_s"]),
            span(job["wait_s"]),
            span(job["run_s"]),
            f"{job['gpu_s'] / 3600:.2f}",
            job["runs"],
            job["preemptions"],
            job["resizes"],
            job["message"],
        )
        for job in jobs
    ]
    show(table_of(columns, rows, right=("job", *figures)))
