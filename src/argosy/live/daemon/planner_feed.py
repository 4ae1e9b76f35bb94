"""Tells the planner about jobs and nodes: everything when it starts, then only what has changed.

The planner sees jobs that could run: those that wait for other jobs, or for the end of a back-off, are not shown to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from argosy.live import sanitize
from argosy.live.backends.base import RunKey
from argosy.live.daemon.observe import settle
from argosy.live.daemon.planner_facts import ended_jobs, facts, held_parts, overheads, steps_of
from argosy.live.daemon.views import progress
from argosy.live.planner.messages import Account, Active, How, JobFacts, NodeState, Report, Saves, Snapshot, Update
from argosy.live.states import State, Stop
from argosy.live.store import Job, RunRow, Store

MOST_NEWS = 2000  # jobs in one update, so that many changes at once do not block the loop
LATE_S = 2.0  # a run that has not left this long after its stop is shown to the planner as one that stays
FOREVER_S = 1e12
RATE_SPAN_S = 3.0  # a speed is measured over at least this long
HOW: dict[State, How] = {State.SUCCEEDED: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled"}


@dataclass(slots=True)
class Pace:
    """How fast a run makes progress at its present size."""

    generation: int
    version: int
    since_s: float
    progress: float
    rate: float | None = None


@dataclass
class PlannerFeed:
    """Knows what the planner has been told, and collects what it must be told next.

    `known` is what the planner knows of each job: how often it failed, its priority, its owner's limit on it, and its
    job file and the GPU types on which it may start.
    """

    store: Store
    shows: Callable[[Job], bool]  # whether this waiting job could run now
    most_gpus: Callable[[Job], float] = lambda job: math.inf  # by its owner's limits
    types_of: Callable[[Job], tuple[str, ...] | None] = lambda job: None  # GPU types, by the same limits
    known: dict[int, tuple[int, float, float, str, tuple[str, ...] | None]] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)  # jobs to which something may have happened
    nodes: dict[str, NodeState] = field(default_factory=dict)
    said: set[int] = field(default_factory=set)  # jobs with new progress
    blocked: Mapping[int, set[int]] = field(default_factory=dict)  # by waiting job: the runs in its place
    _leaving: dict[RunKey, float] = field(default_factory=dict)  # runs that must leave, and since when
    _remnants: dict[int, RunKey] = field(default_factory=dict)  # late leavers, by their job's negative number
    _pace: dict[int, Pace] = field(default_factory=dict)
    _saved: dict[int, float] = field(default_factory=dict)
    _nodes_told: dict[str, NodeState] = field(default_factory=dict)
    _overheads_told: dict[str | None, dict[str, float]] = field(default_factory=dict)

    def snapshot(self, memory: str | None) -> Snapshot:
        """Return the complete state, for a planner that starts; it includes all changes that were not told yet."""
        store = self.store
        self.touched.clear()
        self.said.clear()
        shown = [job for job in store.jobs.values() if self._visible(job)]
        self.known = {job.id: self._marks(job) for job in shown}
        self._nodes_told, self._overheads_told = dict(self.nodes), overheads(store)
        late = self._late()
        self._remnants = {number: run.key for number, run in late.items()}
        jobs = (*map(self._active, shown), *map(self._remnant, late.values()))
        return Snapshot(
            store.clock.now(), jobs, tuple(ended_jobs(store)), dict(self.nodes), self._overheads_told, memory
        )

    def update(self, ask: bool = False, remember: bool = False) -> Update:
        """Return what has changed since the last update."""
        store = self.store
        arrived: list[Active] = []
        ended: dict[int, How] = {}
        stopped: list[int] = []
        priorities: dict[int, float] = {}
        most_gpus: dict[int, float] = {}
        rewritten: list[int] = []
        told = sorted(self.touched)[:MOST_NEWS]
        for number in told:
            job, before = store.jobs.get(number), self.known.get(number)
            if job is None or not self._visible(job):
                if before is not None:
                    ended[number] = self._how(number)
                    self._forget(number)
                continue
            marks = self.known[number] = self._marks(job)
            if before is None:
                arrived.append(self._active(job))
                continue
            if before[3:] != marks[3:] and number not in store.runs:  # it leaves, and comes back in the next update
                ended[number] = "withdrawn"
                self._forget(number)
                rewritten.append(number)
                continue
            if before[0] != marks[0]:
                stopped.append(number)
            if before[1] != marks[1]:
                priorities[number] = marks[1]
            if before[2] != marks[2]:
                most_gpus[number] = self._facts(job).max_gpus or 0.0
        self.touched.difference_update(told)
        self.touched.update(rewritten)
        late = self._late()
        for number, key in self._remnants.items():
            if number not in late or late[number].key != key:
                ended[number] = "withdrawn"
        for number, run in late.items():
            if self._remnants.get(number) != run.key:
                arrived.append(self._remnant(run))
                stopped += [n for n, others in self.blocked.items() if run.job in others and n in self.known]
        self._remnants = {number: run.key for number, run in late.items()}
        nodes = {name: state for name, state in self.nodes.items() if self._nodes_told.get(name) != state}
        self._nodes_told = dict(self.nodes)
        measured = overheads(store) if ask or self.said else self._overheads_told
        news = {model: kinds for model, kinds in measured.items() if self._overheads_told.get(model) != kinds}
        self._overheads_told = measured
        reports = tuple(self._report(n) for n in sorted(self.said) if n in self.known and n in store.runs)
        self.said.clear()
        return Update(
            store.clock.now(),
            tuple(arrived),
            ended,
            tuple(dict.fromkeys(stopped)),
            nodes,
            reports,
            news,
            priorities,
            remember,
            ask,
            most_gpus,
        )

    @property
    def pressing(self) -> bool:
        """Return whether there is a change that the policy should be told about at once."""
        self.touched = {number for number in self.touched if self._news(number)}
        late = {number: run.key for number, run in self._late().items()}
        return bool(self.touched) or self.nodes != self._nodes_told or late != self._remnants

    def overtaken(self) -> set[int]:
        """Return the jobs with changes that the planner has not been told about yet."""
        return {number for number in self.touched | self.store.touched if self._news(number)}

    def _news(self, number: int) -> bool:
        job = self.store.jobs.get(number)
        if job is None or not self._visible(job):
            return number in self.known
        return self.known.get(number) != self._marks(job)

    def heard(self, number: int, run: RunRow, report: Mapping[str, Any], now: float) -> None:
        """Note a job's progress, and measure its pace."""
        self.said.add(number)
        share = progress(report)
        if share is None:
            return
        pace = self._pace.get(number)
        if pace is None or (pace.generation, pace.version) != (run.generation, run.version) or share < pace.progress:
            self._pace[number] = Pace(run.generation, run.version, now, share)
        elif now - pace.since_s >= RATE_SPAN_S:
            pace.rate = (share - pace.progress) / (now - pace.since_s)

    def pace(self, number: int) -> float | None:
        """Return the share of its work that a job does in a second at its present size, if it was measured."""
        pace, run = self._pace.get(number), self.store.runs.get(number)
        fits = pace is not None and run is not None and (pace.generation, pace.version) == (run.generation, run.version)
        return pace.rate if pace is not None and fits else None

    def saved(self, number: int, now: float) -> None:
        self._saved[number] = now
        self.said.add(number)

    def look_for_leavers(self, now: float) -> None:
        """Note which runs must leave, and since when."""
        stopping = [run.key for run in self.store.runs.values() if run.stop is not None]
        self._leaving = {key: self._leaving.get(key, now) for key in stopping}

    def _late(self) -> dict[int, RunRow]:
        """Return runs that should have left by now, by the negative number of their job.

        Runs on a node that is down are left out: nothing is planned there anyway.
        """
        now, found = self.store.clock.now(), {}
        for key, since in self._leaving.items():
            run = self.store.runs.get(key.job)
            if now - since < LATE_S or run is None or run.key != key:
                continue
            held = held_parts(run)
            if held and all(self.nodes.get(part.node, "up") != "down" for part in held):
                found[-run.job] = run
        return found

    def _remnant(self, run: RunRow) -> Active:
        """Describe a late leaver as a job that may not be stopped, so that the policy looks for other places."""
        job, held, now = self.store.jobs[run.job], held_parts(run), self.store.clock.now()
        known = facts(job, self.store)
        gpus = float(sum(len(part.devices) for part in held))
        scale = gpus / known.gpus if known.gpus else 1.0
        kept = replace(
            known,
            id=-job.id,
            gpus=gpus,
            min_gpus=gpus,
            max_gpus=gpus,
            min_runtime_s=FOREVER_S,
            app=None,
            cpus=None if known.cpus is None else known.cpus * scale,
            memory_gib=None if known.memory_gib is None else known.memory_gib * scale,
        )
        return Active(kept, Account(runs=1), held, False, now)

    def _visible(self, job: Job) -> bool:
        run = self.store.runs.get(job.id)
        if run is None:
            return self.shows(job)
        return run.stop in (None, Stop.PREEMPTED, Stop.MOVED)  # after any other stop the job does not run again

    def _how(self, number: int) -> How:
        state = self.store.job_state(number)
        run = self.store.runs.get(number)
        if run is not None and run.stop is not None and run.stop.cancels:
            return "cancelled"
        if run is not None and run.stop in (Stop.LIMIT, Stop.BUDGET):
            return "killed"
        return HOW.get(state, "withdrawn") if state is not None else "withdrawn"

    def _forget(self, number: int) -> None:
        self.known.pop(number, None)
        self._pace.pop(number, None)
        self._saved.pop(number, None)

    def _active(self, job: Job) -> Active:
        run, now = self.store.runs.get(job.id), self.store.clock.now()
        said = self.store.reports.get(job.id, job.report)
        account = Account(
            job.gpu_s + (settle(run, now).gpu_s if run else 0.0),
            job.run_s + (settle(run, now).run_s if run else 0.0),
            job.generation,
            job.preemptions,
            job.failures + job.losses,
            progress(said),
        )
        if run is None or run.stop is not None:
            return Active(self._facts(job), account)
        saved = self._saved.get(job.id)
        return Active(self._facts(job), account, run.parts, run.paused, run.launched_s, saved, run.batch)

    def _facts(self, job: Job) -> JobFacts:
        """Return the job's facts within its owner's limits, but never below its least size."""
        said, most = facts(job, self.store), self.most_gpus(job)
        said = replace(said, saves=said.saves or ("step" if self._saves(job) else "none"))
        if most < math.inf:  # its owner has a limit, which spare GPUs would exceed
            said = replace(said, spare_gpus=0.0)
        types = self.types_of(job)
        if types is not None:
            said = replace(said, gpu_types=types)
        if said.max_gpus is None or said.max_gpus <= most:
            return said
        gpus = min(said.gpus, most)
        share = max(gpus, 1.0) / max(said.gpus, 1.0)
        return replace(
            said,
            gpus=gpus,
            max_gpus=most,
            cpus=None if said.cpus is None else said.cpus * share,
            memory_gib=None if said.memory_gib is None else said.memory_gib * share,
        )

    def _saves(self, job: Job) -> bool:
        """Return whether a job that does not say so saves its work when it is asked to stop, as far as is known."""
        if job.hot or job.parsed.checkpoint.dir is not None or job.id in self._saved:
            return True
        return job.generation > 0 and bool(self.store.checkpoints(job.id))

    def _marks(self, job: Job) -> tuple[int, float, float, str, tuple[str, ...] | None]:
        return job.failures + job.losses, job.priority, self.most_gpus(job), job.spec_json, self.types_of(job)

    def _report(self, number: int) -> Report:
        said = self.store.reports.get(number, self.store.jobs[number].report)
        metrics = said.get("metrics")
        loss = metrics.get("loss") if isinstance(metrics, Mapping) else None
        pace, job = self._pace.get(number), self.store.jobs[number]
        saves: Saves | None = "step" if job.parsed.saves is None and (job.hot or number in self._saved) else None
        return Report(
            number,
            progress(said),
            pace.rate if pace else None,
            sanitize.number(said.get("epoch")),
            sanitize.number(loss),
            self._saved.get(number),
            saves,
            steps_of(metrics) if self.store.jobs[number].parsed.batch else None,
        )
