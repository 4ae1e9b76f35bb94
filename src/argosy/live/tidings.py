"""What the planner is told: all of it when it starts, then only what has changed.

The planner sees jobs that could run: those that wait for other jobs, or for the end of a back-off, are not shown to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from argosy.live import clean
from argosy.live.observe import settle
from argosy.live.planner.messages import Account, Active, Ended, How, JobFacts, NodeState, Report, Snapshot, Update
from argosy.live.states import ENDED, State, Stop
from argosy.live.store import Job, RunRow, Store, codec
from argosy.live.views import progress

TEACHING = 2000  # ended jobs that a new planner learns durations from
MOST_NEWS = 2000  # jobs in one update: a flood must not hold up the loop
RATE_SPAN_S = 3.0  # a speed is measured over at least this long
HOW: dict[State, How] = {State.SUCCEEDED: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled"}


@dataclass(slots=True)
class Pace:
    """How fast a run gets on at its present size."""

    generation: int
    version: int
    since_s: float
    progress: float
    rate: float | None = None


@dataclass
class Tidings:
    """`known` is what the planner has in its mirror: by job, how often it went wrong, and its priority."""

    store: Store
    shows: Callable[[Job], bool]  # could this waiting job run now?
    known: dict[int, tuple[int, float]] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)  # jobs to which something may have happened
    nodes: dict[str, NodeState] = field(default_factory=dict)
    said: set[int] = field(default_factory=set)  # jobs with news of progress
    _pace: dict[int, Pace] = field(default_factory=dict)
    _saved: dict[int, float] = field(default_factory=dict)
    _nodes_told: dict[str, NodeState] = field(default_factory=dict)
    _overheads_told: dict[str | None, dict[str, float]] = field(default_factory=dict)

    def snapshot(self, memory: str | None) -> Snapshot:
        """Everything, for a planner that starts; what was not yet told is told with it."""
        store = self.store
        self.touched.clear()
        self.said.clear()
        shown = [job for job in store.jobs.values() if self._visible(job)]
        self.known = {job.id: _marks(job) for job in shown}
        self._nodes_told, self._overheads_told = dict(self.nodes), overheads(store)
        return Snapshot(
            store.clock.now(), tuple(map(self._active, shown)), tuple(_ended(store)), dict(self.nodes),
            self._overheads_told, memory,
        )  # fmt: skip

    def update(self, ask: bool = False, remember: bool = False) -> Update:
        """What has changed since the last one."""
        store = self.store
        arrived: list[Active] = []
        ended: dict[int, How] = {}
        stopped: list[int] = []
        priorities: dict[int, float] = {}
        told = sorted(self.touched)[:MOST_NEWS]
        for number in told:
            job, before = store.jobs.get(number), self.known.get(number)
            if job is None or not self._visible(job):
                if before is not None:
                    ended[number] = self._how(number)
                    self._forget(number)
                continue
            marks = self.known[number] = _marks(job)
            if before is None:
                arrived.append(self._active(job))
                continue
            if before[0] != marks[0]:
                stopped.append(number)
            if before[1] != marks[1]:
                priorities[number] = marks[1]
        self.touched.difference_update(told)
        nodes = {name: state for name, state in self.nodes.items() if self._nodes_told.get(name) != state}
        self._nodes_told = dict(self.nodes)
        measured = overheads(store) if ask or self.said else self._overheads_told
        news = {model: kinds for model, kinds in measured.items() if self._overheads_told.get(model) != kinds}
        self._overheads_told = measured
        reports = tuple(self._report(n) for n in sorted(self.said) if n in self.known and n in store.runs)
        self.said.clear()
        return Update(
            store.clock.now(), tuple(arrived), ended, tuple(stopped), nodes, reports, news, priorities, remember, ask
        )

    @property
    def pressing(self) -> bool:
        """Is there news that the policy should hear at once?"""
        self.touched = {number for number in self.touched if self._news(number)}
        return bool(self.touched) or self.nodes != self._nodes_told

    def overtaken(self) -> set[int]:
        """Jobs to which something happened that the planner has not heard of yet."""
        return {number for number in self.touched | self.store.touched if self._news(number)}

    def _news(self, number: int) -> bool:
        job = self.store.jobs.get(number)
        if job is None or not self._visible(job):
            return number in self.known
        return self.known.get(number) != _marks(job)

    def heard(self, number: int, run: RunRow, report: Mapping[str, Any], now: float) -> None:
        """A job told its progress: measure its pace."""
        self.said.add(number)
        share = progress(report)
        if share is None:
            return
        pace = self._pace.get(number)
        if pace is None or (pace.generation, pace.version) != (run.generation, run.version) or share < pace.progress:
            self._pace[number] = Pace(run.generation, run.version, now, share)
        elif now - pace.since_s >= RATE_SPAN_S:
            pace.rate = (share - pace.progress) / (now - pace.since_s)

    def saved(self, number: int, now: float) -> None:
        self._saved[number] = now
        self.said.add(number)

    def _visible(self, job: Job) -> bool:
        run = self.store.runs.get(job.id)
        if run is None:
            return self.shows(job)
        return run.stop in (None, Stop.PREEMPTED, Stop.MOVED)  # any other stop is its last

    def _how(self, number: int) -> How:
        state = self.store.job_state(number)
        run = self.store.runs.get(number)
        if run is not None and run.stop is Stop.CANCELLED:
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
            job.gpu_s + (settle(run, now).gpu_s if run else 0.0), job.run_s + (settle(run, now).run_s if run else 0.0),
            job.generation, job.preemptions, job.failures + job.losses, progress(said),
        )  # fmt: skip
        if run is None or run.stop is not None:
            return Active(facts(job, self.store), account)
        return Active(
            facts(job, self.store), account, run.parts, run.paused, run.launched_s, self._saved.get(job.id)
        )

    def _report(self, number: int) -> Report:
        said = self.store.reports.get(number, self.store.jobs[number].report)
        metrics = said.get("metrics")
        loss = metrics.get("loss") if isinstance(metrics, Mapping) else None
        pace = self._pace.get(number)
        return Report(
            number, progress(said), pace.rate if pace else None, clean.number(said.get("epoch")), clean.number(loss),
            self._saved.get(number),
        )  # fmt: skip


def facts(job: Job, store: Store) -> JobFacts:
    spec = job.parsed
    deadline = None
    if spec.deadline is not None:  # told by the wall clock, kept by ours
        deadline = store.clock.now() + spec.deadline.timestamp() - store.clock.wall()
    app = None if job.array_id is None else f"array-{job.array_id}"
    said = JobFacts.of(spec, job.id, submitted_s=job.submitted_s, user=job.owner, deadline_s=deadline, app=app)
    return replace(said, priority=job.priority)


def overheads(store: Store) -> dict[str | None, dict[str, float]]:
    """Mean of what was measured lately, by model and kind."""
    found: dict[str | None, dict[str, float]] = {}
    for model, kind, seconds in store.query("SELECT model, kind, avg(seconds) FROM overheads GROUP BY model, kind"):
        found.setdefault(model or None, {})[kind] = seconds
    return found


def _marks(job: Job) -> tuple[int, float]:
    return job.failures + job.losses, job.priority


def _ended(store: Store) -> Iterable[Ended]:
    states = ", ".join(f"'{state.value}'" for state in sorted(ENDED))
    sql = (
        f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE state IN ({states}) AND generation > 0"
        " ORDER BY ended_s DESC LIMIT ?"
    )
    for row in reversed(store.query(sql, (TEACHING,))):
        job = codec.job_of(row)
        asked = job.parsed.resources.gpus.asked
        yield Ended(facts(job, store), job.gpu_s / asked if asked else job.run_s, job.gpu_s)
