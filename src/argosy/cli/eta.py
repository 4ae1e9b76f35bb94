"""`argosy eta` says when jobs start and end, and how good such estimates have been."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from argosy.cli._job_numbers import WAITING, JobsOrNone, array_name, numbers_of
from argosy.cli._live import ApiOption, HomeOption, connect, moment, safe, show, span, table_of
from argosy.cli._shared import Output, OutputOption, emit, say
from argosy.cli.queue import gpus, read_queue, within
from argosy.errors import InputError

CHECK = "Check the estimates"
MOST_SHOWN = 10_000  # jobs that wait


def eta(
    jobs: JobsOrNone = None,
    *,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="how good past estimates were", rich_help_panel=CHECK)
    ] = False,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Say when jobs are expected to start and to end; without a number, all of your jobs that wait.

    The daemon plays the future through a hundred times under the policy in use. Each time all jobs have other lengths,
    drawn from how wrong the estimates of durations have been. Shown are the median, and the times before which one of
    ten and nine of ten of these futures lie. The daemon renews them every few seconds.

    \b
    argosy eta
    argosy eta 7
    argosy eta 7 8 '12[3-7]' -o json
    argosy eta --calibration
    """
    if jobs and calibration:
        what = "both jobs and --calibration are given"
        raise InputError(what, hint="write argosy eta 7, or argosy eta --calibration")
    with connect(api, home) as daemon:
        if calibration:
            scores = daemon.get("/v1/eta/calibration")
        elif jobs:
            found = [daemon.get(f"/v1/jobs/{job}/eta") for job in numbers_of(daemon, jobs)]
        else:
            waiting = read_queue(daemon, {}, WAITING, MOST_SHOWN)
    if calibration:
        _show_scores(scores, output)
    elif not jobs:
        _show_waiting(waiting, output)
    elif output is not Output.TABLE:
        emit(found[0] if len(found) == 1 else {"jobs": found}, output)
    else:
        for one in found:
            show(*_told(one))


def _show_waiting(answer: dict[str, Any], output: Output) -> None:
    """Show when the jobs that wait will start, in the order in which they probably do."""
    if output is not Output.TABLE:
        kept = ("name", "owner", "queue", "state", "eta")
        emit({"jobs": [{"job": job["id"]} | {name: job[name] for name in kept} for job in answer["jobs"]]}, output)
        return
    if not answer["jobs"]:
        say("no job waits")
        return
    rows = [
        (array_name(job), job["name"], job["owner"], gpus(job), *(times or ["not known yet", "", ""]), ends)
        for job in sorted(answer["jobs"], key=_median_start)
        for times, ends in [_start_and_end(job)]
    ]
    columns = ("job", "name", "user", "GPUs", "starts: 10 of 100 before", "half before", "90 of 100 before", "ends")
    more = [f"the first {len(rows)} jobs that wait; name others"] if answer["more"] else []
    show(table_of(columns, rows, right=("job", "GPUs")), *more)


def _median_start(job: dict[str, Any]) -> float:
    start = (job["eta"] or {}).get("start") or {}
    return math.inf if start.get("p50") is None else float(start["p50"])


def _start_and_end(job: dict[str, Any]) -> tuple[list[str], str]:
    times = dict(_quantiles(job["eta"])) if job["eta"] is not None else {}
    return times.get("starts", []), times["ends"][1] if "ends" in times else ""


def _told(one: dict[str, Any]) -> list[Any]:
    """Return the lines about one job."""
    head = f"job {one['job']} ({one['state']})"
    if one["eta"] is None:
        ended = one["state"] in ("succeeded", "failed", "cancelled")
        why = "it has ended" if ended else safe(one["problem"]) or "no estimate has been made yet; ask again soon"
        return [f"{head}: {why}"]
    rows = [[name, *cells] for name, cells in _quantiles(one["eta"])]
    columns = ("", "10 of 100 before", "half before", "90 of 100 before")
    made = f"{one['rollouts']} futures under {safe(one['policy'])}, made at {moment(one['eta']['at'])}"
    return [head, table_of(columns, rows), made]


def _quantiles(eta: dict[str, Any]) -> list[tuple[str, list[str]]]:
    rows = []
    for name, times in (("starts", eta["start"]), ("ends", eta["end"])):
        if times is not None:
            rows.append((name, [within(times[level]) for level in ("p10", "p50", "p90")]))
    return rows


def estimate_rows(eta: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return when a job probably starts and ends, for tables of facts."""
    if eta is None:
        return []
    return [
        (f"probably {name}", f"{median} ({early} … {late} in 8 of 10 futures)")
        for name, (early, median, late) in _quantiles(eta)
    ]


def show_variants(answer: dict[str, Any], output: Output) -> None:
    """Show what `submit --dry-run` has found."""
    if output is not Output.TABLE:
        emit(answer, output)
        return
    rows = []
    for one in answer["variants"]:
        if one["eta"] is None:
            rows.append([one["variant"], "never", safe(one["refused"]), "", ""])
            continue
        times = dict(_quantiles(one["eta"]))
        early, median, late = times["starts"]
        rows.append(
            [
                one["variant"],
                f"{median} ({early} … {late})",
                times["ends"][1],
                span(one["expected_s"]),
                one["gpu_hours"],
            ]
        )
    first = answer["variants"][0]
    source = f"expected to take {span(first['expected_s'])}: {safe(first['expected_from'])}" if first["eta"] else ""
    columns = ("the job", "starts (in 8 of 10 futures)", "ends", "takes", "GPU hours")
    show(table_of(columns, rows, right=("GPU hours",)), *([source] if source else []), "nothing was submitted")


def _show_scores(scores: dict[str, Any], output: Output) -> None:
    if output is not Output.TABLE:
        emit(scores, output)
        return
    from argosy.live.daemon.estimate_scores import Score, in_words

    for name, of in (("start", "starts"), ("end", "ends")):
        show(in_words(None if scores[name] is None else Score(**scores[name]), of))
