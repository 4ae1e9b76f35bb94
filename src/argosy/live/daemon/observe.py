"""Interprets the backend's reports: pure functions from rows and a status to new rows. Nothing is written here.

A run ends in one of four ways: we stopped it (then the reason for the stop decides about the job), it ended by itself
with exit code 0, it failed (and is tried again after a wait that doubles), or it was lost with its node (it is tried
again, which does not count as a failure; but a job that is lost again and again seems to bring its node down, and
fails).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from argosy.live import sanitize
from argosy.live.backends.base import Phase, Status
from argosy.live.daemon.views import held, place
from argosy.live.states import State, Stop
from argosy.live.store import Job, RunRow

MAX_LOSS_DOUBLINGS = 6
MAX_LOSSES = 20  # and one more for every hour that the job has run
MAX_WAIT_S = 3600.0
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """New rows of a job and its run, and events to record with them."""

    job: Job
    run: RunRow
    events: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    now: float  # the daemon's clock
    wall: float


def settle(run: RunRow, now: float) -> RunRow:
    """Bring the accounting of a run up to now."""
    passed = max(0.0, now - run.settled_s)
    if run.paused:
        return replace(run, settled_s=now)
    return replace(run, settled_s=now, run_s=run.run_s + passed, gpu_s=run.gpu_s + passed * held(run.parts))


def observe(job: Job, run: RunRow, status: Status, at: Moment) -> RowUpdate | None:
    """Return what this status changes in the rows; None if nothing."""
    if status.phase is Phase.EXITED:
        return end(job, run, status, at)
    new_job, new_run = job, run
    events: list[tuple[str, str]] = []
    if job.state is State.STARTING and status.phase in (Phase.RUNNING, Phase.PAUSED):
        new_job = replace(new_job, state=State.RUNNING)
        new_run = replace(new_run, running_s=at.now)
        events.append(("running", f"runs on {' '.join(place(p) for p in run.parts) or 'no device'}"))
    if status.hot and not job.hot:
        new_job = replace(new_job, hot=True)
    if run.former is not None and status.version >= run.version:
        new_run = replace(settle(new_run, at.now), former=None)
        events.append(("changed", "paused" if run.paused else f"now on {' '.join(place(p) for p in run.parts)}"))
    if status.restarts > run.restarts:
        new_run = replace(new_run, restarts=status.restarts)
        events.append(("worker-replaced", f"a worker was replaced in place ({status.restarts} so far)"))
    if new_job is job and new_run is run:
        return None
    return RowUpdate(new_job, new_run, tuple(events))


def end(job: Job, run: RunRow, status: Status, at: Moment) -> RowUpdate:
    """Return the rows after a run has ended: the job succeeds, fails, waits or is tried again."""
    code, done = status.exit_code, status.exit_code == 0 and status.report.get("done") is True
    said = sanitize.text(status.message)
    over = replace(
        settle(run, at.now),
        ended_s=at.now,
        ended_at=at.wall,
        former=None,
        exit_code=code,
        message=said,
        restarts=max(run.restarts, status.restarts),
    )
    job = replace(
        job,
        run_s=job.run_s + over.run_s,
        gpu_s=job.gpu_s + over.gpu_s,
        hot=job.hot or status.hot,
        report={**job.report, **sanitize.report(status.report)},
    )
    if run.stop is not None and not done:
        return _stopped(job, over, run.stop, at)
    if code is None:
        return lost(job, over, said or "its end was not recorded", at)
    if code == 0:
        return _final(job, over, State.SUCCEEDED, code, "", at)
    return _failed(job, over, code, said or exit_text(code), at)


def missing(job: Job, run: RunRow, at: Moment) -> RowUpdate:
    """Return the rows of a run that should exist, but is unknown to the backend."""
    over = replace(settle(run, at.now), ended_s=at.now, ended_at=at.wall, former=None, message="the backend lost it")
    job = replace(job, run_s=job.run_s + over.run_s, gpu_s=job.gpu_s + over.gpu_s)
    if run.stop is not None:
        return _stopped(job, over, run.stop, at)
    return lost(job, over, "the backend lost it", at)


def launch_failed(job: Job, run: RunRow, problem: str, final: bool, at: Moment) -> RowUpdate:
    """Return the rows of a run that could not be launched."""
    over = replace(settle(run, at.now), ended_s=at.now, ended_at=at.wall, former=None, message=problem)
    if run.stop is not None:
        return _stopped(job, over, run.stop, at)
    if final:
        return _final(job, over, State.FAILED, None, f"it could not be launched: {problem}", at)
    return _again(replace(job, unlaunched=job.unlaunched + 1), over, f"the launch failed: {problem}", at)


def lost(job: Job, run: RunRow, why: str, at: Moment) -> RowUpdate:
    times = job.losses + 1 - job.unlaunched
    if times > MAX_LOSSES + job.run_s / 3600.0:
        text = f"{why}; {times} of its runs were lost, so the job itself seems to bring down its node"
        return _final(replace(job, losses=job.losses + 1), run, State.FAILED, None, text, at)
    return _again(job, run, why, at)


def _again(job: Job, run: RunRow, why: str, at: Moment) -> RowUpdate:
    doublings = min(job.losses, MAX_LOSS_DOUBLINGS)
    wait = min(job.parsed.retry_wait * 2**doublings, MAX_WAIT_S)
    again = replace(job, state=State.PENDING, losses=job.losses + 1, not_before_s=at.now + wait, message=why)
    return RowUpdate(again, run, (("lost", f"run {run.generation} was lost: {why}; it is tried again in {wait:g} s"),))


def _stopped(job: Job, run: RunRow, stop: Stop, at: Moment) -> RowUpdate:
    if stop.cancels:
        return _final(job, run, State.CANCELLED, run.exit_code, "cancelled", at)
    if stop is Stop.LIMIT:
        text = f"ended after {job.run_s:.0f} s of run time: max_duration is {job.parsed.max_duration or 0:g} s"
        return _final(job, run, State.FAILED, run.exit_code, text, at)
    if stop is Stop.BUDGET:
        text = f"ended as planned: its time budget of {job.parsed.time_budget or 0:g} s is used up"
        return _final(job, run, State.SUCCEEDED, run.exit_code, text, at)
    waits = replace(
        job,
        state=State.PENDING,
        preemptions=job.preemptions + (stop is Stop.PREEMPTED),
        moves=job.moves + (stop is Stop.MOVED),
    )
    return RowUpdate(waits, run, (("suspended", f"has left its place after {run.run_s:.1f} s: {stop}"),))


def _failed(job: Job, run: RunRow, code: int, why: str, at: Moment) -> RowUpdate:
    failures, spec = job.failures + 1, job.parsed
    failed = replace(job, failures=failures)
    if failures > spec.retries:
        tries = f" after {failures} tries" if failures > 1 else ""
        return _final(failed, run, State.FAILED, code, f"{why}{tries}", at)
    wait = min(spec.retry_wait * 2 ** min(failures - 1, 30), MAX_WAIT_S)
    again = replace(failed, state=State.PENDING, not_before_s=at.now + wait, exit_code=code, message=why)
    text = f"run {run.generation} failed: {why}; retry {failures} follows in {wait:g} s"
    return RowUpdate(again, run, (("failed", text),))


def _final(job: Job, run: RunRow, state: State, code: int | None, message: str, at: Moment) -> RowUpdate:
    ended = replace(job, state=state, ended_s=at.now, ended_at=at.wall, exit_code=code, message=message)
    return RowUpdate(ended, run, ((state.value, message or f"done after {job.run_s:.1f} s of run time"),))


def end_waiting(job: Job, state: State, message: str, at: Moment) -> Job:
    """Return a waiting job as ended, because it will never run."""
    return replace(job, state=state, ended_s=at.now, ended_at=at.wall, message=message)


def exit_text(code: int) -> str:
    return f"it ended with code {code}" if code >= 0 else f"it was killed by signal {-code}"


def good_checkpoints(run: RunRow, status: Status) -> list[Mapping[str, Any]]:
    """Return this generation's checkpoints with a valid path, oldest first; what a job reports is not trusted."""
    found = []
    for one in status.checkpoints:
        path, step = sanitize.text(one.get("path")), sanitize.whole(one.get("step"))
        folder, _, name = path.partition("/")
        if folder == f"gen-{run.generation}" and PLAIN_NAME.fullmatch(name) and step is not None and step >= 0:
            figures = {"seconds": sanitize.number(one.get("seconds")), "bytes": sanitize.whole(one.get("bytes"))}
            found.append({"path": path, "step": step, **figures})
    return sorted(found, key=lambda one: int(one["step"]))
