"""One pass of the daemon: turns reports of the backend and decisions of the policy into rows and orders.

Everything here is synchronous, and is written in one transaction before it is acted on.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from argosy.live import sanitize
from argosy.live.backends.base import Phase, RunKey, Status
from argosy.live.daemon import observe, pruning
from argosy.live.daemon.dispatcher import Failure
from argosy.live.daemon.health import DaemonHealth
from argosy.live.daemon.limit_enforcement import Headroom, LimitFilter
from argosy.live.daemon.metrics import Metrics
from argosy.live.daemon.observe import Moment, RowUpdate
from argosy.live.daemon.pending_reason import reason, waits_outside
from argosy.live.daemon.planner_feed import PlannerFeed
from argosy.live.daemon.reconcile import Call, Placement, due, limits, reconcile, stop
from argosy.live.daemon.user_limits import LimitBook
from argosy.live.daemon.views import place
from argosy.live.daemon_log import note
from argosy.live.planner.messages import Decision
from argosy.live.states import ENDED, State, Stop
from argosy.live.store import Job, RunRow, Store, Transaction

MISSES, MISSED_S = 3, 3.0  # a run is lost after so many polls in a row without it, and so many seconds


class Bookkeeper:
    """Keeps the rows of jobs and runs true, and says which orders are outstanding."""

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
        )
        self.placements: dict[int, Placement] | None = None  # None: the policy has not answered yet
        self._untouched: set[int] = set()
        self._statuses: dict[RunKey, Status] = {}
        self._strays: dict[RunKey, RunRow] = {}
        self._misses: dict[RunKey, tuple[int, float]] = {}  # polls without a run, and the time of the first
        self._read: dict[RunKey, tuple[int, int]] = {}  # how many lines of story and overheads were recorded, by run
        self._raw: dict[int, Mapping[str, Any]] = {}  # the last report of each job, unsanitized
        self._committed: dict[RunKey, set[str]] = {}
        self.prunable = pruning.candidates(store)  # jobs that may have checkpoints to remove
        self.newly_waiting: set[int] = set()  # jobs for which the backend may prepare something
        self._dependants: dict[int, set[int]] = {}
        self._suspects: set[int] = set()  # waiting jobs whose dependencies may have failed
        self._budgeted: set[int] = set()  # waiting jobs whose time budget is running
        self._back_off: list[tuple[float, int]] = []
        self.taken: Mapping[int, int] = {}  # by job: the newest generation that has a folder, see `reconcile`
        store.touched.update(store.jobs)

    # what the backend reports

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
                if self._unread(status):
                    told.append((job, run, status))
                new = observe.observe(job, run, status, at) or self._limited(job, run, at)
                if new is None and run.key in failures and run.stop is None and status.version < run.version:
                    new = stop(job, run, Stop.MOVED, at)  # it cannot be changed in place
            if new is not None:
                seen.append((new, status))
        ended = list(self._ended_waiting(at))
        if seen or told or ended:
            with store.transaction() as changes:
                for job, run, status in told:
                    self._take_story(changes, job, run, status)
                for new, _ in seen:
                    self._save(changes, new)
                for job in ended:
                    changes.save(job)
                    changes.event(job, job.state.value, job.message)
            for _, run, status in told:
                self._took_story(run, status, at)
            for new, _ in seen:
                self._after(new)
        self._find_strays()
        self._note_touched(at)
        self.feed.look_for_leavers(at.now)

    # what the policy wants

    def decide(self, decision: Decision) -> None:
        """Take over the policy's decision, except for jobs about which it did not have the newest information."""
        running = decision.running.items()
        self.placements = {number: Placement(share.parts, share.paused) for number, share in running if number > 0}
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
        """Change rows towards the placements, and return the orders that are outstanding."""
        store = self.store
        if self.placements is not None:
            hot = {key.job for key, status in self._statuses.items() if status.hot}
            at = self._moment()
            headroom = Headroom(self.limits.of, store.jobs, store.runs)
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

    # inside

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
        for kept in (self._misses, self._read, self._committed):
            kept.pop(new.run.key, None)
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

    def _ended_waiting(self, at: Moment) -> Iterable[Job]:
        """Yield waiting jobs that will never run, as ended."""
        suspects, self._suspects = self._suspects, set()
        for number in sorted(suspects | self._budgeted):
            job = self.store.jobs.get(number)
            if job is None or job.state is not State.PENDING:
                self._budgeted.discard(number)
                continue
            broken = [n for n in job.after if self.store.job_state(n) in ENDED - {State.SUCCEEDED}]
            if broken:
                text = f"job {broken[0]}, which it waits for, did not succeed"
                yield observe.end_waiting(job, State.FAILED, text, at)
            elif limits(job, None, at) is Stop.BUDGET:
                yield observe.end_waiting(job, State.SUCCEEDED, "its time budget is used up", at)

    def _note_touched(self, at: Moment) -> None:
        """Take note of jobs that changed: they may release others, or wait for a while; the planner is told of all."""
        store = self.store
        fresh, store.touched = store.touched, set()
        for number in list(fresh):
            job = store.jobs.get(number)
            if job is None:
                waiting = self._dependants.pop(number, set())
                fresh |= waiting
                self._suspects |= waiting
            elif job.state is State.PENDING:
                self.newly_waiting.add(number)
                if job.not_before_s > at.now:
                    heapq.heappush(self._back_off, (job.not_before_s, number))
                for other in job.after:
                    self._dependants.setdefault(other, set()).add(number)
                    self._suspects.add(number)
                if job.started_s is not None and job.parsed.time_budget is not None:
                    self._budgeted.add(number)
        while self._back_off and self._back_off[0][0] <= at.now:
            fresh.add(heapq.heappop(self._back_off)[1])
        self.limit_filter.touch(fresh)
        self.feed.touched |= fresh | self.limit_filter.settle()

    def _unread(self, status: Status) -> bool:
        """Return whether this run has reported something that is not in the database."""
        key = status.key
        if key not in self._read:
            counts = dict(
                self.store.query(
                    "SELECT kind, count(*) FROM events WHERE job = ? AND generation = ?"
                    " AND kind IN ('story', 'measured')"
                    " GROUP BY kind",
                    (key.job, key.generation),
                )
            )
            self._read[key] = counts.get("story", 0), counts.get("measured", 0)
            self._committed[key] = {c.path for c in self.store.checkpoints(key.job)}
        story, measured = self._read[key]
        if len(status.story) > story or len(status.overheads) > measured:
            return True
        if not status.checkpoints:
            return False
        return any(one.get("path") not in self._committed[key] for one in status.checkpoints)

    def _take_story(self, changes: Transaction, job: Job, run: RunRow, status: Status) -> None:
        story, measured = self._read[run.key]
        for line in status.story[story:]:
            changes.event(job, "story", sanitize.text(line.get("text")))
        for one in status.overheads[measured:]:
            kind, seconds = sanitize.text(one.get("kind"), 40), sanitize.number(one.get("seconds"))
            changes.event(job, "measured", f"{kind} took {seconds} s")
            if seconds is not None and 0 <= seconds < 1e6:
                changes.overhead(job.parsed.model or "", kind, seconds, job.owner)
        for found in observe.good_checkpoints(run, status):
            if changes.checkpoint(job.id, run.generation, found):
                changes.event(job, "saved", f"its work is saved at step {found['step']}")

    def _took_story(self, run: RunRow, status: Status, at: Moment) -> None:
        self._read[run.key] = len(status.story), len(status.overheads)
        if any(one.get("path") not in self._committed[run.key] for one in status.checkpoints):
            self.feed.saved(run.job, at.now)
            self.prunable.add(run.job)
        self._committed[run.key] |= {str(one.get("path")) for one in status.checkpoints}

    def _find_strays(self) -> None:
        """Find runs that have ended by the database but still exist; they hold their devices until they are gone."""
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
            return reason("place-not-free", "an earlier run of it has not quite ended")
        names = ", ".join(str(n) for n in sorted(others) if n > 0) or "a run that is being killed"
        return reason(
            "place-not-free",
            f"its place {where} is still held by job {names}, which is leaving",
            {"behind": sorted(n for n in others if n > 0)},
        )
