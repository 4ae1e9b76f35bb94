"""Sidecar: jobs shrink and grow by their progress, with cheap restarts of the training process (Wang et al., SC'20).

Decision: jobs start in order of arrival, at the size they ask for or with as many GPUs as are free. A job that finds no
room takes GPUs from running elastic jobs, one at a time from the job that loses least by it, down to their smallest
size. GPUs that no job waits for go, one at a time, to the job whose remaining time they reduce most. A running job is
only restarted if that is worth its cost: the time that the waiting or growing job saves must exceed it.
State used: demands, what each job holds and where, free GPUs; progress, measured rates, the estimate of the whole work.
Parameters: `interval_s`, how often progress is read; `cost_s`, one restart (60 where it ends and recreates the pod);
`serial`, the share of a step that does not scale, used until a job was measured at two sizes; `patience_s`, how long a
job waits before others make room for it again, if it did not start the last time.
Differences from the paper: only its abstract was available to us; the details are our own. Jobs without a range run
at the size they ask for. Parameter servers stay as they are.
References: Wang et al., An efficient and non-intrusive GPU scheduling framework for deep learning training systems,
SC'20.

    remaining time(j, k) = (1 − progress(j)) · work(j) / speed(j, k)
    1 / speed(j, k) = A + B/k between (and beyond) the two observed sizes next to k
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, Policy, Sizes, register
from argosy.policies.common.demands import size_range
from argosy.policies.common.estimates import longest_where_unknown
from argosy.policies.common.marginal_gain import Bidder, grant
from argosy.policies.common.sizes import current_sizes

ONE_GPU, NOTHING = (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)
NOTICED = 0.01  # the smallest relative change of a rate that is noted


@register("sidecar", "shrinks and grows jobs by their progress, where that saves more than a restart", "Wang, SC'20")
class Sidecar(Policy):
    uses = frozenset({"demand", "placement", "nodes", "rate", "estimate"})

    def __init__(
        self, interval_s: float = 60.0, cost_s: float = 10.0, serial: float = 0.1, patience_s: float = 600.0
    ) -> None:
        if not 0 < interval_s < np.inf:
            raise InputError(f"sidecar: interval_s must be a time > 0, is {interval_s}")
        for name, value in (("cost_s", cost_s), ("patience_s", patience_s)):
            if not 0 <= value < np.inf:
                raise InputError(f"sidecar: {name} must be a time ≥ 0, is {value}")
        if not 0 <= serial <= 1:
            raise InputError(f"sidecar: serial must be a share, 0..1, is {serial}")
        self.interval_s, self.cost_s, self.serial, self.patience_s = interval_s, cost_s, serial, patience_s

    def reset(self, context: Context) -> None:
        self._types = len(context.gpu_types)
        self._points: dict[int, dict[int, float]] = {}  # job → GPUs → measured rate
        self._times: dict[int, list[float]] = {}  # job → seconds per second of work on 0, 1, 2 … GPUs
        self._made_way: dict[int, float] = {}  # job → when others last made room for it

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted

    def size(self, view: View) -> Sizes:
        jobs = view.jobs
        self._view, self._sized = view, current_sizes(view).workers
        self._low, self._high = size_range(view)
        self._elastic = self._high > self._low
        self._left_s = longest_where_unknown(jobs.expected_left_s)
        self._read_progress()
        nodes = view.nodes
        self._free = np.bincount(nodes.type, nodes.free * (nodes.state == 0), max(self._types, 1)).astype(np.int64)
        waiting = np.flatnonzero(jobs.state == 0)
        self._running_on = self._types_of_running() if len(waiting) or self._free.any() else np.zeros(0, np.int64)
        self._losses: dict[int, list[tuple[float, int]]] = {}  # GPU type → heap of (cost of one GPU less, row)
        self._ends: dict[int, list[tuple[float, int]]] = {}  # GPU type → (time left, GPUs) of running jobs, in order
        patient = True
        for row in waiting[np.argsort(jobs.index[waiting])].tolist():
            patient &= self._serve(row)
        if patient:
            self._grow()
        return Sizes(self._sized, np.where(jobs.state == 1, jobs.servers, jobs.ps))

    def _read_progress(self) -> None:
        """Note the rate of each elastic job at its size; forget jobs that have ended."""
        jobs = self._view.jobs
        index, held, rate = jobs.index, jobs.held, jobs.measured_rate
        for row in np.flatnonzero(self._elastic & (jobs.state == 1) & (rate > 0)).tolist():
            points = self._points.setdefault(int(index[row]), {})
            k, new = int(held[row]), float(rate[row])
            if abs(new - points.get(k, 0.0)) > NOTICED * new:
                points[k] = new
                self._times.pop(int(index[row]), None)
        if len(self._points) + len(self._made_way) + len(self._times) > 4 * len(jobs) + 64:
            here = set(index.tolist())
            for memory in (self._points, self._made_way, self._times):
                for job in [job for job in memory if job not in here]:
                    del memory[job]

    def _types_of_running(self) -> Ints:
        """Return the GPU type that each running job is on, -1 for others."""
        jobs, node_type = self._view.jobs, self._view.nodes.type
        found = np.full(len(jobs), -1, np.int64)
        for row in np.flatnonzero((jobs.state == 1) & (jobs.gpus >= 1)).tolist():
            found[row] = next((node_type[p.node] for p in self._view.placement(row) if p.devices), -1)
        return found

    def _times_of(self, row: int) -> list[float]:
        """Return the seconds that a second of a job's work takes, by number of GPUs."""
        job, most = int(self._view.jobs.index[row]), int(self._high[row])
        if job not in self._times:
            known = self._points.get(job) or {max(int(self._view.jobs.gpus[row]), 1): 1.0}
            self._times[job] = amdahl(known, most, self.serial)
        return self._times[job]

    def _time_left(self, row: int) -> float:
        """Return the time left of a running job at its size; a job without a range goes on as measured."""
        if self._elastic[row]:
            return float(self._left_s[row] * self._times_of(row)[int(self._sized[row])])
        rate = float(self._view.jobs.measured_rate[row])
        return float(self._left_s[row] / rate) if rate > 0 else np.inf

    def _serve(self, row: int) -> bool:
        """Size a waiting job if there is room or room can be made; return False if it should wait for free GPUs."""
        jobs = self._view.jobs
        if jobs.gpus[row] < 1:
            self._sized[row] = 1
            return True
        accepted = np.flatnonzero(jobs.types[row] >> np.arange(self._types) & 1)  # never empty: the job could not run
        low, asked = int(self._low[row]), min(int(jobs.gpus[row]), int(self._high[row]))
        on = int(accepted[self._free[accepted].argmax()])
        if self._free[on] < low:
            served = self._make_way(row, low, accepted)
            if served is None:
                return False
            on = served
            if on < 0:
                return True
        size = max(low, min(asked, int(self._free[on])))
        self._sized[row] = size
        self._free[on] -= size
        return True

    def _make_way(self, row: int, low: int, accepted: Ints) -> int | None:
        """Shrink others for a job; return its GPU type, -1 if no type has room for it, None if waiting is cheaper."""
        view, job = self._view, int(self._view.jobs.index[row])
        if view.now - self._made_way.get(job, -np.inf) < self.patience_s:
            return -1
        spare = np.zeros(self._types, np.int64)
        can = self._elastic & (self._running_on >= 0) & (self._sized > self._low)
        np.add.at(spare, self._running_on[can], (self._sized - self._low)[can])
        on = int(accepted[(self._free + spare)[accepted].argmax()])
        short = low - int(self._free[on])
        if spare[on] < short:
            return -1
        victims, losses = self._least_losses(on, short)
        if self._wait_s(on, short) <= self.cost_s * len(victims):
            return None
        for victim, size in victims.items():
            self._free[on] += self._sized[victim] - size
            self._sized[victim] = size
        self._losses[on] = losses
        self._made_way[job] = view.now
        return on

    def _loss(self, row: int, size: int) -> float:
        """Return the time that the last of `size` GPUs saves a job."""
        times = self._times_of(row)
        return float(self._left_s[row] * (times[size - 1] - times[size]))

    def _least_losses(self, on: int, short: int) -> tuple[dict[int, int], list[tuple[float, int]]]:
        """Choose jobs to shrink, at the least cost for each GPU; return their new sizes, and the costs that remain."""
        if on not in self._losses:
            can = self._elastic & (self._running_on == on) & (self._sized > self._low)
            self._losses[on] = [(self._loss(row, int(self._sized[row])), row) for row in np.flatnonzero(can).tolist()]
            heapify(self._losses[on])
        heap = self._losses[on].copy()
        victims: dict[int, int] = {}
        for _ in range(short):
            _, row = heappop(heap)
            size = victims[row] = victims.get(row, int(self._sized[row])) - 1
            if size > self._low[row]:
                heappush(heap, (self._loss(row, size), row))
        return victims, heap

    def _wait_s(self, on: int, short: int) -> float:
        """Return how long it takes until `short` GPUs of a type become free because jobs end."""
        if on not in self._ends:
            rows = np.flatnonzero(self._running_on == on).tolist()
            self._ends[on] = sorted((self._time_left(row), int(self._sized[row])) for row in rows)
        for time_s, gpus in self._ends[on]:
            short -= gpus
            if short <= 0:
                return time_s
        return np.inf

    def _grow(self) -> None:
        """Give free GPUs to the jobs for which they save the most time, if that is more than a restart costs."""
        for gpu_type in np.flatnonzero(self._free > 0).tolist():
            rows = np.flatnonzero(self._elastic & (self._running_on == gpu_type) & (self._sized < self._high))
            rows = rows[np.argsort(self._view.jobs.index[rows])]
            while len(rows):
                bidders = [self._bidder(row) for row in rows.tolist()]
                grant(bidders, np.array([self._free[gpu_type], 0.0, 0.0]))
                sizes = np.array([bidder.workers for bidder in bidders])
                saved_s = np.array([self._saved_s(row, size) for row, size in zip(rows.tolist(), sizes.tolist())])
                stays = (sizes == self._sized[rows]) | (saved_s > self.cost_s)
                if stays.all():
                    self._sized[rows] = sizes
                    break
                rows = rows[stays]

    def _bidder(self, row: int) -> Bidder:
        now, left = int(self._sized[row]), float(self._left_s[row])
        return Bidder([self._times_of(row)], left, now, 0, int(self._high[row]), 0, ONE_GPU, NOTHING)

    def _saved_s(self, row: int, workers: int) -> float:
        times = self._times_of(row)
        return float(self._left_s[row] * (times[int(self._sized[row])] - times[workers]))

    def wake_at(self, view: View) -> float | None:
        return view.now + self.interval_s if self._elastic.any() else None

    def state(self) -> dict[str, Any]:
        points = [[job, k, rate] for job, known in self._points.items() for k, rate in known.items()]
        return {"points": points, "made_way": [[job, time] for job, time in self._made_way.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        self._points, self._times = {}, {}
        for job, k, rate in state["points"]:
            self._points.setdefault(int(job), {})[int(k)] = float(rate)
        self._made_way = {int(job): float(time) for job, time in state["made_way"]}


def amdahl(rates: dict[int, float], most: int, serial: float) -> list[float]:
    """Return the seconds per second of work on 0..most GPUs, by a line in 1/k through the observed sizes next to k."""
    k = np.array(sorted(rates, reverse=True), np.float64)
    x, y = 1.0 / k, 1.0 / np.array([rates[int(size)] for size in k])  # x rises
    wanted = 1.0 / np.maximum(np.arange(most + 1), 1)
    if len(x) == 1:
        alone = y[0] / (serial + (1.0 - serial) * x[0])
        times = alone * (serial + (1.0 - serial) * wanted)
    else:
        slopes = np.diff(y) / np.diff(x)
        larger, smaller = (float(np.clip(slopes[i], 0.0, y[i] / x[i])) for i in (0, -1))
        times = np.interp(wanted, x, y)
        times = times + larger * np.minimum(wanted - x[0], 0.0) + smaller * np.maximum(wanted - x[-1], 0.0)
    times[0] = np.inf
    return [float(time) for time in times]
