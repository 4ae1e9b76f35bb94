"""The common base of dl2 and dl2+: when they decide, what they remember, and how they work under another policy.

At the beginning of every time slot all resources are divided again, one worker or server at a time. With another policy
`under` it, that policy ranks the jobs, stops and starts them at its own times, and chooses GPU types and placement; the
network decides only the sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Event, Floats, Ints, Policy, Sizes, create
from argosy.policies.common.demands import DemandReader
from argosy.policies.common.time_slots import between_slots, check_slots, slot_at
from argosy.policies.learned.because import why_scored
from argosy.policies.learned.features import JobFeatures, JobTypes
from argosy.policies.learned.networks import ScoreNetwork, TableNetwork
from argosy.policies.learned.rules import GrantRules, JobMemory, granted_sizes


class UnitSizer(Policy):
    """A policy whose network grants units: workers, parameter servers, or one of both."""

    uses = frozenset({"demand", "nodes", "placement", "service", "estimate"})
    preemptive = True

    def __init__(self, network: TableNetwork | ScoreNetwork, slot_s: float, rules: GrantRules, under: str) -> None:
        check_slots(self.name, slot_s, rules.newcomers)
        if not rules.guard >= 1:
            raise InputError(f"{self.name}: guard must be at least 1 time slot, is {rules.guard}")
        self.network, self.slot_s, self.rules = network, slot_s, rules
        self.under = create(under) if under else None
        if self.under is not None:
            if "plan" in self.under.answers:
                hint = "choose one that ranks, or that ranks and sizes"
                raise InputError(f"{self.name}: the policy {under!r} makes whole plans, including sizes", hint=hint)
            self.uses = UnitSizer.uses | self.under.uses
            self.backfill, self.placer, self.every_s = self.under.backfill, self.under.placer, self.under.every_s
            self.seeded = self.under.seeded
        if self.under is None or "on_event" not in self.under.answers:
            self.answers -= {"on_event"}  # passing every event to a policy is costly

    def reset(self, context: Context) -> None:
        self._demand_reader = DemandReader(context, self.network.cap)
        self._types = JobTypes(context, self.network.types)
        self._slot = -1  # the last time slot that was divided
        self._memory = JobMemory()
        self._seen: tuple[Ints, JobFeatures] | None = None  # the jobs of the last time slot
        if self.under is not None:
            self.under.reset(context)

    def rank(self, view: View) -> Floats:
        slot = slot_at(view.now, self.slot_s)
        is_new = slot != self._slot
        self._slot = slot
        if is_new:
            key = self._divide(view)
        else:
            key, self._sized = between_slots(view, self._demand_reader, self.rules.newcomers)
        return self.under.rank(view) if self.under is not None else key

    def size(self, view: View) -> Sizes:
        if self.under is not None:
            return self._under_another(view, self.under)
        return self._sized

    def _divide(self, view: View) -> Floats:
        """Divide a new time slot, and return the order in which jobs are placed."""
        jobs, demand_reader = view.jobs, self._demand_reader
        rows = np.argsort(jobs.index)
        needs, there = demand_reader.read(view, rows), demand_reader.there(view)
        features = JobFeatures.of(view, rows, self._types.of(view, rows), self.slot_s, there)
        self._seen = jobs.index[rows], features
        first = self.rules.served_first(needs, self._memory.waited(jobs.index[rows], self._slot))
        grants = self.network.grant(features, needs, first, there, demand_reader.per_share)
        self._sized = granted_sizes(needs, grants.workers, grants.servers, len(jobs))
        self._memory.remember(jobs.index, self._slot, self._sized)
        return self.rules.placing_order(jobs.submitted, rows, grants.order)

    def _under_another(self, view: View, under: Policy) -> Sizes:
        """Return the network's sizes for the jobs that the other policy runs, with its GPU types and places."""
        _, workers, servers = self._memory.of(view.jobs.index).T
        if "size" not in under.answers:
            return Sizes(workers, servers)
        theirs = under.size(view)
        return Sizes(np.where(theirs.workers > 0, workers, 0), servers, theirs.types, theirs.places)

    def wake_at(self, view: View) -> float | None:
        under = self.under
        wakes = under is not None and ("wake_at" in under.answers or under.every_s < np.inf)
        times = [under.wake_at(view) if under is not None and wakes else None]
        times.append((self._slot + 1) * self.slot_s if len(view.jobs) else None)
        return min((t for t in times if t is not None), default=None)

    def on_event(self, event: Event) -> None:
        assert self.under is not None
        self.under.on_event(event)

    def because(self, job: int) -> str:
        index, features = self._seen or (np.zeros(0, np.int64), None)
        rows = np.flatnonzero(index == job)
        if features is None or not len(rows) or len(index) < 2:
            return ""
        return why_scored(self.network, features, int(rows[0]), self.slot_s)

    def state(self) -> dict[str, Any]:
        under = self.under.state() if self.under is not None else {}
        return {"slot": self._slot, "jobs": self._memory.state(), "under": under}

    def restore(self, state: dict[str, Any]) -> None:
        self._slot = int(state["slot"])
        self._memory.restore(state["jobs"])
        if self.under is not None:
            self.under.restore(state["under"])
