"""Why a job waits: one true reason for every job that holds nothing after a decision.

The walk of the mechanism is retraced for one job: what its queue may hold, who stands before it, whether
it fits in what is free (and in what lower ranked jobs would have to give). If it does not, limits are left
out one at a time; the one without which it would fit is the reason. What would help is then looked for among
the running jobs, in the order in which they are expected to end, as far as the policy may know.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from argosy.errors import ArgosyError
from argosy.explain import evidence as say
from argosy.explain.change import smallest_change
from argosy.explain.release import Release, first_release
from argosy.explain.supply import ALL, Bools, Demand, Floats, Holdings, Rules, Supply
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.policies.base import Sizes
from argosy.sim.engine import Engine

SUSPECTS: tuple[tuple[Why, Rules], ...] = (
    (Why.NO_CPUS, Rules(cpus=False)),
    (Why.NO_MEMORY, Rules(memory=False)),
    (Why.NO_CPUS, Rules(cpus=False, memory=False)),
    (Why.FRAGMENTED, Rules(together=False)),
    (Why.FRAGMENTED, Rules(together=False, cpus=False, memory=False)),
    (Why.RESERVED, Rules(owners=False)),
    (Why.NODES_DOWN, Rules(states=False)),
    (Why.GPU_TYPE, Rules(types=False)),
)
CLOSED = (
    (Why.NODES_DOWN, Rules(states=False)),
    (Why.RESERVED, Rules(owners=False)),
    (Why.NODES_DOWN, Rules(states=False, owners=False)),
)


class ExplainedEngine(Engine):
    """An engine that keeps the reasons which a planning policy gives for the jobs it leaves out."""

    given: dict[int, Reason]

    def decide(
        self, decision: Floats | Plan, sizes: Sizes | None = None, wake_at: float | None = None
    ) -> None:
        ids = self.world.ji[L.ID]
        told = decision.reasons if isinstance(decision, Plan) else {}
        self.given = {int(ids[row]): reason for row, reason in told.items()}
        super().decide(decision, sizes, wake_at)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is to blame, before it is put into words."""

    why: Why
    supply: Supply  # what the job could have: free, or held by jobs that it may displace
    demand: Demand
    rules: Rules = ALL  # without the limit that is to blame
    head: int = -1  # the row that blocks the queue
    empty: bool = True  # the empty cluster, as it stands, would hold the job


class Situation:
    """An engine that has just carried out a decision, prepared for questions."""

    def __init__(self, engine: Engine) -> None:
        if engine.static:
            raise ArgosyError("reasons need an engine that is watched: Engine(…, watch=…)")
        self.engine, self.world = engine, engine.world
        self.active = int(self.world.si[L.ACTIVE])
        self.now = engine.now
        self.state = self.world.ji[L.STATE, : self.active]
        self.ids = self.world.ji[L.ID, : self.active]
        self.plans = engine._plans

    def name(self, index: int) -> str:
        """The id of a job, by its index."""
        return str(self.engine.trace.frame["job_id"][index])

    @cached_property
    def holdings(self) -> Holdings:
        return Holdings.of(self.world)

    @cached_property
    def supply(self) -> Supply:
        return Supply.of(self.world)

    @cached_property
    def position(self) -> Floats:
        """Place of each row in the policy's order; all equal when the policy has none."""
        place = np.zeros(self.active)
        if not self.plans:
            n = int(self.world.si[L.ORDER_N])
            place[self.world.so[self.world.wk[L.W_ORDER, :n]]] = np.arange(n)
        return place

    @cached_property
    def pinned_until(self) -> Floats:
        """Until when each job may not be taken."""
        jf, ji, n = self.world.jf, self.world.ji, self.active
        until: Floats = np.maximum(jf[L.STARTED, :n] + self.world.sf[L.MIN_RUN], jf[L.LEASE, :n])
        never = (ji[L.PREEMPTIONS, :n] >= self.world.si[L.MAX_PREEMPTIONS]) | (ji[L.GROUP, :n] >= 0)
        until[never] = np.inf
        return until

    @cached_property
    def ends(self) -> Floats:
        """When each running job is expected to end, as far as the policy may know; inf where it may not."""
        jf, n = self.world.jf, self.active
        uses = self.engine.policy.uses
        row = L.NOW_EXPECTED_LEFT if "estimate" in uses else L.NOW_LEFT if "duration" in uses else None
        ends = np.full(n, np.inf)
        if row is not None:
            runs = (self.state == L.RUNNING) & (jf[L.RATE, :n] > 0)
            left_s = jf[row, :n][runs] / jf[L.RATE, :n][runs]
            ends[runs] = np.maximum(jf[L.READY, :n][runs], self.now) + left_s
        return ends

    @cached_property
    def head(self) -> int:
        """The row at which a strict policy stopped, or -1."""
        w = self.world
        for job in w.wk[L.W_ORDER, : int(w.si[L.ORDER_N])]:
            row = int(w.so[job])
            if self.state[row] == L.WAITING and w.ji[L.WANT, row] > 0 and not self.is_over_limit(row):
                return row
        return -1

    def waiting(self) -> list[int]:
        """Rows of jobs that hold nothing."""
        return [int(row) for row in np.flatnonzero(self.state != L.RUNNING)]

    def amount(self, row: int) -> float:
        """GPUs that count against the queue's limit."""
        asked, want = float(self.world.jf[L.GPUS, row]), float(self.world.ji[L.WANT, row])
        return min(want, asked) if asked < 1.0 else want

    def is_over_limit(self, row: int) -> bool:
        q = int(self.world.ji[L.QUEUE, row])
        return bool(self.world.qu[L.Q_HELD, q] + self.amount(row) > self.world.qu[L.Q_LIMIT, q] + 1e-9)

    def displaceable(self, row: int, *, pinned: bool) -> Bools:
        """Running jobs that would have to make way for this one; with those still `pinned`, or without."""
        w, n = self.world, self.active
        if self.plans:
            return np.zeros(n, bool)
        lower: Bools = (self.state == L.RUNNING) & (self.position > self.position[row])
        if not w.si[L.PREEMPTIVE]:
            if not (w.si[L.QUOTAS] and w.ji[L.GUARANTEED, row]):
                return np.zeros(n, bool)
            lower &= w.ji[L.GUARANTEED, :n] == 0
        return lower if pinned else lower & (self.pinned_until <= self.now + 1e-9)

    def finding(self, row: int) -> Finding:
        """What keeps this job waiting."""
        w = self.world
        demand = Demand.of(w, row)
        supply = self.supply.without(self.holdings, self.displaceable(row, pinned=False))
        if self.state[row] == L.PAUSED:
            return Finding(Why.POLICY, supply, demand)
        if not self.plans:
            if w.ji[L.WANT, row] == 0:
                return Finding(Why.POLICY, supply, demand)
            if self.is_over_limit(row):
                return Finding(Why.QUOTA, supply, demand)
            if not w.si[L.BACKFILL] and self.head >= 0 and self.position[self.head] < self.position[row]:
                return Finding(Why.BEHIND, supply, demand, head=self.head)
        if supply.fits(demand):
            return Finding(Why.POLICY, supply, demand)
        emptied = self.supply.emptied()
        if not emptied.fits(demand):
            for why, rules in CLOSED:
                if emptied.fits(demand, rules):
                    return Finding(why, supply, demand, rules, empty=False)
            return Finding(Why.POLICY, supply, demand, empty=False)
        for why, rules in SUSPECTS:
            if supply.fits(demand, rules):
                return Finding(why, supply, demand, rules)
        if w.si[L.PREEMPTIVE] and not self.plans:
            unpinned = self.supply.without(self.holdings, self.displaceable(row, pinned=True))
            if not unpinned.fits(demand):
                return Finding(Why.OUTRANKED, supply, demand)
        return Finding(Why.NO_GPUS, supply, demand)

    def release(self, row: int, finding: Finding) -> Release | None:
        """The running jobs whose end (or end of grace, if they may be displaced) lets this one fit."""
        lower = self.displaceable(row, pinned=True)
        free = np.where(lower, np.minimum(self.ends, self.pinned_until), self.ends)
        held = (self.state == L.RUNNING) & ~self.displaceable(row, pinned=False)
        size = self.world.jf[L.HELD, : self.active]
        return first_release(finding.supply, self.holdings, finding.demand, held, free, size)

    def given(self, row: int) -> Reason | None:
        """The policy's own reason, if its plan came with one."""
        engine = self.engine
        return engine.given.get(int(self.ids[row])) if isinstance(engine, ExplainedEngine) else None

    def reason(self, row: int) -> Reason:
        own = self.given(row)
        if own is not None:
            return own
        if self.state[row] == L.RUNNING:
            raise ArgosyError(f"job {self.name(int(self.ids[row]))!r} does not wait: it runs")
        return self.told(row, self.finding(row))

    def told(self, row: int, finding: Finding) -> Reason:
        """A finding in words."""
        if finding.why is Why.BEHIND:
            return say.behind(self, row, finding)
        if finding.why is Why.QUOTA:
            return say.limit(self, row, finding)
        if finding.why is Why.POLICY:
            return say.policy(self, row, finding)
        if not finding.empty:
            return say.closed(self, row, finding)
        change = smallest_change(finding.supply, finding.demand, finding.rules)
        return say.short(self, row, finding, change, self.release(row, finding))


def reasons(engine: Engine) -> dict[int, Reason]:
    """Why each waiting job waits, by its index in the trace; right after a decision was carried out."""
    situation = Situation(engine)
    return {int(situation.ids[row]): situation.reason(row) for row in situation.waiting()}


def reason(engine: Engine, row: int) -> Reason:
    """The same for the job in one row of the view."""
    return Situation(engine).reason(row)
