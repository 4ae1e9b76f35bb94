"""Routes of jobs: submit, list, show, change, cancel. To a user, jobs of other users do not exist."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from argosy.errors import InputError
from argosy.live.api import models as m
from argosy.live.api.callers import BEARER, Caller, Person, actor
from argosy.live.api.display import clean
from argosy.live.api.submission_checks import admitted, check_sizes
from argosy.live.daemon.service import Service
from argosy.live.daemon.views import JobView
from argosy.live.errors import NotFound
from argosy.live.states import State
from argosy.live.store import Actor

Responses = dict[int | str, dict[str, Any]]
_REFUSALS = {
    400: "the request cannot be read",
    401: "no valid token",
    403: "not allowed",
    404: "it does not exist, or you may not see it",
    409: "not possible in this state",
    413: "too large",
    421: "not available under this host name",
    422: "invalid values",
    429: "too many at once",
    503: "not available at the moment",
    507: "the disk is full",
}
REFUSALS: Responses = {code: {"model": m.ProblemOut, "description": text} for code, text in _REFUSALS.items()}


def not_json(media_type: str, description: str) -> Responses:
    """Describe the responses of a route whose result is not JSON; its error responses are JSON all the same."""
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
    answers: Responses = {code: {"content": refusal, "description": text} for code, text in _REFUSALS.items()}
    answers[200] = {"content": {media_type: {"schema": {"type": "string"}}}, "description": description}
    return answers


JobNumber = Annotated[int, Path(ge=1, le=m.MAX_NUMBER, description="number of a job")]
Limit = Annotated[int, Query(ge=1, le=m.MAX_LIMIT)]
Before = Annotated[int | None, Query(ge=1, le=m.MAX_NUMBER, description="only those with a lower number")]
Filter = Annotated[m.Text | None, Query()]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=REFUSALS, dependencies=[BEARER])


def service_of(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def visible(service: Service, number: int, caller: Caller) -> JobView:
    """Return the job if it exists and the caller may see it; otherwise raise the same NotFound in both cases."""
    with suppress(NotFound):
        job = service.job(number)
        if caller.sees in (None, job.owner):
            return job
    raise NotFound(f"there is no job {number}", hint="see your jobs: argosy queue -a")


@router.post("", status_code=201, name="submit")
async def submit(request: Request, body: m.Submission, caller: Person) -> m.Numbers:
    """Submit one or more jobs; if one is refused, none is accepted."""
    return m.Numbers(ids=await accept(service_of(request), body, caller, actor(request.scope, caller)))


async def accept(service: Service, body: m.Submission, caller: Caller, by: Actor) -> list[int]:
    """Check and accept a well-formed submission; return the numbers of its jobs."""
    workdir = File(body.workdir) if body.workdir else None
    specs = [admitted(spec, workdir) for spec in body.jobs]
    check_sizes(specs)
    for number in sorted({number for spec in specs for number in spec.after.numbers}):
        visible(service, number, caller)
    return await service.take_in(specs, caller.owner, workdir, by)


@router.get("")
async def listing(
    request: Request,
    caller: Person,
    state: Annotated[str | None, Query(max_length=m.MAX_TEXT, description="job states, separated by commas")] = None,
    queue: Filter = None,
    name: Filter = None,
    owner: Filter = None,
    ids: Annotated[str | None, Query(max_length=12_000, description="job numbers, separated by commas")] = None,
    limit: Limit = 100,
    before: Before = None,
    after: Annotated[int | None, Query(ge=0, le=m.MAX_NUMBER, description="only those with a higher number")] = None,
    oldest_first: bool = False,
) -> m.JobPage:
    """List jobs in pages, newest first by default."""
    service = service_of(request)
    whose = owner if caller.operates else caller.owner
    if owner not in (None, whose):  # users cannot see the jobs of other users
        return m.JobPage(jobs=[], next=None, counts=service.counts(whose))
    found = service.jobs(
        owner=whose,
        states=_states(state),
        queue=queue,
        name=name,
        ids=_numbers(ids),
        limit=limit + 1,
        before=before,
        after=after,
        oldest_first=oldest_first,
    )
    page = [m.JobOut.model_validate(job) for job in found[:limit]]
    following = page[-1].id if len(found) > limit else None
    return m.JobPage(jobs=page, next=following, counts=service.counts(whose))


@router.post("/cancel", name="cancel")
async def cancel_many(request: Request, body: m.ToCancel, caller: Person) -> m.States:
    """Cancel jobs; if one does not exist, none is cancelled. Jobs that have ended stay as they are.

    A running job is asked to save its work and exit. If it is cancelled a second time it has only a few seconds for
    that; with `now` it is killed at once.
    """
    service, numbers = service_of(request), list(dict.fromkeys(body.ids))
    for number in numbers:
        visible(service, number, caller)
    service.cancel(numbers, actor(request.scope, caller), at_once=body.now)
    return m.States(jobs=[m.StateOut.model_validate(visible(service, n, caller)) for n in numbers])


async def _act(request: Request, body: m.Several, caller: Caller, act: Callable[[list[int], Actor], None]) -> m.States:
    """Do something to several jobs that the caller may see; if one does not exist, nothing is done."""
    service, numbers = service_of(request), list(dict.fromkeys(body.ids))
    for number in numbers:
        visible(service, number, caller)
    act(numbers, actor(request.scope, caller))
    return m.States(jobs=[m.StateOut.model_validate(visible(service, n, caller)) for n in numbers])


@router.post("/hold", name="hold")
async def hold(request: Request, body: m.Several, caller: Person) -> m.States:
    """Hold back waiting jobs: they do not start until they are released."""
    return await _act(request, body, caller, service_of(request).control.hold)


@router.post("/release", name="release")
async def release(request: Request, body: m.Several, caller: Person) -> m.States:
    """Let jobs start again that were held back."""
    return await _act(request, body, caller, service_of(request).control.release)


@router.post("/requeue", name="requeue")
async def requeue(request: Request, body: m.ToRequeue, caller: Person) -> m.States:
    """Let running jobs save their work and wait for their turn again; the policy may start them again at once."""
    control = service_of(request).control
    return await _act(request, body, caller, lambda numbers, by: control.requeue(numbers, by, hold=body.hold))


@router.post("/update", name="update")
async def update(request: Request, body: m.ToUpdate, caller: Person) -> m.States:
    """Change jobs that have not ended; only priority, max_duration and retries of those that run."""
    control, given = service_of(request).control, body.given
    return await _act(request, body, caller, lambda numbers, by: control.update(numbers, given, by))


@router.post("/resubmit", status_code=201, name="submit")
async def resubmit(request: Request, body: m.Several, caller: Person) -> m.Numbers:
    """Submit jobs once more, for their owners and as they were submitted; return the numbers of the new jobs."""
    service, numbers = service_of(request), list(dict.fromkeys(body.ids))
    for number in numbers:
        visible(service, number, caller)
    return m.Numbers(ids=service.control.resubmit(numbers, actor(request.scope, caller)))


@router.post("/priority", name="priority")
async def prioritise(request: Request, body: m.ToPrioritise, caller: Person) -> m.States:
    """Change the priority of jobs that have not ended."""
    control = service_of(request).control
    return await _act(request, body, caller, lambda numbers, by: control.set_priority(numbers, body.priority, by))


@router.get("/{number}")
async def one(request: Request, number: JobNumber, caller: Person) -> m.JobDetail:
    return m.JobDetail.model_validate(visible(service_of(request), number, caller))


@router.delete("/{number}", name="cancel")
async def cancel(request: Request, number: JobNumber, caller: Person, now: bool = False) -> m.StateOut:
    """Cancel a job. If it runs, it is asked to save its work and exit; with `now` it is killed at once."""
    service = service_of(request)
    visible(service, number, caller)
    service.cancel([number], actor(request.scope, caller), at_once=now)
    return m.StateOut.model_validate(visible(service, number, caller))


@router.patch("/{number}", name="priority")
async def change(request: Request, number: JobNumber, body: m.Change, caller: Person) -> m.JobDetail:
    """Change the priority of a job that has not ended."""
    service = service_of(request)
    visible(service, number, caller)
    service.set_priority(number, body.priority, actor(request.scope, caller))
    return m.JobDetail.model_validate(visible(service, number, caller))


@router.get("/{number}/events")
async def events(
    request: Request,
    number: JobNumber,
    caller: Person,
    limit: Limit = 1000,
    after: Annotated[int, Query(ge=0, le=m.MAX_NUMBER, description="only events with a higher number")] = 0,
    newest: Annotated[bool, Query(description="return the last `limit` events, not the first")] = False,
) -> m.EventPage:
    """List the events of a job, oldest first."""
    service = service_of(request)
    visible(service, number, caller)
    found = service.events(number, after=after, limit=limit, newest=newest)
    return m.EventPage(events=[m.EventOut.model_validate(event) for event in found])


@router.get("/{number}/runs")
async def runs(request: Request, number: JobNumber, caller: Person) -> m.RunList:
    """List the runs of a job, oldest first."""
    service = service_of(request)
    visible(service, number, caller)
    return m.RunList(runs=[m.RunOut.model_validate(run) for run in service.runs(number)])


@router.get("/{number}/explain")
async def explain(request: Request, number: JobNumber, caller: Person) -> dict[str, Any]:
    """Explain why a job waits: the category, the evidence, and the smallest change that would start it now."""
    service = service_of(request)
    visible(service, number, caller)
    explanation: dict[str, Any] = clean(await service.explain_now(number))
    return explanation


def _states(text: str | None) -> list[State] | None:
    if text is None:
        return None
    try:
        return [State(part.strip()) for part in text.split(",")]
    except ValueError:
        known = ", ".join(State)
        hint = f"write some of these, separated by commas: {known}"
        raise InputError(f"state: {text!r} is not a list of job states", hint=hint) from None


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > m.MAX_LIMIT or not all(p.isascii() and p.isdigit() and len(p) <= 18 for p in parts):
        hint = f"write at most {m.MAX_LIMIT} numbers, separated by commas"
        raise InputError(f"ids: {text[:60]!r} is not a list of job numbers", hint=hint)
    return [int(part) for part in parts]
