"""The jobs that a command is about: numbers, parts of arrays such as `12[3-7]`, and filters such as --user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from argosy.cli.completion import complete_job
from argosy.errors import InputError, UnknownName

if TYPE_CHECKING:
    from argosy.live.client import Client

HINT = "write numbers, such as 7, or parts of an array, such as '12[3-7]', '12[0,4]' or '12[*]'"
MOST_AT_ONCE = 1000  # jobs in one request
MOST_NUMBER = 2**63 - 1
LIVE, WAITING, ENDED = ("running", "starting", "stopping"), ("pending",), ("succeeded", "failed", "cancelled")
ALL = (*LIVE, *WAITING, *ENDED)
_PART = re.compile(r"(\d{1,18})(?:\[([\d,\s-]{1,2000}|\*)\])?", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

FILTERS = "Which jobs, instead of numbers or besides"
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB…", help="their numbers, or parts of an array: '12[3-7]'", autocompletion=complete_job),
]
JobsOrNone = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB…]", help="their numbers, or parts of an array: '12[3-7]'", autocompletion=complete_job
    ),
]
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="number of the job, see argosy queue; of an array: '12[3]'", autocompletion=complete_job
    ),
]
UserOption = Annotated[str | None, typer.Option(help="all jobs of this user", rich_help_panel=FILTERS)]
NameOption = Annotated[str | None, typer.Option(help="all jobs of this name", rich_help_panel=FILTERS)]
QueueOption = Annotated[str | None, typer.Option(help="all jobs of this queue", rich_help_panel=FILTERS)]
StateOption = Annotated[str | None, typer.Option(help="all jobs in these states, by commas", rich_help_panel=FILTERS)]


def numbers_of(daemon: Client, jobs: Sequence[str]) -> list[int]:
    """Return the numbers of these jobs, each once; raise InputError for what is no number or part of an array."""
    found: list[int] = []
    for text in jobs:
        number, indices = _read(text)
        found += [number] if indices is None else _of_array(daemon, text, number, indices)
    return list(dict.fromkeys(found))


def number_of(daemon: Client, job: str) -> int:
    """Return the number of one job."""
    found = numbers_of(daemon, [job])
    if len(found) != 1:
        raise InputError(f"{job!r} are {len(found)} jobs", hint="name one of them, such as " + f"{found[0]}")
    return found[0]


def _read(text: str) -> tuple[int, list[tuple[int, int]] | None]:
    """Return a job's number and, if it is followed by brackets, the ranges in them; `*` is an empty list."""
    part = _PART.fullmatch(text.strip())
    if part is None or not 1 <= int(part[1]) <= MOST_NUMBER:
        raise InputError(f"{text[:60]!r} is not a job", hint=HINT)
    if part[2] is None:
        return int(part[1]), None
    if part[2] == "*":
        return int(part[1]), []
    ranges = []
    for piece in part[2].split(","):
        one = _RANGE.fullmatch(piece.strip())
        if one is None or int(one[2] or one[1]) < int(one[1]):
            raise InputError(f"{text[:60]!r}: {piece.strip()!r} is not a range of an array", hint=HINT)
        ranges.append((int(one[1]), int(one[2] or one[1])))
    return int(part[1]), ranges


def _of_array(daemon: Client, text: str, number: int, ranges: list[tuple[int, int]]) -> list[int]:
    """Return the numbers of jobs of an array; those of its jobs follow that of the first, without a gap."""
    first = daemon.get(f"/v1/jobs/{number}")
    if first["array_id"] != number:
        array = first["array_id"]
        hint = f"its array is {array}: write '{array}[…]'" if array else f"it is one job: write {number}"
        raise InputError(f"{text[:60]!r}: job {number} is not the number of an array", hint=hint)
    count = int(first["spec"]["array"])
    for low, high in ranges:
        if high >= count:
            what = f"{text[:60]!r}: array {number} has the indices 0 to {count - 1}, not {max(low, count)}"
            raise InputError(what, hint=f"write '{number}[0-{count - 1}]' for all of them")
    wanted = [i for low, high in ranges or [(0, count - 1)] for i in range(low, high + 1)]
    return [number + i for i in wanted]


def chosen(
    daemon: Client,
    jobs: Sequence[str] | None,
    *,
    user: str | None,
    name: str | None,
    queue: str | None,
    state: str | None,
    among: Sequence[str],
) -> list[int]:
    """Return the jobs that are named and fit the filters; without names, all of these states that fit the filters."""
    filters = {"--user": user, "--name": name, "--queue": queue, "--state": state}
    used = [option for option, value in filters.items() if value is not None]
    if not jobs and not used:
        raise InputError("no job is named", hint=f"{HINT}; or choose by {', '.join(filters)}")
    states = states_of(state) if state is not None else tuple(among)
    if jobs and not used:
        return numbers_of(daemon, jobs)
    found = matching(daemon, states, owner=user, name=name, queue=queue)
    if not jobs:
        return found
    fits = set(found)
    return [number for number in numbers_of(daemon, jobs) if number in fits]


def matching(daemon: Client, states: Iterable[str], **filters: str | None) -> list[int]:
    """Return the numbers of all jobs that you may see in these states and with these properties, oldest first."""
    found: list[int] = []
    after = 0
    while True:
        page = daemon.get(
            "/v1/jobs", **filters, state=",".join(states), after=after, oldest_first=True, limit=MOST_AT_ONCE
        )
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            return found
        after = page["next"]


def states_of(text: str) -> tuple[str, ...]:
    """Return the states in a text; raise UnknownName for one that does not exist."""
    states = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    for state in states:
        if state not in ALL:
            raise UnknownName("state", state, ALL)
    if not states:
        raise InputError("--state is empty", hint=f"write some of {', '.join(ALL)}")
    return states


def act(daemon: Client, action: str, numbers: Sequence[int], **more: Any) -> dict[str, Any]:
    """Send an action on jobs in requests of a size that the daemon accepts; return the states of the jobs."""
    rows: list[dict[str, Any]] = []
    for at in range(0, len(numbers), MOST_AT_ONCE):
        answer = daemon.post(f"/v1/jobs/{action}", {"ids": list(numbers[at : at + MOST_AT_ONCE]), **more})
        rows += answer["jobs"]
    return {"jobs": rows}


def array_name(job: dict[str, Any]) -> str:
    """Return a job's number or, in an array, `12[3]`."""
    return str(job["id"]) if job["array_index"] is None else f"{job['array_id']}[{job['array_index']}]"
