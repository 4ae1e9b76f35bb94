"""What people do to jobs besides cancelling them: hold back, release, put back into the queue, change, submit again.

Each acts on several jobs, all or none, in one transaction with its line in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from argosy.errors import InputError
from argosy.live.daemon.admission import check_possible
from argosy.live.daemon.audit import DAEMON
from argosy.live.daemon.submissions import MAX_DETAIL
from argosy.live.errors import Conflict, NotFound
from argosy.live.spec import JobSpec
from argosy.live.states import State, Stop
from argosy.live.store import Actor, Job
from argosy.live.store.rows import HELD_S

if TYPE_CHECKING:
    from argosy.live.daemon.service import Service

WHILE_RUNNING = frozenset({"priority", "max_duration", "retries"})  # what can be changed while a job runs


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

    def requeue(self, numbers: Sequence[int], by: Actor = DAEMON, *, hold: bool = False) -> None:
        """Let running jobs save their work and wait for their turn again; the policy may start them again at once.

        With `hold` they do not start until they are released.
        """
        store = self._store
        running = [job.id for job in self._active(numbers) if job.state in (State.STARTING, State.RUNNING)]
        with store.transaction() as changes:
            for number in running:
                job, run = store.jobs[number], store.runs[number]
                if Stop.PREEMPTED.overrules(run.stop):
                    changes.save(replace(job, state=State.STOPPING, not_before_s=HELD_S if hold else job.not_before_s))
                    changes.save_run(replace(run, stop=Stop.PREEMPTED))
                    changes.event(job, "requeued", f"put back into the queue by {by.who}: it saves its work and leaves")
            changes.audit(by, "requeue", jobs=running, detail="held back" if hold else "")
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

    def update(self, numbers: Sequence[int], given: Mapping[str, Any], by: Actor = DAEMON) -> None:
        """Change the job files of jobs that have not ended; `given` are their keys and the new values."""
        jobs = self._active(numbers)
        told = ", ".join(f"{key} {_shown(value)}" for key, value in given.items())
        new = [self._changed(job, given, by) for job in jobs]
        with self._store.transaction() as changes:
            for job in new:
                changes.rewrite(job)
                changes.event(job, "changed-by-hand", f"{told}, by {by.who}")
            changes.audit(by, "update", jobs=[job.id for job in jobs], detail=told[:MAX_DETAIL])
        self._service.changed()

    def _changed(self, job: Job, given: Mapping[str, Any], by: Actor) -> Job:
        if job.state is not State.PENDING and (fixed := sorted(given.keys() - WHILE_RUNNING)):
            what = f"job {job.id} is {job.state}; {', '.join(fixed)} can be changed only while it waits"
            raise Conflict(what, hint=f"put it back into the queue first: argosy requeue --hold {job.id}")
        text = {**job.spec, **{key: value for key, value in given.items() if key != "gpus"}}
        if "gpus" in given:
            text["resources"] = {**text["resources"], "gpus": given["gpus"]}
        try:
            spec = JobSpec.model_validate(text)
        except ValidationError as invalid:
            what, _, hint = invalid.errors()[0]["msg"].removeprefix("Value error, ").partition("; ")
            raise InputError(what, hint=hint or "write it as in a job file") from None
        changed = {"resources" if key == "gpus" else key for key in given}
        check_possible(spec, self._service.cluster)
        if by.role == "user":  # an operator may exceed the owner's limits
            self._service.limits.check_change(job.owner, spec, changed, job.id)
        gpus = spec.resources.gpus
        return replace(
            job,
            name=spec.name,
            queue=spec.queue,
            priority=spec.priority if "priority" in given else job.priority,
            spec_json=spec.model_dump_json(),
            gpus_low=gpus.low,
            gpus_high=gpus.high,
        )

    def resubmit(self, numbers: Sequence[int], by: Actor = DAEMON) -> list[int]:
        """Submit jobs once more for their owners, as they were submitted; return the numbers of the new ones."""
        specs: dict[str, list[JobSpec]] = {}
        for number in numbers:
            job = self._store.job(number)
            if job is None:
                raise NotFound(f"there is no job {number}", hint="see argosy queue -a for the numbers")
            specs.setdefault(job.owner, []).append(self._anew(job))
        return self._service.submit_for(specs, by)

    def _anew(self, job: Job) -> JobSpec:
        """Return the file of a job for a new one: with its index in the array, and only dependencies that are open."""
        known = job.parsed
        after = known.after.only(lambda number: number in self._store.jobs)
        env = known.env | ({} if job.array_index is None else {"ARGOSY_ARRAY_INDEX": str(job.array_index)})
        text = known.model_dump(mode="json", exclude_defaults=True)
        whole = {**text, "workdir": job.workdir, "after": after.model_dump(), "env": env}
        for key in ("array", "hold"):
            whole.pop(key, None)
        return JobSpec.model_validate(whole)

    def _active(self, numbers: Sequence[int]) -> list[Job]:
        found = []
        for number in numbers:
            job = self._store.jobs.get(number)
            if job is None:
                if self._store.job(number) is None:
                    raise NotFound(f"there is no job {number}", hint="see argosy queue -a for the numbers")
                raise Conflict(f"job {number} has ended", hint=f"run it once more: argosy resubmit {number}")
            found.append(job)
        return found

    def _save(self, jobs: Sequence[Job], kind: str, text: str, action: str, by: Actor, detail: str = "") -> None:
        with self._store.transaction() as changes:
            for job in jobs:
                changes.save(job)
                changes.event(job, kind, text)
            changes.audit(by, action, jobs=[job.id for job in jobs], detail=detail)
        self._service.changed()


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):  # a range of GPUs
        sizes = [value["low"], value.get("asks"), value["high"]]
        return "..".join(f"{n:g}" for n in dict.fromkeys(sizes) if n is not None)
    return f"{value:g}" if isinstance(value, float) else str(value)
