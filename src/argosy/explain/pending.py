"""Find out why jobs wait: the reason for every job that holds nothing after a decision.

The walk of the mechanism is repeated for one job: what its queue may hold, which jobs come before it, whether it
fits in what is free (and in what lower ranked jobs would have to give up). If it does not, limits are left out one
at a time; the one without which it would fit is the reason. A remedy is then searched among the running jobs, in the
order in which they are expected to end, as far as the policy may know that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from argosy.cluster.view import JobState
from argosy.errors import ArgosyError
from argosy.explain import evidence as say
from argosy.explain.bids import outbid
from argosy.explain.change import smallest_change
from argosy.explain.release import Release, first_release
from argosy.explain.words import clock
from argosy.mechanism.bids import Bids
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.mechanism.supply import ALL, Bools, Demand, Floats, Holdings, Rules, Supply
from argosy.policies.base import Sizes
from argosy.sim.engine import Engine
from argosy.sim.plan_guard import allowed
from argosy.slack import GPU_SLACK, TIME_SLACK_S

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
    """An engine that keeps the reasons why a plan, or a choice among bids, leaves jobs out."""

    given: dict[int, Reason]

    def decide(self, decision: Floats | Plan | Bids, sizes: Sizes | None = None, wake_at: float | None = None) -> None:
        if isinstance(decision, Plan):
            decision = allowed(self, decision)
        told = decision.reasons if isinstance(decision, Plan) else {}
        self.given = {int(self.jobs.index[row]): reason for row, reason in told.items()}
        super().decide(decision, sizes, wake_at)
        if isinstance(decision, Bids) and self.choice is not None:
            self.given = outbid(self, decision, self.choice)


@dataclass(frozen=True, slots=True)
class Finding:
    """The cause of a wait, before it is put into words."""

    why: Why
    supply: Supply  # what the job could have: free, or held by jobs that it may displace
    demand: Demand
    displaced: Bools  # the jobs that it may displace
    rules: Rules = ALL  # all rules except the limit that is the cause
    head: int = -1  # the row of the job that blocks the queue
    empty: bool = True  # whether the empty cluster, in its present state, would hold the job


class Situation:
    """The state of an engine that has just carried out a decision, prepared for explanations.

    With `from_now` times are given relative to now, for readers who do not know the engine's clock.
    """

    def __init__(self, engine: Engine, from_now: bool = False) -> None:
        if engine.static:
            raise ArgosyError("reasons need an engine that is watched: Engine(…, watch=…)")
        self.engine, self.jobs, self.rules = engine, engine.jobs, engine.rules
        self.active = len(engine.jobs)
        self.now = engine.now
        self.state = self.jobs.state
        self.ids = self.jobs.index
        self.plans = "plan" in engine.policy.answers
        self._from_now = from_now

    def name(self, index: int) -> str:
        """Return the id of a job by its index."""
        return self.engine.job_name(index)

    def moment(self, word: str, t: float, about: str = "") -> str:
        """Format a time after the word `at`, `before` or `until`, or the span from now until then."""
        if not self._from_now:
            return f"{word} {about}{clock(t)}"
        return f"{'in' if word == 'at' else 'for another'} {about}{clock(max(0.0, t - self.now))}"

    @cached_property
    def holdings(self) -> Holdings:
        return self.engine.holdings()

    @cached_property
    def supply(self) -> Supply:
        return self.engine.supply()

    @cached_property
    def position(self) -> Floats:
        """The position of each row in the policy's order; all are equal if the policy has no order."""
        place = np.zeros(self.active)
        if not self.plans:
            order = self.engine.last_order()
            place[order] = np.arange(len(order))
        return place

    @cached_property
    def barrier(self) -> int:
        """The lowest ranked job that started too recently to be preempted, or -1; no job before it is taken instead."""
        jobs = self.jobs
        young = jobs.started + np.maximum(self.rules.min_run_s, jobs.keep_for_s) > self.now + TIME_SLACK_S
        rows = np.flatnonzero(young & self.yielding & (jobs.lease <= self.now))
        return int(rows[np.argmax(self.position[rows])]) if len(rows) and not self.plans else -1

    @cached_property
    def yielding(self) -> Bools:
        """The running jobs that better ranked ones may preempt, now or later."""
        jobs = self.jobs
        yes: Bools = (self.state == JobState.RUNNING) & (jobs.group < 0)
        yes &= jobs.preemptions < self.rules.max_preemptions
        if not self.rules.preemptive:
            yes &= jobs.guaranteed == 0
        return yes

    @cached_property
    def pinned_until(self) -> Floats:
        """Until when each job may not be preempted: its lease, its minimum run time and that of jobs behind it."""
        jobs = self.jobs
        until = np.full(self.active, np.inf)
        rows = np.flatnonzero(self.yielding)
        rows = rows[np.argsort(-self.position[rows], kind="stable")]  # from the end of the order
        lease = jobs.lease[rows]
        keep = np.maximum(self.rules.min_run_s, jobs.keep_for_s[rows])
        young_until = np.where(lease <= self.now, jobs.started[rows] + keep, -np.inf)
        until[rows] = np.maximum(np.maximum.accumulate(young_until), lease)
        return until

    @cached_property
    def yields_at(self) -> Floats:
        """When each lower ranked job may be preempted; never while another job is held up by the barrier."""
        if self.barrier < 0:
            return self.pinned_until
        later: Floats = np.maximum(self.pinned_until, self.pinned_until[self.barrier])
        return later

    @cached_property
    def ends(self) -> Floats:
        """When each running job is expected to end, as far as the policy may know; inf if it may not."""
        jobs, uses = self.jobs, self.engine.policy.uses
        left = jobs.expected_left_s if "estimate" in uses else jobs.remaining_s if "duration" in uses else None
        ends = np.full(self.active, np.inf)
        if left is not None:
            rate = jobs.rate
            runs = (self.state == JobState.RUNNING) & (rate > 0)
            ends[runs] = np.maximum(jobs.ready[runs], self.now) + left[runs] / rate[runs]
        return ends

    @cached_property
    def head(self) -> int:
        """The row at which a policy without back-filling stopped, or -1."""
        wanted = self.jobs.wanted
        for row in self.engine.last_order().tolist():
            if self.state[row] == JobState.WAITING and wanted[row] > 0 and not self.is_over_limit(row):
                return int(row)
        return -1

    def waiting(self) -> list[int]:
        """Return the rows of jobs that hold nothing."""
        return [int(row) for row in np.flatnonzero(self.state != JobState.RUNNING)]

    def amount(self, row: int) -> float:
        """Return the GPUs that count against the queue's limit."""
        asked, want = float(self.jobs.gpus[row]), float(self.jobs.wanted[row])
        return min(want, asked) if asked < 1.0 else want

    def is_over_limit(self, row: int) -> bool:
        q, queues = int(self.jobs.queue[row]), self.engine.queues
        return bool(queues.held[q] + self.amount(row) > queues.limit[q] + GPU_SLACK)

    def displaceable(self, row: int, *, pinned: bool) -> Bools:
        """Return which running jobs would have to make way for this one, with or without those still `pinned`."""
        rules = self.rules
        may = rules.preemptive or (rules.quotas and self.jobs.guaranteed[row])
        if self.plans or not may or rules.elastic:
            return np.zeros(self.active, bool)
        lower: Bools = self.yielding & (self.position > self.position[row])
        return lower if pinned else lower & (self.pinned_until <= self.now + TIME_SLACK_S)

    def finding(self, row: int) -> Finding:
        """Find out what keeps this job waiting."""
        demand = self.engine.demand(row)
        displaced = self.displaceable(row, pinned=False)
        supply = self.supply.without(self.holdings, displaced)
        if supply.fits(demand) and self.barrier >= 0 and not self.supply.fits(demand):
            # a job before this one was held up by the barrier, and then no job is preempted at all
            displaced, supply = np.zeros(self.active, bool), self.supply
        found = Finding(Why.NO_GPUS, supply, demand, displaced)
        if self.state[row] == JobState.PAUSED:
            return replace(found, why=Why.POLICY)
        if not self.plans:
            if self.jobs.wanted[row] == 0:
                return replace(found, why=Why.POLICY)
            if self.is_over_limit(row):
                return replace(found, why=Why.QUOTA)
            if not self.rules.backfill and self.head >= 0 and self.position[self.head] < self.position[row]:
                return replace(found, why=Why.BEHIND, head=self.head)
        if supply.fits(demand):
            return replace(found, why=Why.POLICY)
        emptied = self.supply.emptied()
        if not emptied.fits(demand):
            for why, rules in CLOSED:
                if emptied.fits(demand, rules):
                    return replace(found, why=why, rules=rules, empty=False)
            return replace(found, why=Why.POLICY, empty=False)
        for why, rules in SUSPECTS:
            if supply.fits(demand, rules):
                return replace(found, why=why, rules=rules)
        if self.rules.preemptive and not self.plans and not self.rules.elastic:
            unpinned = self.supply.without(self.holdings, self.displaceable(row, pinned=True))
            if not unpinned.fits(demand):
                return replace(found, why=Why.OUTRANKED)
        return found

    def release(self, row: int, finding: Finding) -> Release | None:
        """Return the running jobs whose end (or end of protection, if they may be displaced) lets this one fit."""
        free = np.where(self.displaceable(row, pinned=True), np.minimum(self.ends, self.yields_at), self.ends)
        held = (self.state == JobState.RUNNING) & ~finding.displaced
        size = self.jobs.held
        return first_release(finding.supply, self.holdings, finding.demand, held, free, size)

    def given(self, row: int) -> Reason | None:
        """Return the policy's own reason, if its plan came with one."""
        engine = self.engine
        return engine.given.get(int(self.ids[row])) if isinstance(engine, ExplainedEngine) else None

    def reason(self, row: int) -> Reason:
        own = self.given(row)
        if own is not None:
            return self.moved(row, own)
        if self.state[row] == JobState.RUNNING:
            raise ArgosyError(f"job {self.name(int(self.ids[row]))!r} does not wait, it is running")
        return self.moved(row, self.told(row, self.finding(row)))

    def moved(self, row: int, reason: Reason) -> Reason:
        """Return a reason with what moved the job's score, if the policy has learned its scores."""
        because = self.engine.policy.because(int(self.ids[row]))
        return replace(reason, evidence=f"{reason.evidence}; {because}") if because else reason

    def told(self, row: int, finding: Finding) -> Reason:
        """Put a finding into words."""
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
    """Return why each waiting job waits, by its index in the trace; call it right after a decision."""
    situation = Situation(engine)
    return {int(situation.ids[row]): situation.reason(row) for row in situation.waiting()}


def reason(engine: Engine, row: int) -> Reason:
    """Return why the job in one row of the view waits."""
    return Situation(engine).reason(row)
