"""`argosy eta` says when jobs start and end, and how good such estimates have been."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from argosy.cli._live import ApiOption, HomeOption, connect, moment, safe, show, span, table_of
from argosy.cli._shared import Output, OutputOption, emit
from argosy.cli.queue import within
from argosy.errors import InputError

CHECK = "Check the estimates"


def eta(
    jobs: Annotated[list[int] | None, typer.Argument(metavar="[JOB…]", help="their numbers", min=1)] = None,
    *,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="how good past estimates were", rich_help_panel=CHECK)
    ] = False,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Say when jobs are expected to start and to end.

    The daemon plays the future through a hundred times under the policy in use. Each time all jobs have other lengths,
    drawn from how wrong the estimates of durations have been. Shown are the median, and the times before which one of
    ten and nine of ten of these futures lie. The daemon renews them every few seconds.

    \b
    argosy eta 7
    argosy eta 7 8 9 -o json
    argosy eta --calibration
    """
    if bool(jobs) == calibration:
        what = "both jobs and --calibration are given" if calibration else "no job is named"
        raise InputError(what, hint="write argosy eta 7, or argosy eta --calibration")
    with connect(api, home) as daemon:
        if calibration:
            scores = daemon.get("/v1/eta/calibration")
        else:
            found = [daemon.get(f"/v1/jobs/{job}/eta") for job in dict.fromkeys(jobs or [])]
    if calibration:
        _show_scores(scores, output)
        return
    if output is not Output.TABLE:
        emit(found[0] if len(found) == 1 else {"jobs": found}, output)
        return
    for one in found:
        show(*_told(one))


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
