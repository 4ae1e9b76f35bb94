"""Turns the reports of the backend and the decisions of the policy into rows and orders, in each pass of the daemon.

Everything here is synchronous. Changes are written in a transaction before anything is done about them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from argosy.live import sanitize
from argosy.live.backends.base import Phase, Placement, RunKey, Status
from argosy.live.daemon import observe, pruning
from argosy.live.daemon.dispatcher import Failure
from argosy.live.daemon.health import DaemonHealth
from argosy.live.daemon.limit_enforcement import Headroom, LimitFilter
from argosy.live.daemon.metrics import Metrics
from argosy.live.daemon.observe import Moment, RowUpdate
from argosy.live.daemon.pending_reason import reason, waits_outside
from argosy.live.daemon.planner_feed import PlannerFeed
from argosy.live.daemon.reconcile import Call, due, limits, reconcile, stop
from argosy.live.daemon.story_recorder import StoryRecorder
from argosy.live.daemon.user_limits import LimitBook
from argosy.live.daemon.views import place
from argosy.live.daemon.waiting_jobs import WaitingJobs
from argosy.live.daemon_log import note
from argosy.live.planner.messages import Decision
from argosy.live.states import State, Stop
from argosy.live.store import Job, RunRow, Store, Transaction

MISSES, MISSED_S = 3, 3.0  # a run counts as lost after this many polls in a row, and seconds, without it


class Bookkeeper:
    """Keeps the rows of jobs and runs up to date, and returns the orders that are outstanding."""

    def __init__(
        self,
        store: Store,
        health: DaemonHealth,
        metrics: Metrics,
        pauses_cold: bool = True,
        limits: LimitBook | None = None,
    ) -> None:
        self.store, self.health, self.metrics, self.pauses_cold = store, health, metrics, pauses_cold
        self.limits = limits or LimitBook(store)
        self.limit_filter = LimitFilter(store, self.limits, lambda job: waits_outside(job, store) is None)
        health.limited = self.limit_filter.reason
        self.feed = PlannerFeed(
            store,
            lambda job: waits_outside(job, store) is None and self.limit_filter.shows(job),
            self.limit_filter.most_gpus,
            self.limit_filter.types_of,
        )
        self.placements: dict[int, Placement] | None = None  # None: the policy has not answered yet
        self._untouched: set[int] = set()
        self._statuses: dict[RunKey, Status] = {}
        self._strays: dict[RunKey, RunRow] = {}
        self._misses: dict[RunKey, tuple[int, float]] = {}  # polls without a run, and the time of the first
        self._raw: dict[int, Mapping[str, Any]] = {}  # the last report of each job, unsanitized
        self._stories = StoryRecorder(store)
        self.prunable = pruning.candidates(store)  # jobs that may have checkpoints to remove
        self.waiting = WaitingJobs(store)
        self.taken: Mapping[int, int] = {}  # by job: the newest generation that has a folder, see `reconcile`
        store.touched.update(store.jobs)

    # reports of the backend

    def take_in(
        self,
        statuses: Iterable[Status],
        failures: Mapping[RunKey, Failure] | None = None,
        under_way: Callable[[RunKey], bool] = lambda key: False,
        adopted: bool = False,
    ) -> None:
        """Record what these statuses and failed launches mean for jobs and runs."""
        store, at = self.store, self._moment()
        failures = failures or {}
        self._statuses = {status.key: status for status in statuses}
        self._note_touched(at)
        seen: list[tuple[RowUpdate, Status | None]] = []
        told: list[tuple[Job, RunRow, Status]] = []
        for number, run in store.runs.items():
            job, status = store.jobs[number], self._statuses.get(run.key)
            if status is None:
                new = self._absent(job, run, failures.get(run.key), under_way, adopted, at)
            else:
                self._misses.pop(run.key, None)
                if status.report and status.report != self._raw.get(number):
                    self._raw[number] = status.report
                    store.reports[number] = said = sanitize.report(status.report)
                    self.feed.heard(number, run, said, at.now)
                if self._stories.unread(status):
                    told.append((job, run, status))
                new = observe.observe(job, run, status, at) or self._limited(job, run, at)
                if new is None and run.key in failures and run.stop is None and status.version < run.version:
                    new = stop(job, run, Stop.MOVED, at)  # it cannot be changed in place
            if new is not None:
                seen.append((new, status))
        ended = list(self.waiting.ended(at))
        if seen or told or ended:
            with store.transaction() as changes:
                for job, run, status in told:
                    self._stories.record(changes, job, run, status)
                for new, _ in seen:
                    self._save(changes, new)
                for job in ended:
                    changes.save(job)
                    changes.event(job, job.state.value, job.message)
            for _, run, status in told:
                if self._stories.recorded(run, status):
                    self.feed.saved(run.job, at.now)
                    self.prunable.add(run.job)
            for new, _ in seen:
                self._after(new)
        self._find_strays()
        self._note_touched(at)
        self.feed.look_for_leavers(at.now)

    # decisions of the policy

    def decide(self, decision: Decision) -> None:
        """Take over the policy's decision, except for jobs about which it did not have the newest information."""
        self.placements = {number: placement for number, placement in decision.running.items() if number > 0}
        self._untouched = self.feed.overtaken()
        self.health.decided_s = self.store.clock.now()
        at = self._moment()
        refused = [(self.store.jobs[n], why) for n, why in decision.refused.items() if n in self.store.jobs]
        waiting = [(job, why) for job, why in refused if job.state is State.PENDING]
        if waiting:
            with self.store.transaction() as changes:
                for job, why in waiting:
                    text = f"it can never run here: {why}"
                    changes.save(observe.end_waiting(job, State.FAILED, text, at))
                    changes.event(job, "failed", text)

    def act(self) -> dict[RunKey, Call]:
        """Update the rows so that runs follow the placements, and return the orders that are outstanding."""
        store = self.store
        if self.placements is not None:
            hot = {key.job for key, status in self._statuses.items() if status.hot}
            at = self._moment()
            headroom = Headroom(self.limits.of, store.jobs, store.runs, self.limits.type_of)
            outcome = reconcile(
                store.jobs,
                store.runs,
                self.placements,
                self._untouched,
                hot,
                self._strays.values(),
                at,
                self.pauses_cold,
                self.taken,
                headroom,
            )
            if outcome.updates:
                with store.transaction() as changes:
                    for new in outcome.updates:
                        self._save(changes, new)
                for new in outcome.updates:
                    self._count(new)
            self.feed.blocked = outcome.blocked
            self.health.starts = {number: self._blocked(number, others) for number, others in outcome.blocked.items()}
        return due(store.runs, self._statuses)

    def stop_everything(self) -> None:
        """Stop following the policy, and let every run save its work and leave."""
        self.placements, at = None, self._moment()
        with self.store.transaction() as changes:
            for number, run in self.store.runs.items():
                if run.stop is None:
                    self._save(changes, stop(self.store.jobs[number], run, Stop.PREEMPTED, at))

    # helpers

    def _moment(self) -> Moment:
        return Moment(self.store.clock.now(), self.store.clock.wall())

    def _save(self, changes: Transaction, new: RowUpdate) -> None:
        changes.save(new.job)
        changes.save_run(new.run)
        for kind, text in new.events:
            changes.event(new.job, kind, text)

    def _after(self, new: RowUpdate) -> None:
        """Update metrics, and forget what was remembered about a run that has ended."""
        self._count(new)
        if new.run.ended_s is None:
            return
        self.prunable.add(new.job.id)
        self._raw.pop(new.job.id, None)
        self._misses.pop(new.run.key, None)
        self._stories.forget(new.run.key)
        planned = new.run.stop in (Stop.PREEMPTED, Stop.MOVED) and new.job.state is State.PENDING
        if self.placements is not None and not planned:
            self.placements.pop(new.job.id, None)  # the policy must be told before it runs again

    def _count(self, new: RowUpdate) -> None:
        for kind, text in new.events:
            counter = {
                "starting": self.metrics.starts,
                "resizing": self.metrics.resizes,
                "moving": self.metrics.moves,
                "failed": self.metrics.failures,
                "lost": self.metrics.losses,
            }.get(kind)
            if counter is not None:
                counter.inc()
            if kind == "suspended" and new.run.stop is Stop.PREEMPTED:
                self.metrics.preemptions.inc()
            note(text, logging.DEBUG, job=new.job.id, generation=new.run.generation, kind=kind)

    def _absent(
        self,
        job: Job,
        run: RunRow,
        failure: Failure | None,
        under_way: Callable[[RunKey], bool],
        adopted: bool,
        at: Moment,
    ) -> RowUpdate | None:
        """Decide about a run that the backend does not report."""
        if under_way(run.key):
            return None
        if run.running_s is None and run.stop is None:
            return observe.launch_failed(job, run, failure.problem, failure.final, at) if failure else None
        misses, since = self._misses.get(run.key, (0, at.now))
        self._misses[run.key] = misses + 1, since
        if adopted or (misses + 1 >= MISSES and at.now - since >= MISSED_S):
            return observe.missing(job, run, at)
        return None

    def _limited(self, job: Job, run: RunRow, at: Moment) -> RowUpdate | None:
        why = limits(job, run, at)
        return None if why is None else stop(job, run, why, at)

    def _note_touched(self, at: Moment) -> None:
        """Pass on which jobs have changed, because the limits of their owners may now let other jobs run."""
        changed = self.waiting.take_changed(at.now)
        self.limit_filter.touch(changed)
        self.feed.touched |= changed | self.limit_filter.settle()

    def _find_strays(self) -> None:
        """Find runs that exist although their row has ended; they hold their devices until they are gone."""
        strays: dict[RunKey, RunRow] = {}
        for key, status in self._statuses.items():
            current = self.store.runs.get(key.job)
            if status.phase is Phase.EXITED or (current is not None and current.generation == key.generation):
                continue
            row = self._strays.get(key) or self.store.run(key.job, key.generation)
            if key not in self._strays:
                self.metrics.fenced.inc()
                note(
                    "a run that has ended still exists: it is killed",
                    logging.WARNING,
                    job=key.job,
                    generation=key.generation,
                )
            if row is not None:
                strays[key] = row
        self._strays = strays

    def _blocked(self, number: int, others: set[int]) -> dict[str, object]:
        assert self.placements is not None
        if not others:
            return reason("limit", f"{self.store.jobs[number].owner} already holds as much as the limits allow")
        where = " ".join(place(part) for part in self.placements[number].parts)
        if others == {number}:
            return reason("place-not-free", "an earlier run of the job is still being ended")
        names = ", ".join(str(n) for n in sorted(others) if n > 0) or "a run that is being killed"
        return reason(
            "place-not-free",
            f"its place {where} is still held by job {names}, which is leaving",
            {"behind": sorted(n for n in others if n > 0)},
        )
