"""A mirror of the live cluster, in which a policy decides as it does in the simulator.

The mirror holds the simulator's engine. Between two decisions it is told what time it is and what has happened; a
decision then says who should run where. What it decides it takes for done: if a job does not start, or falls, it is
told so like anything else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from argosy.errors import InputError
from argosy.live.planner import memory as remembering
from argosy.live.planner.build import build
from argosy.live.planner.costs import charge
from argosy.live.planner.expect import Durations, Expected
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
from argosy.live.planner.register import Register, Tracked
from argosy.live.planner.shares import Shares
from argosy.live.planner.takeover import put_back
from argosy.live.planner.vocabulary import Vocabulary
from argosy.mechanism.kernels import layout as L

STATES: dict[NodeState, int] = {"up": L.NODE_UP, "draining": L.NODE_DRAINING, "down": L.NODE_DOWN}
HOWS: dict[How, int] = {"completed": L.ENDED_COMPLETED, "failed": L.ENDED_FAILED, "killed": L.ENDED_KILLED,
                        "cancelled": L.ENDED_CANCELLED, "withdrawn": L.ENDED_CANCELLED}  # fmt: skip
HOPELESS = "it can never run here: no set of nodes could hold it, even if all were free"
SLIVER = 1e-3  # of its work is left of a job as long as it has not ended
MOST_ENDED = 200_000  # rows of ended jobs, and groups that are over, before it is worth tidying up


class Mirror:
    """The engine, and the names that the daemon uses for what is in it."""

    def __init__(self, setup: Setup, snapshot: Snapshot | None = None) -> None:
        self.setup = setup
        self._nodes = {node.name: i for i, node in enumerate(setup.cluster.nodes)}
        self._names = [node.name for node in setup.cluster.nodes]
        self._types = {t.lower() for t in setup.cluster.gpu_types}
        self._vocabulary = Vocabulary(setup.cluster)
        self._durations = Durations()
        self._overheads: dict[str | None, dict[str, float]] = {}
        self._states: dict[str, NodeState] = {}
        self._register = Register()
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
        """Time passes: groups take turns, nobody ends."""
        self._engine.pass_until(now_s)

    def arrive(self, jobs: Sequence[Active]) -> dict[int, str]:
        """Jobs that wait; returns those that can never run here, and why. Known ones are left as they are."""
        refused, new = {}, []
        for job in {job.facts.id: job for job in jobs if job.facts.id not in self._register.jobs}.values():
            text = self._refusal(job.facts)
            if text:
                refused[job.facts.id] = text
            else:
                new.append(job)
        if not new:
            return refused
        facts = [job.facts for job in new]
        if self._vocabulary.learn(facts):
            self._rebuild()
        expected = [self._durations.expect(f) for f in facts]
        rows = self._register.rows(self._engine, self._vocabulary, facts, expected)
        hopeless = self._engine.hopeless(rows)
        for i in np.flatnonzero(hopeless).tolist():
            refused[facts[i].id] = HOPELESS
        kept = np.flatnonzero(~hopeless)
        rows = np.ascontiguousarray(rows[:, kept])
        index = len(self._engine.roll) + np.arange(len(kept))
        self._register.number_apps(rows, [facts[i] for i in kept], index)
        self._engine.append(rows, [f"job {abs(facts[i].id)}" for i in kept])
        homeless: list[int] = []
        for own, i in zip(index.tolist(), kept.tolist()):
            self._register.add(self._engine, facts[i], own, expected[i])
            if new[i].account != Account():
                slots = {facts[i].id: self._slot(facts[i].id)}
                homeless += put_back(self._engine, [new[i]], slots, self._nodes, None)
        self._drop_remnants(homeless)
        return refused

    def _drop_remnants(self, homeless: Iterable[int]) -> None:
        """What a leaving job holds and somebody else has in the plan is not to be placed anywhere else."""
        self.end({id: "withdrawn" for id in homeless if id < 0})

    def end(self, jobs: Mapping[int, How]) -> None:
        """Jobs are over. How long those that completed took is learned."""
        known = {id: how for id, how in jobs.items() if id in self._register.jobs}
        self._engine.tell((L.TOLD_SETTLE, self._register.jobs[id].index, 0) for id in known)
        w = self._engine.world
        for id, how in known.items():
            slot = self._slot(id)
            if how == "completed":
                self._durations.learn(self._register.jobs[id].facts, float(w.jf[L.WORK, slot] - w.jf[L.LEFT, slot]))
        self._engine.tell((L.TOLD_ENDED, self._register.jobs[id].index, HOWS[how]) for id, how in known.items())
        for id in known:
            self._register.drop(self._engine, id)
            self._shares.now.pop(id, None)

    def stop(self, jobs: Iterable[int]) -> None:
        """Jobs hold nothing any more, against the plan: failed, lost, or never launched. They wait again."""
        known = [id for id in jobs if id in self._register.jobs]
        self._engine.tell((L.TOLD_FELL, self._register.jobs[id].index, 0) for id in known)
        for id in known:
            self._shares.now.pop(id, None)

    def node_states(self, states: Mapping[str, NodeState]) -> None:
        for name, state in states.items():
            if name not in self._nodes:
                raise InputError(f"no node is named {name!r}", hint=f"nodes: {', '.join(self._names[:10])}")
            node = self._nodes[name]
            if state == "draining" and self._engine.world.ni[L.N_STATE, node] == L.NODE_DOWN:
                self._engine.tell([(L.TOLD_NODE, node, L.NODE_UP)])
            self._engine.tell([(L.TOLD_NODE, node, STATES[state])])
            self._states[name] = state

    def report(self, reports: Iterable[Report]) -> None:
        """What jobs say of themselves counts more than what the models assume."""
        here = [r for r in reports if r.job in self._register.jobs]
        self._engine.tell((L.TOLD_SETTLE, self._register.jobs[r.job].index, 0) for r in here)
        for r in here:
            self._take_report(r, self._register.jobs[r.job])

    def _take_report(self, r: Report, job: Tracked) -> None:
        w, slot = self._engine.world, self._slot(r.job)
        jf = w.jf
        if r.progress is not None:
            if r.rate is not None and r.rate > 0 and jf[L.RATE, slot] > 0:
                if job.measured:  # the work is known: the speed is what is measured
                    jf[L.RATE, slot] = r.rate * jf[L.WORK, slot]
                else:
                    jf[L.WORK, slot] = jf[L.EXPECTED, slot] = jf[L.RATE, slot] / r.rate
                    job.expected = Expected(float(jf[L.WORK, slot]), "measured by its own reports")
                    job.measured = True
            left = 1.0 - min(max(r.progress, 0.0), 1.0)
            jf[L.LEFT, slot] = max(left, SLIVER) * jf[L.WORK, slot]
        if r.epoch is not None and r.loss is not None and np.isfinite(r.loss):
            self._engine.losses.setdefault(job.index, {})[float(r.epoch)] = float(r.loss)
        if r.checkpoint_s is not None and r.checkpoint_s > jf[L.SAFE_AT, slot]:
            jf[L.SAFE_AT, slot], jf[L.SAFE_LEFT, slot] = r.checkpoint_s, jf[L.LEFT, slot]
            jf[L.SAFE_USEFUL, slot] = jf[L.USEFUL, slot]

    def overheads(self, seconds: Mapping[str | None, Mapping[str, float]]) -> None:
        """Measured costs by model: start, suspend, resume, migrate, resize, slice."""
        for model, costs in seconds.items():
            self._overheads.setdefault(model, {}).update(costs)
        charge(self._engine, self._overheads)

    def priorities(self, priorities: Mapping[int, float]) -> None:
        for id, priority in priorities.items():
            if id in self._register.jobs:
                job = self._register.jobs[id]
                job.facts = replace(job.facts, priority=priority)
                self._engine.world.jf[L.PRIORITY, self._slot(id)] = priority
                self._engine.world.tr[L.PRIORITY, job.index] = priority
                self._engine.world.si[L.DIRTY] = 1

    def most_gpus(self, most: Mapping[int, float]) -> None:
        """Some jobs may be given more GPUs than before, or only fewer, by the limits of their owners."""
        for id, gpus in most.items():
            if id in self._register.jobs:
                job = self._register.jobs[id]
                job.facts = replace(job.facts, max_gpus=gpus)
                self._engine.world.jf[L.MAX_GPUS, self._slot(id)] = gpus
                self._engine.world.tr[L.MAX_GPUS, job.index] = gpus
                self._engine.world.si[L.DIRTY] = 1

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
        asked, policy_ns = ask or engine.is_asking, 0
        if asked:
            self._tidy_up()
            engine = self._engine
            policy_ns = engine.answer()
        self._shares.read(engine, self._register.ids)
        wake = engine.next_at()
        notes, refused, self._notes, self._refused = tuple(self._notes), self._refused, [], {}
        other = time.perf_counter_ns() - began - policy_ns
        return Decision(
            engine.now, dict(self._shares.now), wake if np.isfinite(wake) else None, refused, asked, policy_ns, other,
            notes=notes,
        )  # fmt: skip

    def why(self, jobs: Iterable[int]) -> dict[int, Told]:
        """Why these jobs wait, as of the last decision."""
        return reasons(self._engine, self._register, jobs)

    def memory(self) -> str:
        """What the next planner should know beside the database."""
        extra = self._register.state() | {"words": self._vocabulary.state()}
        return remembering.remember(self._engine, self.setup.policy, self._register.ids, extra)

    def snapshot(self) -> Snapshot:
        """All that a new mirror needs to go on exactly from here (beside what was learned from ended jobs)."""
        w, now, jobs = self._engine.world, self.now, []
        for id, job in self._register.jobs.items():
            slot, share = self._slot(id), self._shares.now.get(id)
            column = w.jf[:, slot]
            account = Account(
                float(column[L.ATTAINED]), float(column[L.EXECUTED]), int(w.ji[L.RUNS, slot]),
                int(w.ji[L.PREEMPTIONS, slot]), int(w.ji[L.FAULTS, slot]), None, float(column[L.WAIT_SINCE]),
            )  # fmt: skip
            parts, paused = (share.parts, share.paused) if share else ((), False)
            started = float(column[L.STARTED]) if share else None
            jobs.append(Active(job.facts, account, parts, paused, started, float(column[L.SAFE_AT])))
        return Snapshot(now, tuple(jobs), (), dict(self._states), dict(self._overheads), self.memory())

    # -- taking over ---------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """A new engine with all that is known: new kinds of jobs have come, or too much of the old one is past."""
        self._shares.read(self._engine, self._register.ids)
        asking = self._engine.is_asking
        self._take_over(self.snapshot(), renumber=not self._engine.policy.state())
        self._engine.world.si[L.DIRTY] |= asking

    def _take_over(self, snapshot: Snapshot, *, renumber: bool = False) -> None:
        memory = remembering.read(snapshot.memory, self.setup.policy)
        former = {id: job.expected for id, job in self._register.jobs.items()}
        refusals = {job.facts.id: text for job in snapshot.jobs if (text := self._refusal(job.facts))}
        jobs = [job for job in snapshot.jobs if job.facts.id not in refusals]
        about = (self.setup, self._vocabulary, self._durations, snapshot.now_s, jobs)
        try:
            built = build(*about, memory, former, renumber=renumber)
        except Exception as problem:
            if memory is None:
                raise
            self._notes.append(f"the memory of the former planner is of no use, and the policy starts anew: {problem}")
            built = build(*about, None, former)
        self._engine, self._register, homeless = built
        waiting = [id for id in homeless if id > 0]
        if waiting:
            self._notes.append(f"jobs {', '.join(map(str, waiting))} cannot be where they are, and wait again")
        self._shares = Shares(self._names, [job.facts.id for job in jobs if job.parts])
        self._shares.read(self._engine, self._register.ids)
        self._refused |= refusals
        self._drop_remnants(homeless)
        self._refuse_hopeless()
        self.overheads(snapshot.overheads)
        self.node_states(snapshot.nodes)

    def _refuse_hopeless(self) -> None:
        """Those who wait, and could not even run on the empty cluster."""
        jobs = [job for id, job in self._register.jobs.items() if id not in self._shares.now]
        rows = self._engine.world.tr[:, [job.index for job in jobs]]
        ids = [jobs[i].facts.id for i in np.flatnonzero(self._engine.hopeless(rows)).tolist()]
        self._refused |= dict.fromkeys(ids, HOPELESS)
        self.end(dict.fromkeys(ids, "withdrawn"))

    def _tidy_up(self) -> None:
        """Rows of ended jobs go where nobody remembers their indices."""
        engine = self._engine
        past, here = len(engine.roll) - len(self._register.jobs), len(self._register.jobs)
        over = int(engine.world.si[L.GROUPS]) > MOST_ENDED
        if over or (past > max(MOST_ENDED, 4 * here) and not engine.policy.state()):
            self._rebuild()

    def _refusal(self, facts: JobFacts) -> str:
        types = [t for t in facts.gpu_types if t.lower() in self._types]
        if facts.gpu_types and not types:
            return f"the cluster has no GPU of type {' or '.join(facts.gpu_types)}"
        if facts.gpus > self.setup.cluster.total_gpus:
            return f"it asks for {facts.gpus:g} GPUs, and the cluster has {self.setup.cluster.total_gpus}"
        return ""

    def _slot(self, id: int) -> int:
        return int(self._engine.world.so[self._register.jobs[id].index])
