"""Candidates: the sizes and GPU types that each job may bid for, with its speed at each of them.

Jobs of one kind with the same demand have the same candidates, which are worked out once. Sizes that are no faster than
a smaller one are left out; of parameter-server jobs those remain that no mixture of a smaller and a larger one beats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from argosy.cluster.view import Context, Profile, View
from argosy.policies.base import Floats, Ints

GRID = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    56,
    64,
    80,
    96,
    112,
    128,
)  # sizes that are tried
MOST_SERVERS = 16  # and most workers beside servers, as in DL2
ANY_TYPE = -1
LEAST_GAIN = 1e-3  # a size must be faster than a smaller one by this share


class Candidate(NamedTuple):
    """One size of a job on one GPU type."""

    type: int
    workers: int
    servers: int
    rate: float  # samples or steps per second


@dataclass(frozen=True, slots=True)
class Candidates:
    """One row for each candidate of each job; the rows of a job follow each other."""

    job: Ints  # row of the view
    type: Ints
    workers: Ints
    servers: Ints
    gpus: Floats  # a share of a GPU for a job that asks for one
    speed: Floats  # relative to the requested size on the reference type
    overhead_s: Floats  # what it costs to change to it now
    present: np.ndarray[tuple[int], np.dtype[np.bool_]]  # whether the job runs like this now


class CandidateTable:
    """Works out candidates for the jobs of a view. The policy declares demand, placement, nodes, profile, overhead."""

    def __init__(self, context: Context, *, resize: bool = True, retype: bool = True) -> None:
        """Without `resize` jobs have the size that they ask for, without `retype` the GPU type that is fastest."""
        self._resize, self._retype = resize, retype
        self._types = len(context.gpu_types)
        largest = [int(context.node_gpus[context.node_types == t].max(initial=0)) for t in range(self._types)]
        self._largest = np.array(largest, np.int64)
        self._overheads = np.ascontiguousarray(context.costs())
        self._cpus, self._memory_gib = context.total_cpus, context.total_memory_gib
        self._total_gpus = max(context.total_gpus, 1)
        self._group: dict[tuple[float, ...], int] = {}  # demand → number of its group of candidates
        self._of_job: dict[int, int] = {}  # index of a job → the same
        self._last_index, self._last_group = np.zeros((2, 0), np.int64)  # of the job that was last seen in each row
        self._first, self._count = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of each group
        self._flat = np.zeros((4, 0))  # type, workers, servers, rate
        self._profile: Profile | None = None  # whose tables of rates were read last

    def of(self, view: View) -> Candidates:
        """Return the candidates of all jobs, the present size of each running job among them."""
        from argosy.policies.common.candidate_rows import write_rows  # imports Numba

        jobs, profile = view.jobs, view.profile
        groups = self._groups(view)
        most = int(np.add.reduce(self._count[groups])) + len(jobs)
        counted, measured = np.empty((5, most), np.int64), np.empty((3, most))
        n = write_rows(
            groups,
            self._first,
            self._count,
            self._flat,
            jobs.state,
            jobs.held_type,
            jobs.held,
            jobs.peer,
            jobs.servers,
            jobs.gpus,
            jobs.reference_rate,
            jobs.executed_s,
            jobs.kind,
            jobs.ps_kind,
            self._overheads,
            *self._tables_of(profile),
            self._largest,
            counted,
            measured,
        )
        job, gpu_type, workers, servers, present = counted[:, :n]
        gpus, speed, cost_s = measured[:, :n]
        return Candidates(job, gpu_type, workers, servers, gpus, speed, cost_s, present.astype(bool))

    def _tables_of(self, profile: Profile) -> tuple[Floats, Floats, Floats]:
        """Return the rates in a node, in a rack and with parameter servers."""
        if profile is not self._profile:
            self._profile = profile
            self._tables = profile.table(1), profile.table(2), profile.ps_table()
        return self._tables

    def _groups(self, view: View) -> Ints:
        """Return the group of each job. Most rows hold the job that they held at the last decision."""
        n, of_job = len(view.jobs), self._of_job
        index = view.jobs.index[:n]
        if n > len(self._last_index):
            more = 2 * n - len(self._last_index)
            self._last_index = np.append(self._last_index, np.full(more, -1))
            self._last_group = np.append(self._last_group, np.zeros(more, np.int64))
        changed = np.flatnonzero(self._last_index[:n] != index).tolist()
        for row in changed:
            job = int(index[row])
            group = of_job.get(job)
            if group is None:
                group = of_job[job] = self._group_of(view, row)
            self._last_index[row], self._last_group[row] = job, group
        if len(of_job) > 4 * n + 1024:
            here = set(index.tolist())
            self._of_job = {i: group for i, group in of_job.items() if i in here}
        return self._last_group[:n]

    def _group_of(self, view: View, row: int) -> int:
        jobs = view.jobs
        names = ("kind", "ps_kind", "types", "gpus", "min_gpus", "max_gpus", "ps", "cpus", "memory_gib")
        key = tuple(float(getattr(jobs, name)[row]) for name in names)
        group = self._group.get(key)
        if group is None:
            group = self._group[key] = len(self._first)
            found = np.array(list(self._candidates(view, row)), np.float64).reshape(-1, 4).T
            self._first = np.append(self._first, self._flat.shape[1])
            self._count = np.append(self._count, found.shape[1])
            self._flat = np.concatenate([self._flat, found], axis=1)
        return group

    def _candidates(self, view: View, row: int) -> Iterator[Candidate]:
        jobs, profile = view.jobs, view.profile
        asked = float(jobs.gpus[row])
        if asked == 0:
            yield Candidate(ANY_TYPE, 1, 0, float(jobs.reference_rate[row]))
            return
        accepted = [t for t in range(self._types) if int(jobs.types[row]) >> t & 1]
        low, high = (1, 1) if asked < 1 else (max(int(np.ceil(jobs.min_gpus[row])), 1), int(jobs.max_gpus[row]))
        if not self._resize:
            low = high = max(int(asked), 1)
        if not self._retype:
            size = max(int(asked), 1)
            accepted = sorted(accepted, key=lambda t: self._plain_rate(profile, int(jobs.kind[row]), t, size))[-1:]
        if jobs.ps_kind[row] >= 0 and asked >= 1:
            for workers, servers, rate in self._with_servers(view, row, low, high):
                yield from (Candidate(t, workers, servers, rate) for t in accepted)
            return
        servers = int(jobs.ps[row])
        sizes = sorted({low, high, max(int(asked), 1), *(size for size in GRID if low < size < high)})
        for t in accepted:
            fastest = 0.0
            for size in sizes:
                rate = self._plain_rate(profile, int(jobs.kind[row]), t, size)
                if rate > fastest * (1 + LEAST_GAIN):
                    fastest = rate
                    yield Candidate(t, size, servers, rate)

    def _plain_rate(self, profile: Profile, kind: int, gpu_type: int, size: int) -> float:
        return float(profile.rate(kind, gpu_type, size, 1 if size <= self._largest[gpu_type] else 2))

    def _with_servers(self, view: View, row: int, low: int, high: int) -> Iterator[tuple[int, int, float]]:
        """Yield the upper hull of speed over the dominant share of the cluster that a size takes."""
        jobs, kind = view.jobs, int(view.jobs.ps_kind[row])
        most = min(high, MOST_SERVERS)
        if high == low:  # a rigid gang: as asked for
            yield low, int(jobs.ps[row]), float(view.profile.ps_rate(kind, int(jobs.ps[row]), low))
            return
        w, u = (g.ravel() for g in np.meshgrid(np.arange(low, max(most, low) + 1), np.arange(1, MOST_SERVERS + 1)))
        speed = np.asarray(view.profile.ps_rate(kind, u, w), np.float64)
        units = max(float(jobs.gpus[row]), 1.0)
        amounts = [w / self._total_gpus]
        for per_unit, total in ((jobs.cpus[row] / units, self._cpus), (jobs.memory_gib[row] / units, self._memory_gib)):
            amounts.append((w + u) * per_unit / max(total, 1e-9))
        share = np.max(amounts, axis=0)
        hull: list[int] = []
        for k in np.lexsort((w + u, -speed, share)).tolist():
            if hull and speed[k] <= speed[hull[-1]]:
                continue
            while hull and _slope(share, speed, hull[-2] if len(hull) > 1 else -1, k) >= _slope(
                share, speed, hull[-2] if len(hull) > 1 else -1, hull[-1]
            ):
                hull.pop()
            hull.append(k)
        for k in hull:
            yield int(w[k]), int(u[k]), float(speed[k])


def _slope(x: Floats, y: Floats, a: int, b: int) -> float:
    """Return the gain per share from point a (-1: nothing) to point b."""
    x0, y0 = (x[a], y[a]) if a >= 0 else (0.0, 0.0)
    return float((y[b] - y0) / (x[b] - x0)) if x[b] > x0 else np.inf
