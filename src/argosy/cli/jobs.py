"""The commands about one job: `argosy status`, `explain` and `cancel`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from argosy.cli._job_numbers import (
    LIVE,
    WAITING,
    JobArgument,
    JobsOrNone,
    NameOption,
    QueueOption,
    StateOption,
    UserOption,
    act,
    array_name,
    chosen,
    number_of,
)
from argosy.cli._live import (
    ApiOption,
    HomeOption,
    connect,
    moment,
    safe,
    show,
    span,
    table_of,
)
from argosy.cli._shared import Output, OutputOption, at_least, emit, say
from argosy.cli.eta import estimate_rows
from argosy.cli.queue import PAGE, gpus


def status(
    job: JobArgument,
    *,
    events: Annotated[int, typer.Option(help="how many lines of its story to show")] = 20,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Show one job: what it is, where it ran, what happened to it.

    \b
    argosy status 7
    argosy status 7 -o json | jq .report
    """
    at_least("--events", 0, events)
    with connect(api, home) as daemon:
        number = number_of(daemon, job)
        found = daemon.get(f"/v1/jobs/{number}")
        runs = daemon.get(f"/v1/jobs/{number}/runs")["runs"]
        asked = {"limit": max(1, min(events, PAGE)), "newest": True}
        story = daemon.get(f"/v1/jobs/{number}/events", **asked)["events"] if events else []
    if output is not Output.TABLE:
        emit({**found, "runs": runs, "events": story}, output)
        return
    facts = [(name, value) for name, value in _facts(found) if value not in ("", None)]
    parts: list[Any] = [table_of(("", ""), facts)]
    if runs:
        columns = ("run", "from", "time", "where", "exit", "remarks")
        parts += ["", table_of(columns, [_run(run) for run in runs[-10:]], right=("run", "time", "exit"))]
    if story:
        lines = [(moment(event["at"]), event["kind"], event["text"]) for event in story]
        parts += ["", table_of(("when", "what", ""), lines)]
    show(*parts)


def _facts(job: dict[str, Any]) -> list[tuple[str, Any]]:
    spec, report = job["spec"], job["report"]
    command = spec["run"] if isinstance(spec["run"], str) else " ".join(spec["run"])
    metrics = report.get("metrics") or {}
    said = [f"{name} {report[name]:g}" for name in ("step", "epoch") if isinstance(report.get(name), int | float)]
    said += [f"{name} {value:.6g}" for name, value in metrics.items() if isinstance(value, int | float)]
    held = f" on {' '.join(job['places'])}" if job["places"] else ""
    state = "paused" if job["paused"] else job["state"]
    done = "" if job["progress"] is None else f", {job['progress']:.0%} done"
    counts = [f"{job[name]} {name}" for name in ("failures", "preemptions", "resizes", "moves") if job[name]]
    return [
        ("job", f"{job['id']} {job['name']}" + ("" if job["array_index"] is None else f", {array_name(job)}")),
        ("state", state + done),
        ("why", job["why"]),
        ("message", job["message"]),
        ("exit code", job["exit_code"]),
        ("GPUs", gpus(job) + held),
        ("user", job["owner"]),
        ("queue", f"{job['queue']}, priority {job['priority']:g}"),
        ("command", command),
        ("folder", job["workdir"]),
        ("after", ", ".join(map(str, job["after"]))),
        ("submitted", moment(job["submitted_at"])),
        ("started", moment(job["started_at"])),
        ("ended", moment(job["ended_at"])),
        *estimate_rows(job.get("eta")),
        ("run time", f"{span(job['run_s'])}, {job['gpu_s'] / 3600:.2f} GPU hours" if job["run_s"] else ""),
        ("so far", ", ".join(counts)),
        ("reported", ", ".join(said)),
    ]


def _run(run: dict[str, Any]) -> tuple[Any, ...]:
    where = ", ".join(f"{p['node']}:{','.join(map(str, p['devices']))}".rstrip(":") for p in run["parts"])
    remarks = [run["stop"] or "", "paused" if run["paused"] else "", run["message"]]
    remarks += [f"{run['restarts']} workers replaced"] if run["restarts"] else []
    told = "; ".join(remark for remark in remarks if remark)
    return run["generation"], moment(run["launched_at"]), span(run["run_s"]), where, run["exit_code"], told


def explain(
    job: JobArgument, *, output: OutputOption = Output.TABLE, api: ApiOption = None, home: HomeOption = None
) -> None:
    """Explain why a job waits, or runs as it does: the policy's reason, its evidence, and what would start it now.

    \b
    argosy explain 7
    """
    with connect(api, home) as daemon:
        reason = daemon.get(f"/v1/jobs/{number_of(daemon, job)}/explain")
    if output is not Output.TABLE:
        emit(reason, output)
        return
    show(*_told(reason))


def _told(reason: dict[str, Any]) -> list[Any]:
    """Return the reason itself, then the evidence that it does not already contain."""
    lines = "\n".join(map(safe, reason["text"].splitlines()))
    parts: list[Any] = [f"job {reason['job']} ({reason['state']}): {lines}"]
    evidence = reason["evidence"]
    if isinstance(evidence, dict):
        new = {n: value for n, value in evidence.items() if not (isinstance(value, str) and safe(value) in lines)}
        rows = [(name.replace("_", " "), _plain(value)) for name, value in new.items() if value not in ("", [], ())]
        parts += ["", table_of(("", ""), rows)] if rows else []
    elif evidence and safe(evidence) not in lines:
        parts += [safe(evidence)]
    for name, value in estimate_rows(reason.get("eta")):
        parts += [f"It {name}: {value}"]
    if reason["change"]:
        parts += ["", f"What would start it now: {safe(reason['change'])}"]
    return parts


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value)


def cancel(
    jobs: JobsOrNone = None,
    *,
    now: Annotated[
        bool, typer.Option("--now", "--force", help="kill running jobs at once; they cannot save their work")
    ] = False,
    user: UserOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    state: StateOption = None,
    output: OutputOption = Output.TABLE,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Cancel jobs. A running job is asked to save its work and exit; its checkpoints are kept.

    After a second cancel it has a few seconds left, and with --now it is killed at once.

    \b
    argosy cancel 7
    argosy cancel --now 7
    argosy cancel '12[3-7]'                       # of array 12, the jobs with these indices
    argosy cancel --user ann --queue research --state pending
    """
    with connect(api, home) as daemon:
        numbers = chosen(daemon, jobs, user=user, name=name, queue=queue, state=state, among=(*LIVE, *WAITING))
        answer = act(daemon, "cancel", numbers, now=now)
    if output is not Output.TABLE:
        emit(answer, output)
        return
    for row in answer["jobs"]:
        say(f"job {row['id']} {safe(row['state'])}")
    if not answer["jobs"]:
        say("no job fits")
