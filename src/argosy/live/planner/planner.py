"""The planner of a live cluster: a policy decides here as it does in the simulator.

The planner holds the simulator's engine. Between two decisions it is told the time and what has happened; a decision
then says which job should run where. The planner assumes that its decisions are carried out: if a job does not start,
or fails, it is told so like anything else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from argosy.cluster import view
from argosy.errors import InputError
from argosy.live.planner import memory as remembering
from argosy.live.planner.build import build
from argosy.live.planner.costs import charge
from argosy.live.planner.durations import Durations, Expected
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.job_index import JobIndex, Tracked
from argosy.live.planner.job_kinds import JobKinds
from argosy.live.planner.job_reports import take_report
from argosy.live.planner.messages import (
    Account,
    Active,
    Decision,
    How,
    JobFacts,
    NodeState,
    Report,
    Setup,
    Snapshot,
    Told,
    Update,
)
from argosy.live.planner.placements import Placements
from argosy.live.planner.reasons import reasons
from argosy.live.planner.recent_arrivals import Recent
from argosy.live.planner.takeover import as_active, put_back
from argosy.mechanism.world import Floats

STATES: dict[NodeState, view.NodeState] = {
    "up": view.NodeState.UP,
    "draining": view.NodeState.DRAINING,
    "down": view.NodeState.DOWN,
}
HOPELESS = "it can never run here: no set of nodes could hold it, even if all were free"
MOST_ENDED = 200_000  # rows of ended jobs, or former groups, after which the engine is built again without them


class Planner:
    """Holds the engine, and translates between the daemon's names and the engine's indices."""

    def __init__(self, setup: Setup, snapshot: Snapshot | None = None) -> None:
        self.setup = setup
        self._nodes = {node.name: i for i, node in enumerate(setup.cluster.nodes)}
        self._names = [node.name for node in setup.cluster.nodes]
        self._types = {t.lower() for t in setup.cluster.gpu_types}
        self._kinds = JobKinds(setup.cluster)
        self._durations = Durations()
        self.recent = Recent()
        self._overheads: dict[str | None, dict[str, float]] = {}
        self._states: dict[str, NodeState] = {}
        self._index = JobIndex()
        self._notes: list[str] = []
        self._refused: dict[int, str] = {}  # jobs that a take-over has refused, until the next decision reports them
        snapshot = snapshot or Snapshot()
        for ended in snapshot.ended:
            self._durations.learn(ended.facts, ended.work_s)
            self.recent.add(ended.facts)
        self._take_over(snapshot)

    @property
    def now(self) -> float:
        return self._engine.now

    # -- what questions about the future read ----------------------------------------------------------------------

    @property
    def engine(self) -> LiveEngine:
        """The engine of this instant; a decision or an arrival may replace it."""
        return self._engine

    @property
    def durations(self) -> Durations:
        """What is known of how long jobs take."""
        return self._durations

    @property
    def jobs(self) -> Mapping[int, Tracked]:
        """The jobs that have not ended, by their numbers."""
        return self._index.jobs

    def job_ids(self) -> list[int]:
        """Return the numbers of the active jobs, in the order of the rows of `engine.jobs`."""
        return [self._index.ids[i] for i in self._engine.jobs.index.tolist()]

    def knows(self, facts: JobFacts) -> bool:
        """Return whether the engine has seen a job of this kind since it was built."""
        return self._kinds.knows(facts)

    def can_take(self, facts: JobFacts) -> bool:
        """Return whether the job can arrive, or be refused, without a new engine."""
        return bool(self._refusal(facts)) or self.knows(facts)

    def columns(self, facts: Sequence[JobFacts], expected: Sequence[Expected]) -> Floats:
        """Return the engine's columns for jobs of known kinds, which need not have been submitted."""
        return self._index.rows(self._engine, self._kinds, facts, expected)

    def know(self, jobs: Sequence[JobFacts], most: float = math.inf) -> None:
        """Make an engine in which jobs of these kinds may arrive, where it can be made: not in a forked copy.

        No kind is added beyond `most`, because each makes the next engine slower to make.
        """
        ahead = [facts for facts in jobs if not self._refusal(facts)]
        if len(self._kinds) < most and self._kinds.learn(ahead):
            self._rebuild()

    def use_durations(self, of: Planner) -> None:
        """Draw the lengths of jobs from what another planner has learned."""
        self._durations = of.durations

    # -- events --------------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Let time pass: groups take turns, but no job ends by itself."""
        self._engine.pass_until(now_s)

    def arrive(self, jobs: Sequence[Active]) -> dict[int, str]:
        """Add waiting jobs; return those that can never run here, and why. Known jobs are left as they are."""
        refused, new = {}, []
        for job in {job.facts.id: job for job in jobs if job.facts.id not in self._index.jobs}.values():
            text = self._refusal(job.facts)
            if text:
                refused[job.facts.id] = text
            else:
                new.append(job)
        if not new:
            return refused
        facts = [job.facts for job in new]
        for known in facts:
            self.recent.add(known)
        if self._kinds.learn(facts):
            self._rebuild()
        expected = [self._durations.expect(f) for f in facts]
        rows = self.columns(facts, expected)
        hopeless = self._engine.hopeless(rows)
        for i in np.flatnonzero(hopeless).tolist():
            refused[facts[i].id] = HOPELESS
        kept = np.flatnonzero(~hopeless)
        rows = np.ascontiguousarray(rows[:, kept])
        index = len(self._engine.job_names) + np.arange(len(kept))
        self._index.number_apps(rows, [facts[i] for i in kept], index)
        self._engine.append(rows, [f"job {abs(facts[i].id)}" for i in kept])
        homeless: list[int] = []
        for own, i in zip(index.tolist(), kept.tolist()):
            self._index.add(self._engine, facts[i], own, expected[i])
            if new[i].account != Account():
                slots = {facts[i].id: self._row(facts[i].id)}
                homeless += put_back(self._engine, [new[i]], slots, self._nodes, None)
        self._drop_remnants(homeless)
        return refused

    def _drop_remnants(self, homeless: Iterable[int]) -> None:
        """Forget what leaving jobs still hold if it cannot be placed there: it must not be placed elsewhere."""
        self.end({id: "withdrawn" for id in homeless if id < 0})

    def end(self, jobs: Mapping[int, How]) -> None:
        """Record that jobs have ended, and learn how long those that completed took."""
        known = {id: how for id, how in jobs.items() if id in self._index.jobs}
        tracked, engine = self._index.jobs, self._engine
        engine.settle(tracked[id].index for id in known)
        for id, how in known.items():
            row = self._row(id)
            if how == "completed":
                done_s = float(engine.jobs.duration_s[row] - engine.jobs.settled_left_s[row])
                self._durations.learn(tracked[id].facts, done_s)
        engine.end({tracked[id].index: "cancelled" if how == "withdrawn" else how for id, how in known.items()})
        for id in known:
            self._index.drop(self._engine, id)
            self._placements.now.pop(id, None)

    def stop(self, jobs: Iterable[int]) -> None:
        """Record that jobs hold nothing although they should run (failed, lost, never launched); they wait again."""
        known = [id for id in jobs if id in self._index.jobs]
        self._engine.stop(self._index.jobs[id].index for id in known)
        for id in known:
            self._placements.now.pop(id, None)

    def node_states(self, states: Mapping[str, NodeState]) -> None:
        for name, state in states.items():
            if name not in self._nodes:
                raise InputError(f"no node is named {name!r}", hint=f"nodes: {', '.join(self._names[:10])}")
            node = self._nodes[name]
            if state == "draining" and self._engine.node_state(node) == view.NodeState.DOWN:
                self._engine.set_node_state(node, view.NodeState.UP)
            self._engine.set_node_state(node, STATES[state])
            self._states[name] = state

    def report(self, reports: Iterable[Report]) -> None:
        """Record what jobs report, which replaces what the models assume."""
        here = [r for r in reports if r.job in self._index.jobs]
        self._engine.settle(self._index.jobs[r.job].index for r in here)
        for r in here:
            take_report(self._engine, r, self._index.jobs[r.job])

    def overheads(self, seconds: Mapping[str | None, Mapping[str, float]]) -> None:
        """Record measured costs by model: start, suspend, resume, migrate, resize, slice."""
        for model, costs in seconds.items():
            self._overheads.setdefault(model, {}).update(costs)
        charge(self._engine, self._overheads)

    def priorities(self, priorities: Mapping[int, float]) -> None:
        for id, priority in priorities.items():
            if id in self._index.jobs:
                job = self._index.jobs[id]
                job.facts = replace(job.facts, priority=priority)
                self._engine.change_request(job.index, priority=priority)

    def most_gpus(self, most: Mapping[int, float]) -> None:
        """Set new upper limits on the GPUs of jobs, after the limits of their owners have changed."""
        for id, gpus in most.items():
            if id in self._index.jobs:
                job = self._index.jobs[id]
                job.facts = replace(job.facts, max_gpus=gpus)
                self._engine.change_request(job.index, max_gpus=gpus)

    # -- decisions -----------------------------------------------------------------------------------------------

    def update(self, update: Update) -> Decision:
        """Record everything that has happened, and decide."""
        began = time.perf_counter_ns()
        self.advance(update.now_s)
        self.node_states(update.nodes)
        self.end(update.ended)
        self.stop(update.stopped)
        refused = self.arrive(update.arrived)
        self.report(update.reports)
        if update.overheads:
            self.overheads(update.overheads)
        self.priorities(update.priorities)
        self.most_gpus(update.most_gpus)
        decision = self.decide(ask=update.ask)
        memory = self.memory() if update.remember else None
        other = time.perf_counter_ns() - began - decision.policy_ns
        return replace(decision, refused={**decision.refused, **refused}, memory=memory, other_ns=other)

    def decide(self, *, ask: bool = False) -> Decision:
        """Ask the policy if anything has happened, and return which job should be where."""
        began = time.perf_counter_ns()
        engine = self._engine
        engine.pass_until(engine.now)  # ends turns whose job has left
        asked, policy_ns = ask or engine.needs_decision, 0
        if asked:
            self._tidy_up()
            engine = self._engine
            policy_ns = engine.answer()
        self._placements.read(engine, self._index.ids)
        wake = engine.next_at()
        notes, refused, self._notes, self._refused = tuple(self._notes), self._refused, [], {}
        other = time.perf_counter_ns() - began - policy_ns
        return Decision(
            engine.now,
            dict(self._placements.now),
            wake if np.isfinite(wake) else None,
            refused,
            asked,
            policy_ns,
            other,
            notes=notes,
        )

    def why(self, jobs: Iterable[int]) -> dict[int, Told]:
        """Return why these jobs wait, as of the last decision."""
        return reasons(self._engine, self._index, jobs)

    def memory(self) -> str:
        """Return what the next planner should know in addition to the database."""
        extra = self._index.state() | {"words": self._kinds.state()}
        return remembering.remember(self._engine, self.setup.policy, self._index.ids, extra)

    def snapshot(self) -> Snapshot:
        """Return what a new planner needs to continue exactly from here, except what ended jobs have taught."""
        placements = self._placements.now
        jobs = [as_active(self._engine, job, placements.get(id)) for id, job in self._index.jobs.items()]
        return Snapshot(self.now, tuple(jobs), (), dict(self._states), dict(self._overheads), self.memory())

    # -- taking over ---------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Replace the engine by a new one in the same state, because of new kinds of jobs or too many ended ones."""
        self._placements.read(self._engine, self._index.ids)
        asking = self._engine.needs_decision
        self._take_over(self.snapshot(), renumber=not self._engine.policy.state())
        if asking:
            self._engine.request_decision()

    def _take_over(self, snapshot: Snapshot, *, renumber: bool = False) -> None:
        memory = remembering.read(snapshot.memory, self.setup.policy)
        former = {id: job.expected for id, job in self._index.jobs.items()}
        refusals = {job.facts.id: text for job in snapshot.jobs if (text := self._refusal(job.facts))}
        jobs = [job for job in snapshot.jobs if job.facts.id not in refusals]
        about = (self.setup, self._kinds, self._durations, snapshot.now_s, jobs)
        try:
            built = build(*about, memory, former, renumber=renumber)
        except Exception as problem:
            if memory is None:
                raise
            self._notes.append(
                f"the memory of the former planner cannot be used, so the policy starts without it: {problem}"
            )
            built = build(*about, None, former)
        self._engine, self._index, homeless = built
        waiting = [id for id in homeless if id > 0]
        if waiting:
            self._notes.append(f"jobs {', '.join(map(str, waiting))} cannot stay where they are, and wait again")
        self._placements = Placements(self._names, [job.facts.id for job in jobs if job.parts])
        self._placements.read(self._engine, self._index.ids)
        self._refused |= refusals
        self._drop_remnants(homeless)
        self._refuse_hopeless()
        self.overheads(snapshot.overheads)
        self.node_states(snapshot.nodes)

    def _refuse_hopeless(self) -> None:
        """Refuse waiting jobs that could not run even on the empty cluster."""
        jobs = [job for id, job in self._index.jobs.items() if id not in self._placements.now]
        hopeless = self._engine.hopeless_jobs([job.index for job in jobs])
        ids = [jobs[i].facts.id for i in np.flatnonzero(hopeless).tolist()]
        self._refused |= dict.fromkeys(ids, HOPELESS)
        self.end(dict.fromkeys(ids, "withdrawn"))

    def _tidy_up(self) -> None:
        """Drop the rows of ended jobs if there are many and the policy does not remember their indices."""
        engine = self._engine
        past, here = len(engine.job_names) - len(self._index.jobs), len(self._index.jobs)
        over = engine.groups_opened > MOST_ENDED
        if over or (past > max(MOST_ENDED, 4 * here) and not engine.policy.state()):
            self._rebuild()

    def _refusal(self, facts: JobFacts) -> str:
        types = [t for t in facts.gpu_types if t.lower() in self._types]
        if facts.gpu_types and not types:
            return f"the cluster has no GPU of type {' or '.join(facts.gpu_types)}"
        if facts.gpus > self.setup.cluster.total_gpus:
            return f"it asks for {facts.gpus:g} GPUs, but the cluster has {self.setup.cluster.total_gpus}"
        return ""

    def _row(self, id: int) -> int:
        return self._engine.jobs.row_of(self._index.jobs[id].index)
