"""What people do to jobs besides cancelling them: hold back, release, put back into the queue, change the priority.

Each acts on several jobs, all or none, in one transaction with its line in the audit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from argosy.errors import InputError
from argosy.live.daemon.audit import DAEMON
from argosy.live.errors import Conflict, NotFound
from argosy.live.states import State, Stop
from argosy.live.store import Actor, Job
from argosy.live.store.rows import HELD_S

if TYPE_CHECKING:
    from argosy.live.daemon.service import Service


class JobControl:
    """Actions on jobs that have not ended."""

    def __init__(self, service: Service) -> None:
        self._service, self._store = service, service.store

    def hold(self, numbers: Sequence[int], by: Actor = DAEMON) -> None:
        """Hold back waiting jobs: they do not start until they are released."""
        jobs = [job for job in self._active(numbers) if not job.held]
        for job in jobs:
            if job.state is not State.PENDING:
                hint = f"put it back into the queue first: argosy requeue {job.id}"
                raise Conflict(f"job {job.id} is {job.state}; only a waiting job can be held back", hint=hint)
        self._save([replace(job, not_before_s=HELD_S) for job in jobs], "held", f"held back by {by.who}", "hold", by)

    def release(self, numbers: Sequence[int], by: Actor = DAEMON) -> None:
        """Let jobs start again that were held back."""
        jobs = [replace(job, not_before_s=0.0) for job in self._active(numbers) if job.held]
        self._save(jobs, "released", f"released by {by.who}", "release", by)

    def requeue(self, numbers: Sequence[int], by: Actor = DAEMON) -> None:
        """Let running jobs save their work and wait for their turn again; the policy may start them again at once."""
        store = self._store
        running = [job.id for job in self._active(numbers) if job.state in (State.STARTING, State.RUNNING)]
        with store.transaction() as changes:
            for number in running:
                job, run = store.jobs[number], store.runs[number]
                if Stop.PREEMPTED.overrules(run.stop):
                    changes.save(replace(job, state=State.STOPPING))
                    changes.save_run(replace(run, stop=Stop.PREEMPTED))
                    changes.event(job, "requeued", f"put back into the queue by {by.who}: it saves its work and leaves")
            changes.audit(by, "requeue", jobs=running)
        self._service.changed()

    def set_priority(self, numbers: Sequence[int], priority: float, by: Actor = DAEMON) -> None:
        if not 0 <= priority <= 100:
            raise InputError(f"priority: {priority!r} is not in 0..100", hint="50 is the default, higher goes first")
        jobs = self._active(numbers)
        if by.role == "user":  # an operator may exceed the owner's limit
            for owner in {job.owner for job in jobs}:
                self._service.limits.check_priority(owner, priority)
        was = ", ".join(sorted({f"{job.priority:g}" for job in jobs}))
        new = [replace(job, priority=priority) for job in jobs]
        self._save(new, "priority", f"priority {was} → {priority:g}", "priority", by, f"{was} → {priority:g}")

    def _active(self, numbers: Sequence[int]) -> list[Job]:
        found = []
        for number in numbers:
            job = self._store.jobs.get(number)
            if job is None:
                if self._store.job(number) is None:
                    raise NotFound(f"there is no job {number}", hint="see argosy queue -a for the numbers")
                raise Conflict(f"job {number} has ended", hint="submit it again to run it once more")
            found.append(job)
        return found

    def _save(self, jobs: Sequence[Job], kind: str, text: str, action: str, by: Actor, detail: str = "") -> None:
        with self._store.transaction() as changes:
            for job in jobs:
                changes.save(job)
                changes.event(job, kind, text)
            changes.audit(by, action, jobs=[job.id for job in jobs], detail=detail)
        self._service.changed()
