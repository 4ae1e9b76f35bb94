"""KAI: a tree of queues gets quotas, shares of the rest by weight, and takes back what others have beyond their share.

Decision: the fair share of every queue is computed (`shares.py`). Waiting jobs are then served queue by queue: first on
free GPUs, whatever the share; else by moving at most `most_moves` jobs together (consolidation); else by stopping jobs
of other queues that hold more than their share, if this queue stays within its own (reclaim); else by stopping jobs of
lower priority in the same queue (preemption). Jobs of priority 100 are never stopped, and start only within the quota.
State used: demands, queues, priorities, placements, nodes, GPU-time received.
Parameters: `window_s`, over which past use counts against a queue (0: it does not); `against_usage`, how much;
`half_life_s`, after which past use counts half (0: it does not fade); `most_moves`; `reclaim_multiplier`, by how much
a queue beyond its share must stay below the queue that it takes from.
Differences from the paper: there is no paper; rebuilt from the documentation and the source. Only GPUs are shared: CPUs
and memory have no quotas. A cycle takes place when something happens, not every second. Jobs have the size that they
ask for, so gangs are never partly there. Jobs of a queue that has queues below it share as one more queue there,
without a quota. Minimum run times are the run's.
References: NVIDIA KAI-Scheduler, docs and pkg/scheduler.

    order: share not exceeded, within quota, priority, held(q) / A(q), A(q), age    A = min(limit, max(quota, share))
    reclaim: held(q) + asked ≤ share(q), and the victim's queue holds more than its A (or than its quota)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, JobState, View
from argosy.errors import InputError
from argosy.mechanism.compose import Walk
from argosy.mechanism.plan import Plan, Why
from argosy.policies.base import Event, Floats, Ints, Policy, register
from argosy.policies.common.matching import make_room
from argosy.policies.common.remaining_work import ENDS
from argosy.policies.kai.shares import Claims, by_queue, down_the_tree, up_the_tree
from argosy.policies.kai.usage import Usage
from argosy.slack import GPU_SLACK

FIXED_PRIORITY = 100.0  # jobs of this priority are not stopped
WEEK_S = 7 * 86400.0


@register("kai", "a tree of queues: quotas, shares by weight, reclaim and consolidation", "NVIDIA KAI-Scheduler")
class Kai(Policy):
    uses = frozenset({"demand", "service", "placement", "nodes"})
    hears = ENDS
    preemptive = True

    def __init__(
        self,
        window_s: float = WEEK_S,
        against_usage: float = 1.0,
        half_life_s: float = 0.0,
        most_moves: int = 16,
        reclaim_multiplier: float = 1.0,
    ) -> None:
        for name, value, least in (
            ("window_s", window_s, 0.0),
            ("against_usage", against_usage, 0.0),
            ("most_moves", most_moves, 0),
            ("reclaim_multiplier", reclaim_multiplier, 1.0),
        ):
            if not least <= value < np.inf:
                raise InputError(f"kai: {name} must be at least {least:g}, is {value}")
        if not 0 <= half_life_s < np.inf:
            raise InputError(f"kai: half_life_s must be a time ≥ 0, is {half_life_s}")
        self.window_s, self.against_usage, self.half_life_s = window_s, against_usage, half_life_s
        self.most_moves, self.multiplier = most_moves, reclaim_multiplier

    def reset(self, context: Context) -> None:
        queues = len(context.queues)
        self._limit, self._weight = context.queue_limits, context.queue_weights
        empty = np.zeros(queues)
        self._quota = empty if context.queue_quotas is None else context.queue_quotas
        self._priority = empty if context.queue_priorities is None else context.queue_priorities
        self._parent = np.full(queues, -1) if context.queue_parents is None else context.queue_parents
        self._usage = Usage(queues, self.window_s, self.half_life_s) if self.window_s else None

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        if not len(jobs):
            return Plan.keep(view)
        cycle = Cycle(self, view)
        walk = cycle.walk
        for row in np.flatnonzero((jobs.state == JobState.WAITING) & (jobs.gpus == 0)).tolist():
            walk.start(row)
        waiting = [r for r in cycle.by_priority if jobs.state[r] == JobState.WAITING and jobs.gpus[r] > 0]
        left = []
        while waiting:
            row = cycle.next_of(waiting)
            waiting.remove(row)
            if cycle.may_start(row) and walk.start(row):
                cycle.count(row, 1.0)
            else:
                left.append(row)
        while left:
            row = cycle.next_of(left)
            left.remove(row)
            if cycle.may_start(row) and (cycle.consolidate(row) or cycle.reclaim(row) or cycle.preempt(row)):
                cycle.count(row, 1.0)
        return walk.plan

    def on_event(self, event: Event) -> None:
        if self._usage is not None:
            self._usage.on_event(event)

    def state(self) -> dict[str, Any]:
        return {} if self._usage is None else self._usage.state()

    def restore(self, state: dict[str, Any]) -> None:
        if self._usage is not None and state:
            self._usage.restore(state)

    def shares(self, view: View, asked: Floats) -> Floats:
        """Return the GPUs that each queue is due; `asked` are those that its own jobs hold and wait for."""
        nodes, parent = view.nodes, self._parent
        total = float(nodes.gpus @ (nodes.state == 0))
        usage = np.zeros(0) if self._usage is None else self._usage.of(view, total)
        # the jobs of a queue that has queues below it count as one more queue among those
        own = np.flatnonzero(np.isin(np.arange(len(parent)), parent) & (asked > 0))
        wide = np.append(parent, own)
        want = np.append(np.where(np.isin(np.arange(len(parent)), own), 0.0, asked), asked[own])
        want = up_the_tree(want, wide)
        want[: len(parent)] = np.minimum(want[: len(parent)], self._limit)
        more = np.zeros(len(own))
        if len(usage):
            usage = up_the_tree(np.append(np.where(np.isin(np.arange(len(parent)), own), 0.0, usage), usage[own]), wide)
        quota, weight = np.append(self._quota, more), np.append(self._weight, more + 1.0)
        claims = Claims(want, quota, weight, np.append(self._priority, more), usage)
        return down_the_tree(total, claims, wide, self.against_usage)[: len(parent)]

    def above(self, queue: int) -> list[int]:
        """Return a queue and those above it, from the top."""
        path = [queue]
        while self._parent[path[0]] >= 0:
            path.insert(0, int(self._parent[path[0]]))
        return path


class Cycle:
    """One decision: what queues are due and hold, and the plan in the making."""

    def __init__(self, policy: Kai, view: View) -> None:
        jobs = view.jobs
        self._policy, self._view = policy, view
        self._quota, self._limit, self._priority = policy._quota, policy._limit, policy._priority
        queues = len(self._quota)
        self._held = up_the_tree(by_queue(jobs.queue, jobs.held, queues), policy._parent)
        fixed = jobs.held * (jobs.priority >= FIXED_PRIORITY)
        self._fixed = up_the_tree(by_queue(jobs.queue, fixed, queues), policy._parent)
        waits = np.where(jobs.state == JobState.WAITING, jobs.gpus, 0.0)
        self._share = policy.shares(view, by_queue(jobs.queue, jobs.held + waits, queues))
        self._allowed = np.minimum(self._limit, np.maximum(self._quota, self._share))
        never = (jobs.priority >= FIXED_PRIORITY) | (jobs.peer >= 0)
        self.walk = Walk(view, self._place, limits=policy._limit, fixed=never, fitting=True)
        self.by_priority = np.lexsort((jobs.index, -jobs.priority)).tolist()
        self._paths = {q: policy.above(q) for q in np.unique(jobs.queue).tolist()}

    def next_of(self, rows: list[int]) -> int:
        """Return the job that is next: the queue at each level of the tree that is most behind, then its first job."""
        queue = self._view.jobs.queue
        first: dict[int, int] = {}
        for row in rows:
            first.setdefault(int(queue[row]), row)
        return min(first.values(), key=lambda row: [self._rank(q, row) for q in self._paths[int(queue[row])]])

    def _rank(self, q: int, row: int) -> tuple[float, ...]:
        held, asked = float(self._held[q]), float(self._view.jobs.gpus[row])
        after, allowed = held + asked, float(self._allowed[q])
        return (
            held >= self._share[q] - GPU_SLACK and held > 0,
            after > self._quota[q] + GPU_SLACK,
            -float(self._priority[q]),
            allowed <= 0,
            after / allowed if allowed > 0 else 0.0,
            allowed,
            q,
        )

    def may_start(self, row: int) -> bool:
        """Return whether limits allow the job, and quotas one that is never stopped."""
        jobs = self._view.jobs
        path, asked = self._paths[int(jobs.queue[row])], float(jobs.gpus[row])
        within = all(self._held[q] + asked <= self._limit[q] + GPU_SLACK for q in path)
        if jobs.priority[row] >= FIXED_PRIORITY and any(self._quota[q] for q in path):
            within = within and all(self._fixed[q] + asked <= self._quota[q] + GPU_SLACK for q in path)
        return within

    def count(self, row: int, sign: float) -> None:
        """Count what a job holds from now on, or holds no longer."""
        jobs = self._view.jobs
        gpus = float(jobs.gpus[row] if sign > 0 else jobs.held[row])
        for q in self._paths[int(jobs.queue[row])]:
            self._held[q] += sign * gpus
            self._fixed[q] += sign * gpus * (jobs.priority[row] >= FIXED_PRIORITY)

    def consolidate(self, row: int) -> bool:
        """Move jobs together so that a gang fits on free GPUs."""
        reason = self.walk.plan.reasons.get(row)
        if reason is None or reason.why is Why.QUOTA or not self._policy.most_moves:
            return False
        jobs = self._view.jobs
        movable = np.flatnonzero((jobs.state == JobState.RUNNING) & (jobs.priority < FIXED_PRIORITY))
        found = make_room(self._view, self.walk, row, movable, self._policy.most_moves)
        return found is not None and self.walk.rearrange(found.places)

    def reclaim(self, row: int) -> bool:
        """Stop jobs of other queues that have more than their share."""
        jobs = self._view.jobs
        queue, asked = int(jobs.queue[row]), float(jobs.gpus[row])
        mine = self._paths[queue]
        if any(self._held[q] + asked > self._share[q] + GPU_SLACK for q in mine):
            return False
        held = self._held.copy()
        victims = []
        for other in self._least_deserving():
            theirs = self._paths[int(jobs.queue[other])]
            if theirs[-1] == queue or not self._runs(other):
                continue
            common = sum(a == b for a, b in zip(mine, theirs))
            if common < min(len(mine), len(theirs)) and self._may_take(held, mine[common], theirs[common], asked):
                victims.append(other)
                for q in theirs:
                    held[q] -= jobs.held[other]
        return self._make_way(row, victims)

    def _may_take(self, held: Floats, mine: int, theirs: int, asked: float) -> bool:
        """Return whether a queue may take from another one with the same parent."""
        after = self._held[mine] + asked
        if held[theirs] > self._allowed[theirs] + GPU_SLACK:
            ratio = after / self._share[mine] if self._share[mine] > 0 else np.inf
            sibling = held[theirs] / self._share[theirs] if self._share[theirs] > 0 else np.inf
            return bool(ratio <= 1 + GPU_SLACK or ratio * self._policy.multiplier < sibling)
        return bool(held[theirs] > self._quota[theirs] + GPU_SLACK and after <= self._quota[mine] + GPU_SLACK)

    def preempt(self, row: int) -> bool:
        """Stop jobs of lower priority in the same queue."""
        jobs = self._view.jobs
        lower = (jobs.queue == jobs.queue[row]) & (jobs.priority < jobs.priority[row])
        return self._make_way(row, [r for r in self._least_deserving() if lower[r] and self._runs(r)])

    def _least_deserving(self) -> list[int]:
        """Return the running jobs, those to be stopped first at the front: lowest priority, latest submission."""
        jobs = self._view.jobs
        able = (jobs.state == JobState.RUNNING) & (jobs.priority < FIXED_PRIORITY) & (jobs.gpus > 0)
        excess = self._held[jobs.queue] / np.maximum(self._allowed[jobs.queue], GPU_SLACK)
        rows = np.lexsort((-jobs.index, jobs.priority, -excess))
        return [int(r) for r in rows if able[r]]

    def _runs(self, row: int) -> bool:
        return self.walk.runs(row) and row not in self.walk.plan.placements

    def _make_way(self, row: int, victims: list[int]) -> bool:
        if not victims or not self.walk.make_way(row, victims[::-1]):
            return False
        for other in victims:
            if other in self.walk.plan.stops:
                self.count(other, -1.0)
        return True

    def _place(self, view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
        """Put a job on the nodes of one type that it fills best; a gang on as few as possible."""
        nodes = view.nodes
        for t in np.unique(nodes.type[free > 0]).tolist():
            here = np.where(nodes.type == t, free, 0)
            whole = np.flatnonzero(here >= gpus)
            if len(whole):
                return {int(whole[here[whole].argmin()]): gpus}
            if here.sum() < gpus:
                continue
            chosen, left = {}, gpus
            for node in np.argsort(-here, kind="stable").tolist():
                chosen[node] = min(int(here[node]), left)
                left -= chosen[node]
                if not left:
                    return chosen
        return None
