"""What the learned sizers share: slots, what is seen of the jobs, and who decides the rest.

In every slot all is divided anew, from nothing, one worker or server at a time. With another policy `under` it, that
one ranks the jobs, stops and starts them at its own times, and says on which GPU types and how they are placed; only
the sizes are the network's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.perf.catalogue import key_of
from argosy.policies.base import Event, Floats, Ints, Policy, Sizes, create
from argosy.policies.common.demands import DemandReader, Demands
from argosy.policies.common.time_slots import between_slots, check_slots, slot_at
from argosy.policies.learned.networks import SCALE, Crowd, Grants, ScoreNetwork, TableNetwork

GUARD = 72.0  # slots, a day: after so many a job that waits is served before others
MOST = 1e6  # slots in hundreds: nothing is larger
LAST = 1e9  # rank of jobs that get nothing


class UnitSizer(Policy):
    """A network that grants units, and what it needs around it."""

    uses = frozenset({"demand", "nodes", "placement", "service", "estimate"})
    preemptive = True
    network: TableNetwork | ScoreNetwork

    def __init__(
        self, network: TableNetwork | ScoreNetwork, slot_s: float, newcomers: str, guard: float, under: str
    ) -> None:
        check_slots(self.name, slot_s, newcomers)
        if not guard >= 1:
            raise InputError(f"{self.name}: guard must be at least 1 slot, is {guard}")
        self.network, self.slot_s, self.newcomers, self.guard = network, slot_s, newcomers, guard
        self.under = create(under) if under else None
        if self.under is not None:
            if "plan" in self.under.answers:
                hint = "choose one that ranks, or that ranks and sizes"
                raise InputError(f"{self.name}: {under!r} decides everything at once, also sizes", hint=hint)
            self.uses = UnitSizer.uses | self.under.uses
            self.backfill, self.placer, self.every_s = self.under.backfill, self.under.placer, self.under.every_s
            self.seeded = self.under.seeded

        if self.under is None or "on_event" not in self.under.answers:
            self.answers -= {"on_event"}  # being told of every event is costly

    def reset(self, context: Context) -> None:
        self._demand_reader = DemandReader(context, self.network.cap)
        known = {key_of(name): i for i, name in enumerate(self.network.types)}
        self._types = np.array([known.get(key_of(name), -1) for name in context.ps_kinds] + [-1])
        self._all_reduce_types = np.array([known.get(key_of(name.partition("@")[0]), -1) for name in context.kinds])
        self._slot = -1  # the last one that was divided
        self._known: Ints = np.zeros((64, 3), np.int64)  # by job: 1 + slot in which it last ran or came, its size now
        if self.under is not None:
            self.under.reset(context)

    def rank(self, view: View) -> Floats:
        slot = slot_at(view.now, self.slot_s)
        fresh = slot != self._slot
        self._slot = slot
        if fresh:
            key = self._divide(view)
        else:
            key, self._sized = between_slots(view, self._demand_reader, self.newcomers)
        return self.under.rank(view) if self.under is not None else key

    def size(self, view: View) -> Sizes:
        if self.under is not None:
            return self._under_another(view, self.under)
        return self._sized

    def _divide(self, view: View) -> Floats:
        jobs = view.jobs
        rows = np.argsort(jobs.index)
        needs = self._demand_reader.read(view, rows)
        there, per_share = self._demand_reader.there(view), self._demand_reader.per_share
        grants = self.network.grant(self._crowd(view, needs), needs, there, per_share)
        both = needs.servers > 0
        runs = (grants.workers > 0) & ((grants.servers > 0) | ~both)
        workers, servers = np.zeros(len(jobs), np.int64), np.zeros(len(jobs), np.int64)
        workers[rows] = np.where(runs, grants.workers, 0)
        servers[rows] = np.where(both, grants.servers * runs, needs.fixed)
        self._sized = Sizes(workers, servers)
        self._remember(view, workers, servers)
        return self._order(view, rows, grants)

    def _order(self, view: View, rows: Ints, grants: Grants) -> Floats:
        """In which order jobs are placed."""
        return view.jobs.submitted

    def _must_run(self, needs: Demands, waits: Ints) -> NDArray[np.bool_]:
        """Who is served before the network is asked: those who have waited for so many slots."""
        return waits >= self.guard

    def _crowd(self, view: View, needs: Demands) -> Crowd:
        jobs, rows, slots = view.jobs, needs.rows, SCALE * self.slot_s
        n = max(len(rows), 1)
        gpus, cpus, _ = self._demand_reader.there(view)
        known = self._of_jobs(view)[rows]
        times = np.empty((len(rows), 3), np.float32)
        times[:, 0] = jobs.executed_s[rows] / slots
        times[:, 1] = np.minimum(jobs.expected_left_s[rows] / slots, MOST)
        times[:, 2] = (view.now - jobs.submitted[rows]) / slots
        waits = np.where(known[:, 0] > 0, self._slot + 1 - known[:, 0], 0)
        gpus_each, cpus_each = min(gpus / n, 32.0) / 16.0, min(cpus / n, 128.0) / 64.0
        return Crowd(self._types_of(view, rows), times, gpus_each, cpus_each, self._must_run(needs, waits))

    def _types_of(self, view: View, rows: Ints) -> Ints:
        ps_kind = view.jobs.ps_kind[rows]
        types = self._types[ps_kind]
        if ps_kind.min(initial=0) < 0:
            types = np.where(ps_kind < 0, self._all_reduce_types[view.jobs.kind[rows]], types)
        return np.asarray(types)

    def _of_jobs(self, view: View) -> Ints:
        """What is remembered of the jobs of the view; makes room for new ones."""
        index = view.jobs.index
        if len(index) and (last := int(index.max())) >= len(self._known):
            self._known = np.pad(self._known, ((0, 2 * last - len(self._known)), (0, 0)))
        return np.asarray(self._known[index])

    def _remember(self, view: View, workers: Ints, servers: Ints) -> None:
        """Who gets what in this slot, and who has been waiting since when."""
        before = self._of_jobs(view)[:, 0]
        since = np.where((workers > 0) | (before == 0), self._slot + 1, before)
        self._known[view.jobs.index] = np.stack([since, workers, servers], axis=1)

    def _under_another(self, view: View, under: Policy) -> Sizes:
        """Ours, for those whom the other policy wants to run, on the types and in the places that it says."""
        _, workers, servers = self._of_jobs(view).T
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

    def state(self) -> dict[str, Any]:
        known = {str(i): self._known[i].tolist() for i in np.flatnonzero(self._known[:, 0]).tolist()}
        return {"slot": self._slot, "jobs": known, "under": self.under.state() if self.under is not None else {}}

    def restore(self, state: dict[str, Any]) -> None:
        self._slot = int(state["slot"])
        self._known = np.zeros((max([64, *(int(i) + 1 for i in state["jobs"])]), 3), np.int64)
        for i, row in state["jobs"].items():
            self._known[int(i)] = row
        if self.under is not None:
            self.under.restore(state["under"])
