"""Argonaut under a guard: each hour both are compared in the shadow, and the guard decides while argonaut is worse.

Decision: argonaut's bids, or the guard's order and sizes. The comparison simulates the jobs of the recent past under
both. With a tuner, argonaut's weights change while the run goes on.
State used: what argonaut and the guard use, and what became of the jobs that have ended; a job that has not ended
counts with the work that its user declared, or else with the median of those that ended, if it has not done more.
Parameters: `window_s`, how far the comparison looks back; `every_s`, how often it is made; `tune_every_s`, how often
the tuner is called.
Differences from the paper: there is no paper.
References: Argosy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.learn.online.shadow import judge
from argosy.learn.online.tuner import OnlineTuner
from argosy.mechanism.bids import Bids
from argosy.policies.base import Event, Floats, Place, Policy, Sizes, create
from argosy.policies.learned.argonaut import Argonaut
from argosy.policies.learned.bid_network import BidNetwork
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

LEAST_JOBS = 8  # fewer jobs tell nothing about which policy is better
LEAST_DONE_S = 60.0  # the expected length of a job while none has ended
ENDS = frozenset({"finish", "fail", "kill"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison in the shadow: mean completion times over the window, and which policy decides from then on."""

    at_s: float
    argonaut_s: float
    guard_s: float
    guarded: bool  # whether the guard decides until the next comparison


class Guarded(Policy):
    """Follows argonaut, and the guard while argonaut is worse in the shadow. For runs of one trace."""

    name = "guarded"
    preemptive = True

    def __init__(
        self,
        argonaut: Argonaut,
        trace: Trace,
        cluster: Cluster,
        settings: Settings,
        *,
        guard: str = "tiresias-las",
        tuner: OnlineTuner | None = None,
        window_s: float = 86400.0,
        every_s: float = 3600.0,
        tune_every_s: float = 6 * 3600.0,
    ) -> None:
        """`trace` has the jobs of the run; a row is read only once the job has arrived, its length never."""
        self.guard, self.argonaut = create(guard), argonaut
        if not self.guard.preemptive or self.guard.answers & {"plan", "bid"}:
            hint = "use a preemptive policy that orders jobs, such as tiresias-las, las or srtf"
            raise InputError(f"{guard!r} cannot be a guard", hint=hint)
        for name, value in (("window_s", window_s), ("every_s", every_s), ("tune_every_s", tune_every_s)):
            if not 1 <= value < np.inf:
                raise InputError(f"{name} must be at least 1, is {value}")
        self.uses = argonaut.uses | self.guard.uses | {"progress", "declared", "history"}
        self.answers = frozenset({"bid", "rank", "size", "wake_at", "on_event"})
        self.tuner, self._guard_name = tuner, guard
        self._frame, self._cluster, self._settings = trace.frame, cluster, settings
        self._window_s, self._check_every_s, self._tune_every_s = window_s, every_s, tune_every_s

    def reset(self, context: Context) -> None:
        self.argonaut.reset(context)
        self.guard.reset(context)
        self.comparisons: list[Comparison] = []
        self._guarded = False
        self._ended: dict[int, float] = {}  # work done, by job
        self._check_s, self._tune_s = self._check_every_s, self._tune_every_s

    def bid(self, view: View) -> Bids | None:
        if view.now >= self._tune_s and self.tuner is not None:
            self._tune_s = view.now + self._tune_every_s
            self.tuner.step(self.happened(view), view.now)
            self.argonaut.network = BidNetwork(self.tuner.present)
        if view.now >= self._check_s:
            self._check_s = view.now + self._check_every_s
            self._compare(view)
        self._key = self.guard.rank(view)  # always, since it may remember when jobs entered a queue
        return None if self._guarded else self.argonaut.bid(view)

    def rank(self, view: View) -> Floats:
        return self._key

    def size(self, view: View) -> Sizes:
        """Return the guard's sizes, or what jobs asked for; on any GPU type and any node, whatever was bid before."""
        jobs = view.jobs
        asked = Sizes(np.maximum(np.ceil(jobs.gpus), 1).astype(np.int64), jobs.ps.astype(np.int64))
        sizes = self.guard.size(view) if "size" in self.guard.answers else asked
        places = sizes.places
        if places is None and "place" in self.guard.answers:
            places = np.asarray(self.guard.place(view))
        if places is None:
            places = np.full(len(jobs), int(Place.AS_USUAL), np.int64)
        servers = asked.servers if sizes.servers is None else sizes.servers
        types = jobs.types.astype(np.int64) if sizes.types is None else sizes.types
        return Sizes(sizes.workers, servers, types, places)

    def happened(self, view: View) -> Trace:
        """Return the jobs so far: ended ones with the work they needed, others with what can be expected of them.

        Without those that wait, a policy that lets jobs starve would look good.
        """
        jobs, typical = view.jobs, float(np.median(list(self._ended.values()) or [LEAST_DONE_S]))
        expected = np.where(np.isnan(jobs.declared_s), np.maximum(jobs.done_s, typical), jobs.declared_s)
        active = dict(zip(jobs.index.tolist(), expected.tolist(), strict=True))
        done = dict(sorted((active | self._ended).items()))
        rows = self._frame[list(done)].with_columns(
            pl.Series("duration_s", list(done.values()), pl.Float64), pl.lit("completed").alias("status")
        )
        return Trace(rows, "what happened")

    def _compare(self, view: View) -> None:
        recent = self.happened(view).frame.filter(pl.col("submit_s") >= view.now - self._window_s)
        if recent.height < LEAST_JOBS:
            return
        window = Trace.of(
            recent.with_columns(pl.col("submit_s") - pl.col("submit_s").min(), pl.lit(None).alias("deadline_s"))
        )
        mine = judge(Argonaut(self.argonaut.network), window, self._cluster, self._settings).mean_s
        theirs = judge(create(self._guard_name), window, self._cluster, self._settings).mean_s
        self._guarded = mine > theirs
        self.comparisons.append(Comparison(view.now, mine, theirs, self._guarded))

    def wake_at(self, view: View) -> float | None:
        times = [self.argonaut.wake_at(view), self.guard.wake_at(view) if self._guarded else None]
        return min((t for t in times if t is not None), default=None)

    def on_event(self, event: Event) -> None:
        if event.kind in ENDS and event.done_s > 0:
            self._ended[event.job] = event.done_s
        self.argonaut.on_event(event)
        if "on_event" in self.guard.answers:
            self.guard.on_event(event)


def hours_below(comparisons: list[Comparison]) -> tuple[float, float]:
    """Return for how long argonaut decided although the next comparison found it worse: in all, and at a stretch."""
    total = longest = stretch = 0.0
    for before, after in pairwise(comparisons):
        span = (after.at_s - before.at_s) / 3600.0
        below = not before.guarded and after.argonaut_s > after.guard_s
        stretch = stretch + span if below else 0.0
        total, longest = total + span * below, max(longest, stretch)
    return total, longest
