"""`argosy top` shows what running jobs use now."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, Patient, connect, show, span, table_of
from argosy.cli._shared import Output, OutputOption, emit
from argosy.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

COLUMNS = ("job", "name", "user", "GPUs", "GPU busy", "GPU GiB", "CPUs", "memory", "processes", "runs", "where")


def top(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="keep the table on the screen and up to date")] = False,
    sort: Annotated[str, typer.Option(help="by cpus, memory, gpus or job")] = "cpus",
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show what running jobs use now: CPUs, memory, processes and, on real GPUs, how busy these are.

    \b
    argosy top
    argosy top -w --sort memory
    argosy top -o json | jq '.jobs[] | select(.cpus < 0.1) | .id'     # jobs that do nothing

    Users see their own jobs, operators all. CPU use is measured over half a second or more. Of jobs on other machines
    only what they hold is known.
    """
    keys = {"cpus": "cpus", "memory": "memory_gib", "gpus": "gpus", "job": "id"}
    if sort not in keys:
        from argosy.errors import UnknownName

        raise UnknownName("column to sort by", sort, keys)
    if not watch:
        with connect(api, home) as daemon:
            found = daemon.get("/v1/top")
        if output is not Output.TABLE:
            emit(found, output)
            return
        show(*_parts(found, keys[sort]))
        return
    if output is not Output.TABLE or not sys.stdout.isatty():
        raise InputError("--watch needs a terminal and a table", hint="leave out -w, or -o and the pipe")
    from rich.console import Group
    from rich.live import Live

    with Patient(api, home) as patient, Live(auto_refresh=False, screen=True) as screen:
        while True:
            with patient.bearing() as daemon:
                drawn: Group = Group(*_parts(daemon.get("/v1/top"), keys[sort]), "\nCtrl-C to leave")
                screen.update(drawn, refresh=True)
            time.sleep(1)


def _parts(found: dict[str, Any], key: str) -> list[Any]:
    jobs = sorted(found["jobs"], key=lambda job: (-(job[key] or 0.0) if key != "id" else job["id"], job["id"]))
    if not jobs:
        return ["no job runs"]
    rows = [
        (
            job["id"],
            job["name"],
            job["owner"],
            f"{job['gpus']:g}",
            "" if job["gpu_busy"] is None else f"{job['gpu_busy']:.0%}",
            _figure(job["gpu_memory_gib"]),
            _figure(job["cpus"]),
            "" if job["memory_gib"] is None else f"{job['memory_gib']:.2f} GiB",
            job["processes"],
            span(job["run_s"]),
            " ".join(job["places"]),
        )
        for job in jobs
    ]
    cpus = sum(job["cpus"] or 0.0 for job in jobs)
    gpus = sum(job["gpus"] for job in jobs)
    right = ("job", "GPUs", "GPU busy", "GPU GiB", "CPUs", "memory", "processes", "runs")
    return [table_of(COLUMNS, rows, right=right), f"\n{len(jobs)} jobs hold {gpus:g} GPUs and use {cpus:.1f} CPUs"]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
