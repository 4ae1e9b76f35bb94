"""`argosy wait` waits until jobs have ended; the exit code tells how they ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from argosy.cli._job_numbers import JobsArgument, numbers_of
from argosy.cli._live import ApiOption, HomeOption, Patient, connect, safe
from argosy.cli._shared import say

FAILED, UNFINISHED, NOT_FOUND, CANCELLED = 100, 101, 102, 103
ENDED = {"succeeded": 0, "failed": FAILED, "cancelled": CANCELLED}
ASKED_AT_ONCE = 500


def wait(
    jobs: JobsArgument,
    *,
    timeout: Annotated[str | None, typer.Option(help="give up after this time, such as 90s or 2h")] = None,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Wait until jobs have ended.

    \b
    argosy wait 7
    argosy wait 7 8 9 --timeout 2h && echo all succeeded
    argosy wait '12[0-4]'

    \b
    Exit codes: 0 all succeeded, 100 one failed, 101 not ended in time, 102 there is no such job, 103 one was
    cancelled. If several apply, the first of 102, 101, 100, 103.
    """
    from argosy.config import parse_duration

    limit_s = None if timeout is None else parse_duration(timeout)
    if all(job.isascii() and job.isdigit() for job in jobs):  # so that it also waits for a daemon that is away
        numbers = [int(job) for job in jobs]
    else:
        with connect(api, home) as daemon:
            numbers = numbers_of(daemon, jobs)
    raise typer.Exit(wait_for(numbers, api, home, limit_s))


def wait_for(jobs: list[int], api: str | None, home: Path | None, limit_s: float | None) -> int:
    """Wait, print how each job ended, and return the exit code."""
    waiting, ends = list(dict.fromkeys(jobs)), set[int]()
    started, pause_s = time.monotonic(), 0.1
    with Patient(api, home) as patient:
        while True:
            with patient.bearing() as daemon:
                found: dict[int, dict[str, Any]] = {}
                for at in range(0, len(waiting), ASKED_AT_ONCE):
                    asked = ",".join(map(str, waiting[at : at + ASKED_AT_ONCE]))
                    found |= {row["id"]: row for row in daemon.get("/v1/jobs", ids=asked, limit=ASKED_AT_ONCE)["jobs"]}
                for job in waiting:
                    if job not in found:
                        say(f"there is no job {job}")
                        ends.add(NOT_FOUND)
                    elif found[job]["state"] in ENDED:
                        row = found[job]
                        ends.add(ENDED[row["state"]])
                        say(f"job {job} {row['state']}" + (f": {safe(row['message'])}" if row["message"] else ""))
                waiting = [job for job in waiting if job in found and found[job]["state"] not in ENDED]
            if not waiting:
                break
            if limit_s is not None and time.monotonic() - started >= limit_s:
                say(f"not ended in time: {', '.join(map(str, waiting[:20]))}{' …' if len(waiting) > 20 else ''}")
                ends.add(UNFINISHED)
                break
            left = float("inf") if limit_s is None else max(0.0, limit_s - (time.monotonic() - started))
            time.sleep(min(pause_s, left))
            pause_s = min(2.0, pause_s * 1.3)
    return next((code for code in (NOT_FOUND, UNFINISHED, FAILED, CANCELLED) if code in ends), 0)
