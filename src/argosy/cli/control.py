"""`argosy hold`, `release`, `requeue`, `resubmit` and `update`: what can be done to jobs besides cancelling them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from argosy.cli._job_numbers import (
    ENDED,
    LIVE,
    WAITING,
    JobsOrNone,
    NameOption,
    QueueOption,
    StateOption,
    UserOption,
    act,
    chosen,
)
from argosy.cli._live import ApiOption, HomeOption, connect, safe
from argosy.cli._shared import Output, OutputOption, emit, say
from argosy.errors import InputError

CHANGES = "What to change"


def hold(
    jobs: JobsOrNone = None,
    *,
    user: UserOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Hold back waiting jobs: they stay in the queue, but do not start until they are released.

    \b
    argosy hold 7
    argosy hold '12[3-7]'
    argosy hold --user ann --queue research

    A job that runs is put back into the queue first: argosy requeue --hold 7
    """
    with connect(api, home) as daemon:
        numbers = chosen(daemon, jobs, user=user, name=name, queue=queue, state=None, among=WAITING)
        _tell(act(daemon, "hold", numbers), "held back", output)


def release(
    jobs: JobsOrNone = None,
    *,
    user: UserOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Let held jobs start again.

    \b
    argosy release 7
    argosy release --user ann
    """
    with connect(api, home) as daemon:
        numbers = chosen(daemon, jobs, user=user, name=name, queue=queue, state=None, among=WAITING)
        _tell(act(daemon, "release", numbers), "released", output)


def requeue(
    jobs: JobsOrNone = None,
    *,
    hold: Annotated[
        bool, typer.Option("--hold", help="hold them back, so that they do not start again at once")
    ] = False,
    user: UserOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Let running jobs save their work and wait for their turn again; the policy may start them again at once.

    \b
    argosy requeue 7
    argosy requeue --hold 7
    argosy requeue --queue research

    A job that has ended is not run again under its number: argosy resubmit 7
    """
    with connect(api, home) as daemon:
        numbers = chosen(daemon, jobs, user=user, name=name, queue=queue, state=None, among=LIVE)
        _tell(act(daemon, "requeue", numbers, hold=hold), "put back into the queue", output)


def resubmit(
    jobs: JobsOrNone = None,
    *,
    user: UserOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    state: StateOption = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Submit jobs once more, as they were submitted; the numbers of the new jobs are printed, one per line.

    \b
    argosy resubmit 7
    argosy resubmit '12[3-7]'
    argosy resubmit --name sweep --state failed

    The new jobs begin anew, without the checkpoints of the old ones. Dependencies on jobs that have ended are left out.
    """
    with connect(api, home) as daemon:
        numbers = chosen(daemon, jobs, user=user, name=name, queue=queue, state=state, among=ENDED)
        new: list[int] = []
        for at in range(0, len(numbers), 500):
            new += daemon.post("/v1/jobs/resubmit", {"ids": numbers[at : at + 500]})["ids"]
    if output is not Output.TABLE:
        emit({"ids": new}, output)
    elif new:
        typer.echo("\n".join(map(str, new)))
    else:
        say("no job fits")


def update(
    jobs: JobsOrNone = None,
    *,
    priority: Annotated[float | None, typer.Option(help="0..100, higher first", rich_help_panel=CHANGES)] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            help="max_duration: end it after this much run time, such as 6h; or none", rich_help_panel=CHANGES
        ),
    ] = None,
    expected: Annotated[
        str | None, typer.Option(help="expected_duration: your estimate, such as 4h; or none", rich_help_panel=CHANGES)
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(help="when it should be done, such as 2026-12-01T08:00; or none", rich_help_panel=CHANGES),
    ] = None,
    gpus: Annotated[str | None, typer.Option(help="2, or 1..8, or 1..4..8, or 0.5", rich_help_panel=CHANGES)] = None,
    to_queue: Annotated[str | None, typer.Option(help="move it to this queue", rich_help_panel=CHANGES)] = None,
    rename: Annotated[str | None, typer.Option(help="give it this name", rich_help_panel=CHANGES)] = None,
    retries: Annotated[
        int | None, typer.Option(help="how often a failed run is tried again", rich_help_panel=CHANGES)
    ] = None,
    user: UserOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Change jobs that have not ended. Priority, time limit and retries also of those that run.

    \b
    argosy update 7 --priority 80
    argosy update 7 --time-limit 12h --gpus 1..4
    argosy update '12[3-7]' --to-queue research
    """
    given = {
        "priority": priority,
        "max_duration": _or_none(time_limit),
        "expected_duration": _or_none(expected),
        "deadline": _or_none(deadline),
        "gpus": gpus,
        "queue": to_queue,
        "name": rename,
        "retries": retries,
    }
    named = {"max_duration": time_limit, "expected_duration": expected, "deadline": deadline}
    changes = {key: value for key, value in given.items() if value is not None or named.get(key) is not None}
    if not changes:
        raise InputError("there is nothing to change", hint="name a change, such as --priority 80 or --time-limit 6h")
    with connect(api, home) as daemon:
        numbers = chosen(daemon, jobs, user=user, name=name, queue=queue, state=None, among=(*LIVE, *WAITING))
        _tell(act(daemon, "update", numbers, **changes), "changed", output)


def _or_none(text: str | None) -> str | None:
    return None if text is None or text.strip().lower() == "none" else text.strip()


def _tell(answer: dict[str, Any], what: str, output: Output) -> None:
    if output is not Output.TABLE:
        emit(answer, output)
        return
    for row in answer["jobs"]:
        say(f"job {row['id']} {what} ({safe(row['state'])})")
    if not answer["jobs"]:
        say("no job fits")
