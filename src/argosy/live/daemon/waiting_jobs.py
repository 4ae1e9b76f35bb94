"""Follows waiting jobs: those that wait for other jobs or for the end of a back-off, and those that will never run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from argosy.live.daemon import observe
from argosy.live.daemon.observe import Moment
from argosy.live.daemon.reconcile import limits
from argosy.live.dependencies import Met
from argosy.live.states import State, Stop
from argosy.live.store import Job, Store


class WaitingJobs:
    """Knows which waiting jobs may be affected when a job changes or time passes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.new: set[int] = set()  # jobs for which the backend may prepare something
        self._dependants: dict[int, set[int]] = {}  # by job: the jobs that wait for its end
        self._suspects: set[int] = set()  # waiting jobs whose dependencies may have failed
        self._budgeted: set[int] = set()  # waiting jobs whose time budget is running
        self._back_off: list[tuple[float, int]] = []  # heap of the moments at which jobs may run again

    def take_changed(self, now: float) -> set[int]:
        """Return the jobs that have changed in the store, and those that this or the passing of time has released."""
        store = self.store
        changed, store.touched = store.touched, set()
        for number in list(changed):
            job = store.jobs.get(number)
            if job is None:
                waiting = self._dependants.pop(number, set())
                changed |= waiting
                self._suspects |= waiting
            elif job.state is State.PENDING:
                self.new.add(number)
                if job.not_before_s > now and not job.held:
                    heapq.heappush(self._back_off, (job.not_before_s, number))
                for other in job.after:
                    self._dependants.setdefault(other, set()).add(number)
                    self._suspects.add(number)
                if job.started_s is not None and job.parsed.time_budget is not None:
                    self._budgeted.add(number)
        while self._back_off and self._back_off[0][0] <= now:
            changed.add(heapq.heappop(self._back_off)[1])
        return changed

    def ended(self, at: Moment) -> Iterable[Job]:
        """Yield waiting jobs that will never run, as ended."""
        suspects, self._suspects = self._suspects, set()
        for number in sorted(suspects | self._budgeted):
            job = self.store.jobs.get(number)
            if job is None or job.state is not State.PENDING:
                self._budgeted.discard(number)
                continue
            after = job.parsed.after if job.after else None
            if after is not None and after.met(self.store.job_state) is Met.NEVER:
                yield observe.end_waiting(job, State.FAILED, after.broken(self.store.job_state), at)
            elif limits(job, None, at) is Stop.BUDGET:
                yield observe.end_waiting(job, State.SUCCEEDED, "its time budget is used up", at)
