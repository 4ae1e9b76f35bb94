"""Frontier: resources go to the jobs that they speed up most, with short jobs preferred.

Decision: in each of DL2's time slots the whole cluster is divided again. Of all sizes that a job can have, only those
are considered that no mixture of a smaller and a larger one beats: the concave frontier of its speed over the dominant
share of the cluster that it takes. Steps along the frontiers are granted one by one, the largest gain first: speed
relative to the job's best, per share of the cluster, divided by a power of the time that the job would still need at
its best. So bumps and dips of a measured speed do not stop a job's growth, as they do with rules that look one unit
ahead. What is then left goes to jobs that have nothing, the shortest first.
State used: demands, ranges, which nodes are up, the true speeds (profile) and the run's estimate of the work left. It
is a teacher of learned policies that knows more than they do: they see neither speeds nor what a size is worth.
Parameters: `slot_s`; `newcomers`, between two slots: `start` at their smallest size on what is free, or `wait`; `cap`,
most workers and most servers of a job that has both; `urgency`, the power: 0 ignores the time left, larger values
prefer short jobs more.
Differences from the paper: there is no paper; of the hand-written rules this one knows most, and learned policies are
compared with it.
References: concave frontiers as in marginal analysis (Fox, Operations Research 1966); slots and units as in DL2.

    next = argmax_j (Δspeed_j / best_j) / Δshare_j / left_j ** urgency,   along the concave frontier of job j
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, Policy, Sizes, register
from argosy.policies.common.demands import DemandReader, Demands
from argosy.policies.common.time_slots import between_slots, check_slots, slot_at

LEAST = 1e-9  # of a share or a speed that something is divided by
LAST = 1e9  # rank of jobs that get nothing
LEAST_S = 60.0  # shorter times left count as this
MOST_S = 1e12  # and longer ones as this


class Frontier(NamedTuple):
    """Sizes of a job, each larger and faster than the one before, with ever smaller gains per share."""

    workers: Ints
    servers: Ints
    slope: Floats  # speed relative to the best, per share, of the step to this size
    takes: list[tuple[float, ...]]  # GPUs, CPUs and memory of that step
    best: float  # samples or steps per second


@register("frontier", "units along each job's concave speed frontier, short jobs first", "after Fox, OR 1966")
class FrontierPolicy(Policy):
    uses = frozenset({"demand", "nodes", "placement", "profile", "estimate"})
    preemptive = True

    def __init__(self, slot_s: float = 1200.0, newcomers: str = "start", cap: int = 16, urgency: float = 0.2) -> None:
        check_slots("frontier", slot_s, newcomers)
        if not 1 <= cap <= 1024:
            raise InputError(f"frontier: cap must be 1..1024, is {cap}")
        if not 0 <= urgency < np.inf:
            raise InputError(f"frontier: urgency must be ≥ 0, is {urgency}")
        self.slot_s, self.newcomers, self.cap, self.urgency = slot_s, newcomers, cap, urgency

    def reset(self, context: Context) -> None:
        self._demand_reader = DemandReader(context, self.cap)
        self._types = len(context.gpu_types)
        self._frontiers: dict[tuple[Any, ...], Frontier] = {}
        self._slot = -1

    def rank(self, view: View) -> Floats:
        slot = slot_at(view.now, self.slot_s)
        fresh = slot != self._slot
        self._slot = slot
        if fresh:
            return self._divide(view)
        key, self._sized = between_slots(view, self._demand_reader, self.newcomers)
        return key

    def size(self, view: View) -> Sizes:
        return self._sized

    def _divide(self, view: View) -> Floats:
        jobs = view.jobs
        rows = np.argsort(jobs.index)
        needs = self._demand_reader.read(view, rows)
        frontiers = [self._frontier(view, needs, i, row) for i, row in enumerate(rows.tolist())]
        best = np.array([f.best for f in frontiers])
        left = np.clip(jobs.expected_left_s[rows] * jobs.reference_rate[rows] / best, LEAST_S, MOST_S)
        steps = np.array([len(f.slope) for f in frontiers], np.int64)
        job = np.repeat(np.arange(len(rows)), steps)
        gain = np.concatenate([f.slope for f in frontiers]) / (left**self.urgency)[job] if len(rows) else np.zeros(0)
        place = np.arange(len(job)) - np.repeat(np.cumsum(steps) - steps, steps)
        bids = np.lexsort((place, job, -gain))
        free = self._demand_reader.there(view).tolist()
        granted = self._grant(needs, frontiers, job[bids].tolist(), place[bids].tolist(), left, free)
        size, key = np.zeros((2, len(rows)), np.int64), np.full(len(rows), LAST)
        size[1, rows] = needs.fixed
        for i, workers, servers in granted:
            size[:, rows[i]] = workers, servers if needs.servers[i] else needs.fixed[i]
        for turn, i in enumerate(dict.fromkeys(i for i, *_ in granted)):
            key[rows[i]] = turn
        self._sized = Sizes(size[0], size[1])
        self.granted = [(int(rows[i]), workers, servers) for i, workers, servers in granted]  # row of the view
        return key

    def _grant(
        self,
        needs: Demands,
        frontiers: list[Frontier],
        jobs: list[int],
        places: list[int],
        left: Floats,
        free: list[float],
    ) -> list[tuple[int, int, int]]:
        """Grant steps in the given order, a job's steps one after the other; return (job, workers, servers)."""
        reached = [0] * len(frontiers)
        granted = []
        a, b, c = free
        for i, place in zip(jobs, places):
            x, y, z = frontiers[i].takes[place]
            if place == reached[i] and x <= a and y <= b and z <= c:
                a, b, c = a - x, b - y, c - z
                reached[i] = place + 1
                granted.append((i, int(frontiers[i].workers[place]), int(frontiers[i].servers[place])))
        low, servers = needs.low.tolist(), np.minimum(needs.servers, 1)
        smallest = (needs.first + needs.server * servers).T.tolist()
        for i in np.argsort(left, kind="stable").tolist():
            x, y, z = smallest[i]
            if not reached[i] and x <= a and y <= b and z <= c:
                a, b, c = a - x, b - y, c - z
                granted.append((i, low[i], int(servers[i])))
        return granted

    def _frontier(self, view: View, needs: Demands, i: int, row: int) -> Frontier:
        jobs = view.jobs
        of_kind = (int(jobs.ps_kind[row]), int(jobs.kind[row]), int(jobs.types[row]))
        key = (*of_kind, needs.counts[i].tobytes(), needs.amounts[i].tobytes())
        if key not in self._frontiers:
            self._frontiers[key] = self._find(view, needs, i, row)
        return self._frontiers[key]

    def _find(self, view: View, needs: Demands, i: int, row: int) -> Frontier:
        """Find the upper hull of speed over share, beginning with no share."""
        low, high, most, _ = needs.counts[i].tolist()
        w = np.arange(low, high + 1)
        servers = np.arange(1, most + 1) if most else np.zeros(1, np.int64)
        w, u = (grid.ravel() for grid in np.meshgrid(w, servers))
        speed = self._speeds(view, row, w, u)
        takes = needs.first[:, i] + np.outer(w - low, needs.worker[:, i]) + np.outer(u, needs.server[:, i])
        share = np.maximum((takes * self._demand_reader.per_share).max(axis=1), LEAST)
        best = max(float(speed.max()), LEAST)
        hull: list[int] = [-1]  # -1: nothing
        x = np.append(share, 0.0)
        y = np.append(speed / best, 0.0)
        for k in np.lexsort((w + u, -speed, share)).tolist():
            if y[k] <= y[hull[-1]]:
                continue
            while len(hull) > 1 and _slope(x, y, hull[-2], k) >= _slope(x, y, hull[-2], hull[-1]):
                hull.pop()
            hull.append(k)
        if len(hull) == 1:  # it has no speed at any size: offer its smallest size, last
            hull.append(0)
        chosen = np.array(hull[1:])
        slopes = np.array([_slope(x, y, a, b) for a, b in pairwise(hull)])
        steps = np.diff(takes[chosen], axis=0, prepend=np.zeros((1, 3)))
        return Frontier(w[chosen], u[chosen], slopes, [tuple(step) for step in steps.tolist()], best)

    def _speeds(self, view: View, row: int, workers: Ints, servers: Ints) -> Floats:
        jobs, profile = view.jobs, view.profile
        if jobs.ps_kind[row] >= 0:
            asked = np.where(servers > 0, servers, jobs.ps[row])
            return np.asarray(profile.ps_rate(int(jobs.ps_kind[row]), asked, workers), np.float64)
        if jobs.gpus[row] < 1:
            return np.ones(len(workers))
        accepted = [t for t in range(self._types) if jobs.types[row] >> t & 1] or [0]
        rates = [profile.rate(int(jobs.kind[row]), t, workers) for t in accepted]
        return np.asarray(np.max(rates, axis=0), np.float64)

    def wake_at(self, view: View) -> float | None:
        return (self._slot + 1) * self.slot_s if len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        return {"slot": self._slot}

    def restore(self, state: dict[str, Any]) -> None:
        self._slot = int(state["slot"])


def _slope(x: Floats, y: Floats, a: int, b: int) -> float:
    return float((y[b] - y[a]) / (x[b] - x[a])) if x[b] > x[a] else np.inf
