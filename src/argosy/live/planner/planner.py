"""The planner of a live cluster: a policy decides here as it does in the simulator.

The planner holds the simulator's engine. Between two decisions it is told what time it is and what has happened; a
decision then says who should run where. What it decides it takes for done: if a job does not start, or falls, it is
told so like anything else.
"""

from __future__ import annotations

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
from argosy.live.planner.job_index import JobIndex, Tracked
from argosy.live.planner.job_kinds import JobKinds
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
from argosy.live.planner.reasons import reasons
from argosy.live.planner.shares import Shares
from argosy.live.planner.takeover import put_back

STATES: dict[NodeState, view.NodeState] = {
    "up": view.NodeState.UP,
    "draining": view.NodeState.DRAINING,
    "down": view.NodeState.DOWN,
}
HOPELESS = "it can never run here: no set of nodes could hold it, even if all were free"
SLIVER = 1e-3  # of its work is left of a job as long as it has not ended
MOST_ENDED = 200_000  # rows of ended jobs, and groups that are over, before it is worth tidying up


class Planner:
    """The engine, and the names that the daemon uses for what is in it."""

    def __init__(self, setup: Setup, snapshot: Snapshot | None = None) -> None:
        self.setup = setup
        self._nodes = {node.name: i for i, node in enumerate(setup.cluster.nodes)}
        self._names = [node.name for node in setup.cluster.nodes]
        self._types = {t.lower() for t in setup.cluster.gpu_types}
        self._kinds = JobKinds(setup.cluster)
        self._durations = Durations()
        self._overheads: dict[str | None, dict[str, float]] = {}
        self._states: dict[str, NodeState] = {}
        self._index = JobIndex()
        self._notes: list[str] = []
        self._refused: dict[int, str] = {}  # found out while taking over, and not told yet
        snapshot = snapshot or Snapshot()
        for ended in snapshot.ended:
            self._durations.learn(ended.facts, ended.work_s)
        self._take_over(snapshot)

    @property
    def now(self) -> float:
        return self._engine.now

    # -- what is told --------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Let time pass: groups take turns, no job ends."""
        self._engine.pass_until(now_s)

    def arrive(self, jobs: Sequence[Active]) -> dict[int, str]:
        """Take in jobs that wait; return those that can never run here, and why. Known ones are left as they are."""
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
        if self._kinds.learn(facts):
            self._rebuild()
        expected = [self._durations.expect(f) for f in facts]
        rows = self._index.rows(self._engine, self._kinds, facts, expected)
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
        """Forget what leaving jobs hold where the plan gives it to somebody else: it must not be placed elsewhere."""
        self.end({id: "withdrawn" for id in homeless if id < 0})

    def end(self, jobs: Mapping[int, How]) -> None:
        """Take in that jobs are over, and learn how long those that completed took."""
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
            self._shares.now.pop(id, None)

    def stop(self, jobs: Iterable[int]) -> None:
        """Take in that jobs hold nothing any more, against the plan (failed, lost, never launched); they wait again."""
        known = [id for id in jobs if id in self._index.jobs]
        self._engine.stop(self._index.jobs[id].index for id in known)
        for id in known:
            self._shares.now.pop(id, None)

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
        """Take in what jobs report, which counts more than what the models assume."""
        here = [r for r in reports if r.job in self._index.jobs]
        self._engine.settle(self._index.jobs[r.job].index for r in here)
        for r in here:
            self._take_report(r, self._index.jobs[r.job])

    def _take_report(self, r: Report, job: Tracked) -> None:
        jobs, row = self._engine.jobs, self._row(r.job)
        if r.progress is not None:
            work, rate = float(jobs.duration_s[row]), float(jobs.measured_rate[row])
            if r.rate is not None and r.rate > 0 and rate > 0:
                if job.measured:  # the work is known: the speed is what is measured
                    self._engine.set_job(job.index, measured_rate=r.rate * work)
                else:
                    work = rate / r.rate
                    self._engine.set_job(job.index, duration_s=work, expected_s=work)
                    job.expected = Expected(work, "measured by its own reports")
                    job.measured = True
            left = 1.0 - min(max(r.progress, 0.0), 1.0)
            self._engine.set_job(job.index, settled_left_s=max(left, SLIVER) * work)
        if r.epoch is not None and r.loss is not None and np.isfinite(r.loss):
            self._engine.losses.setdefault(job.index, {})[float(r.epoch)] = float(r.loss)
        if r.checkpoint_s is not None and r.checkpoint_s > jobs.saved_at[row]:
            self._engine.set_job(
                job.index,
                saved_at=r.checkpoint_s,
                saved_left_s=float(jobs.settled_left_s[row]),
                saved_useful=float(jobs.settled_useful[row]),
            )

    def overheads(self, seconds: Mapping[str | None, Mapping[str, float]]) -> None:
        """Take in measured costs by model: start, suspend, resume, migrate, resize, slice."""
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
        """Let jobs have more GPUs than before, or only fewer, by the limits of their owners."""
        for id, gpus in most.items():
            if id in self._index.jobs:
                job = self._index.jobs[id]
                job.facts = replace(job.facts, max_gpus=gpus)
                self._engine.change_request(job.index, max_gpus=gpus)

    # -- what is answered ----------------------------------------------------------------------------------------

    def update(self, update: Update) -> Decision:
        """Take in all that has happened, and decide."""
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
        """Ask the policy if anything has happened, and say who should be where."""
        began = time.perf_counter_ns()
        engine = self._engine
        engine.pass_until(engine.now)  # turns that ended because somebody left
        asked, policy_ns = ask or engine.needs_decision, 0
        if asked:
            self._tidy_up()
            engine = self._engine
            policy_ns = engine.answer()
        self._shares.read(engine, self._index.ids)
        wake = engine.next_at()
        notes, refused, self._notes, self._refused = tuple(self._notes), self._refused, [], {}
        other = time.perf_counter_ns() - began - policy_ns
        return Decision(
            engine.now,
            dict(self._shares.now),
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
        """Return what the next planner should know beside the database."""
        extra = self._index.state() | {"words": self._kinds.state()}
        return remembering.remember(self._engine, self.setup.policy, self._index.ids, extra)

    def snapshot(self) -> Snapshot:
        """Return all that a new planner needs to go on exactly from here (beside what was learned from ended jobs)."""
        table, now, jobs = self._engine.jobs, self.now, []
        for id, job in self._index.jobs.items():
            row, share = self._row(id), self._shares.now.get(id)
            account = Account(
                float(table.settled_attained[row]),
                float(table.settled_executed_s[row]),
                int(table.runs[row]),
                int(table.preemptions[row]),
                int(table.faults[row]),
                None,
                float(table.wait_since[row]),
            )
            parts, paused = (share.parts, share.paused) if share else ((), False)
            started = float(table.started[row]) if share else None
            jobs.append(Active(job.facts, account, parts, paused, started, float(table.saved_at[row])))
        return Snapshot(now, tuple(jobs), (), dict(self._states), dict(self._overheads), self.memory())

    # -- taking over ---------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Make a new engine with all that is known: new kinds of jobs have come, or too many jobs have ended."""
        self._shares.read(self._engine, self._index.ids)
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
            self._notes.append(f"the memory of the former planner is of no use, and the policy starts anew: {problem}")
            built = build(*about, None, former)
        self._engine, self._index, homeless = built
        waiting = [id for id in homeless if id > 0]
        if waiting:
            self._notes.append(f"jobs {', '.join(map(str, waiting))} cannot be where they are, and wait again")
        self._shares = Shares(self._names, [job.facts.id for job in jobs if job.parts])
        self._shares.read(self._engine, self._index.ids)
        self._refused |= refusals
        self._drop_remnants(homeless)
        self._refuse_hopeless()
        self.overheads(snapshot.overheads)
        self.node_states(snapshot.nodes)

    def _refuse_hopeless(self) -> None:
        """Refuse jobs that wait and could not even run on the empty cluster."""
        jobs = [job for id, job in self._index.jobs.items() if id not in self._shares.now]
        hopeless = self._engine.hopeless_jobs([job.index for job in jobs])
        ids = [jobs[i].facts.id for i in np.flatnonzero(hopeless).tolist()]
        self._refused |= dict.fromkeys(ids, HOPELESS)
        self.end(dict.fromkeys(ids, "withdrawn"))

    def _tidy_up(self) -> None:
        """Drop the rows of ended jobs where nobody remembers their indices."""
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
            return f"it asks for {facts.gpus:g} GPUs, and the cluster has {self.setup.cluster.total_gpus}"
        return ""

    def _row(self, id: int) -> int:
        return self._engine.jobs.row_of(self._index.jobs[id].index)
