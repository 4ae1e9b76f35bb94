"""`argosy queue` shows the jobs that run and wait, and why they wait."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli._job_numbers import ALL, ENDED, LIVE, WAITING, array_name, states_of
from argosy.cli._live import ApiOption, HomeOption, Patient, connect, safe, show, span, table_of
from argosy.cli._shared import Output, OutputOption, at_least, emit
from argosy.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

    from argosy.live.client import Client

PAGE = 1000  # rows of one request
_DIGITS = re.compile(r"\d+(\.\d+)?")


def queue(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="keep the table on the screen and up to date")] = False,
    all_: Annotated[bool, typer.Option("--all", "-a", help="also jobs that have ended")] = False,
    state: Annotated[str | None, typer.Option(help=f"only these, by commas: {', '.join(ALL)}")] = None,
    queue: Annotated[str | None, typer.Option(help="only jobs of this queue")] = None,
    name: Annotated[str | None, typer.Option(help="only jobs of this name")] = None,
    user: Annotated[str | None, typer.Option(help="only jobs of this user (operators)")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="show at most this many")] = 100,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show your jobs; operators see the jobs of all users.

    \b
    argosy queue
    argosy queue -w
    argosy queue -a --state failed -n 20
    argosy queue -o json | jq '.jobs[] | select(.state == "pending") | .why'
    """
    at_least("--limit", 1, limit)
    states = states_of(state) if state else (ALL if all_ else (*LIVE, *WAITING))
    asked = {"queue": queue, "name": name, "owner": user}
    if not watch:
        with connect(api, home) as daemon:
            answer = read_queue(daemon, asked, states, limit) | {"notice": _notice(daemon)}
        if output is not Output.TABLE:
            emit(answer, output)
            return
        show(*_parts(answer))
        return
    if output is not Output.TABLE or not sys.stdout.isatty():
        raise InputError("--watch needs a terminal and a table", hint="leave out -w, or -o and the pipe")
    _watch(api, home, asked, states, limit)


def read_queue(daemon: Client, asked: dict[str, Any], states: Sequence[str], limit: int) -> dict[str, Any]:
    """Return jobs that run, then those that wait in order of arrival, then the latest that ended; `limit` at most.

    They are asked for in the order in which jobs change their state, so that a job that starts or ends between two
    requests is not missed; it is shown once, in its last state.
    """
    jobs: dict[int, dict[str, Any]] = {}
    more, counts = False, {}
    for group, oldest_first in ((WAITING, True), (LIVE, True), (ENDED, False)):
        wanted = ",".join(state for state in states if state in group)
        left, seen = limit, None
        while wanted and left > 0:
            cursor = {"after" if oldest_first else "before": seen}
            page = daemon.get(
                "/v1/jobs", **asked, **cursor, state=wanted, oldest_first=oldest_first, limit=min(PAGE, left)
            )
            for job in page["jobs"]:
                jobs.pop(job["id"], None)
                jobs[job["id"]] = job
            counts, left, seen = page["counts"], left - len(page["jobs"]), page["next"]
            if seen is None:
                break
        more = more or bool(wanted and seen is not None)
    shown = [job for group in (LIVE, WAITING, ENDED) for job in jobs.values() if job["state"] in group]
    return {"jobs": shown[:limit], "more": more or len(shown) > limit, "counts": counts}


def _notice(daemon: Client) -> str:
    """Return what everybody should know, such as that the daemon fell back to its former policy."""
    return str(daemon.get("/v1/health").get("notice", ""))


def _watch(api: str | None, home: Path | None, asked: dict[str, Any], states: Sequence[str], limit: int) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    rows = max(5, Console().height - 4)
    with Patient(api, home) as patient, Live(auto_refresh=False, screen=True) as live:
        while True:
            with patient.bearing() as daemon:
                found = read_queue(daemon, asked, states, min(limit, rows)) | {"notice": _notice(daemon)}
                drawn: Group = Group(*_parts(found), "\nCtrl-C to leave")
                live.update(drawn, refresh=True)
            time.sleep(1)


def _parts(answer: dict[str, Any]) -> list[Any]:
    """Return the table, and the line below it."""
    jobs = answer["jobs"]
    owners = len({job["owner"] for job in jobs}) > 1
    columns = [
        "job",
        "name",
        *(["user"] if owners else []),
        "queue",
        "state",
        "GPUs",
        "done",
        "age",
        "expected",
        "where or why",
    ]
    rows = [[value for value in _row(job, owners) if value is not None] for job in grouped(jobs)]
    counts = ", ".join(f"{number} {state}" for state, number in answer["counts"].items() if number) or "no jobs yet"
    more = "; more with -n" if answer["more"] else ""
    table = [table_of(columns, rows, right=("job", "GPUs", "done", "age")), ""] if rows else []
    notice = [safe(answer["notice"])] if answer["notice"] else []
    return [*table, f"{counts}{more}", *notice]


def grouped(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs with those of an array that wait for the same reason as one, shown as `12[3-7]`."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for job in jobs:
        alone = job["array_id"] is None or job["state"] not in WAITING
        why = _DIGITS.sub("#", job["why"])
        groups.setdefault(job["id"] if alone else (job["array_id"], job["priority"], job["name"], why), []).append(job)
    return [
        mates[0] | {"shown": f"{mates[0]['array_id']}[{_ranges([m['array_index'] for m in mates])}]"}
        if len(mates) > 1
        else mates[0]
        for mates in groups.values()
    ]


def _ranges(numbers: list[int]) -> str:
    """Format indices as ranges, such as `0,3-7`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _row(job: dict[str, Any], owners: bool) -> list[Any]:
    done = "" if job["progress"] is None else f"{job['progress']:.0%}"
    told = " ".join(job["places"]) if job["state"] in ("running", "starting") else job["why"] or job["message"]
    owner = job["owner"] if owners else None
    state, age_s = "paused" if job["paused"] else job["state"], job["wait_s"] + job["run_s"]
    return [
        job.get("shown") or array_name(job),
        job["name"],
        owner,
        job["queue"],
        state,
        gpus(job),
        done,
        span(age_s),
        expected(job),
        told,
    ]


def expected(job: dict[str, Any]) -> str:
    """Format when a job probably starts, or ends if it has started: the median, from now on."""
    eta = job.get("eta")
    if eta is None:
        return ""
    what, times = ("starts", eta["start"]) if eta["start"] is not None else ("ends", eta["end"])
    return f"{what} {within(times['p50'])}"


def within(unix_s: float | None) -> str:
    """Format a time in the future as the time until then."""
    if unix_s is None:
        return "in > 1 year"
    left_s = unix_s - time.time()
    return f"in {span(left_s)}" if left_s >= 1 else "now"


def gpus(job: dict[str, Any]) -> str:
    """Format the GPUs of a job: `2` held, or `2 of 1..4`, or `1..4` asked for."""
    low, high = job["gpus_low"], job["gpus_high"]
    asked = f"{low:g}" if low == high else f"{low:g}..{high:g}"
    if not job["places"] or asked == f"{job['gpus']:g}":
        return asked
    return f"{job['gpus']:g} of {asked}"
