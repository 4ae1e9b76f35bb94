"""What all of Gavel's policies share: the speed of each job on each GPU type, and the problem that a policy solves.

A *column* of an allocation is a GPU type, or, for placement-aware policies, a GPU type consolidated or spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, Place, Sizes
from argosy.policies.common.node_shapes import largest_node_gpus
from argosy.policies.common.share_policy import SharePolicy
from argosy.policies.gavel import central_path
from argosy.policies.gavel.linear_program import fairest
from argosy.policies.gavel.pairs import JobPairs, fairest_with_pairs
from argosy.workload.durations import DEFAULT_S

SOURCE = "Narayanan et al., OSDI'20"
ONE_NODE, SEVERAL_NODES = 0, 2  # locality levels of the profile


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs in order of arrival, and the cluster that they share.

    Speed is work per second relative to the requested configuration on the reference type; 0 where a job cannot run.
    """

    speed: Floats  # [job, column]
    gpus: Floats
    weight: Floats
    queue: Ints
    index: Ints
    capacity: Floats  # GPUs by type
    column_type: Ints
    columns: dict[str, Floats]  # further columns, as the policy needs them
    extra: bool = True  # whether time that the objective leaves unused is distributed as well
    beside: Floats | None = None  # [kind, kind]: speed when packed, relative to alone; None: no jobs are packed
    pairs: JobPairs = field(default_factory=dict)  # filled by `fairest`

    def part(self, rows: Ints, of: int) -> Problem:
        """Return the problem of some of the jobs on one of `of` equal parts of the cluster."""
        some = {name: values[rows] for name, values in self.columns.items()}
        return replace(
            self,
            speed=self.speed[rows],
            gpus=self.gpus[rows],
            weight=self.weight[rows],
            queue=self.queue[rows],
            index=self.index[rows],
            capacity=self.capacity / of,
            columns=some,
        )

    def fairest(self, due: Floats) -> Floats:
        """Return shares that give every job at least t · due, with t as large as possible."""
        if self.beside is None:
            shares, _ = fairest(self.speed, self.gpus, due, self.capacity, self.column_type, self.extra)
            return shares if self.extra else self.as_theirs(shares, due=due)
        shares, pairs, _ = fairest_with_pairs(
            self.speed,
            self.gpus,
            due,
            self.columns["kind"].astype(np.int64),
            self.beside,
            self.capacity,
            self.column_type,
            self.extra,
        )
        self.pairs.update(pairs)
        return shares

    def as_theirs(self, usual: Floats, **wanted: Floats) -> Floats:
        """Return the shares that the authors' solver finds (see `central_path.shares`); `usual`, if it finds none."""
        able = np.flatnonzero((self.speed > 0).any(axis=1))
        if not len(able):
            return usual
        rows = {name: column[able] for name, column in wanted.items()}
        found = central_path.shares(self.speed[able], self.gpus[able], self.capacity, self.column_type, **rows)
        if found is None:
            return usual
        shares = usual.copy()
        shares[able] = found
        return shares

    def equal_speed(self) -> Floats:
        """Return each job's speed with the same part of every GPU type for all: X_eq(j) = capacity(j) / Σ capacity."""
        return np.asarray(self.speed @ self.by_column(self.capacity / max(float(self.capacity.sum()), 1.0)))

    def by_column(self, by_type: Floats) -> Floats:
        """Turn amounts by GPU type into amounts by column: the columns of a type share it."""
        return np.asarray(by_type[self.column_type] / np.bincount(self.column_type)[self.column_type])


class Gavel(SharePolicy):
    """The base class of Gavel's policies, which implement `solve`; with `aware` False all GPU types look alike."""

    uses = frozenset({"demand", "nodes", "profile"})
    aware = True

    def __init__(
        self,
        round_s: float = 360.0,
        min_interval_s: float = 1920.0,
        authors: bool = False,
        placement_aware: bool = False,
        partitions: int = 1,
    ) -> None:
        super().__init__(round_s, min_interval_s, authors)
        if partitions < 1:
            raise InputError(f"{self.name}: partitions must be ≥ 1, is {partitions}")
        if placement_aware and not self.aware:
            raise InputError(f"{self.name}: it ignores speeds, so placement_aware has no effect", hint="leave it out")
        self.placement_aware, self.partitions = placement_aware, partitions
        self.shuffles = not self.aware and not self.is_queue
        if authors and not self.aware:
            self.uses = self.uses | {"profile"}  # whole steps of a round depend on the GPU type

    def solve(self, problem: Problem) -> Floats:
        """Return the fraction of time that each job runs on each column."""
        raise NotImplementedError

    def reset(self, context: Context) -> None:
        super().reset(context)
        self.largest_node = largest_node_gpus(context)
        self.column_type = np.array(self.column_types(len(context.gpu_types)))

    def column_types(self, types: int) -> list[int]:
        return [t for t in range(types) for _ in range(2 if self.placement_aware else 1)]

    def speeds(self, view: View, places: Ints) -> tuple[Floats, Floats]:
        jobs, types = view.jobs, self.column_type
        accepts = (jobs.types[places][:, None] >> types & 1 == 1) & (jobs.gpus[places][:, None] <= self.nominal[types])
        if not self.aware and not self.authors:
            return accepts.astype(float), np.zeros(accepts.shape)
        gpus = jobs.gpus[places][:, None]
        size = np.maximum(gpus, 1).astype(np.int64)
        consolidated = size <= self.largest_node[types]
        level = np.where(consolidated, ONE_NODE, SEVERAL_NODES)
        if self.placement_aware:
            spread = np.arange(len(types)) % 2 == 1  # the second column of each type
            accepts &= np.where(spread, size > 1, consolidated)
            level = np.where(spread, SEVERAL_NODES, level)
        pace = view.profile.rate(jobs.kind[places][:, None], types, size, level) * np.minimum(gpus, 1.0)
        served = jobs.ps_kind[places] >= 0
        if served.any():
            ps = places[served]
            pace[served] = view.profile.ps_rate(jobs.ps_kind[ps], jobs.ps[ps], size[served, 0])[:, None]
        pace = np.where(accepts, pace, 0.0)
        if not self.aware:
            return accepts.astype(float), pace
        return pace / jobs.reference_rate[places][:, None], pace

    def share(self, view: View, places: Ints, speed: Floats) -> Floats:
        if self.authors and not self.aware:  # theirs takes the speed on a V100 for that on all types
            speed = np.ones(speed.shape)
        problem = self._problem(view, places, speed)
        parts = min(self.partitions, len(places))
        if parts <= 1:
            return self.solve(problem)
        share = np.zeros(speed.shape)
        order = np.lexsort((problem.index, *speed.T, problem.gpus))  # similar jobs are spread evenly over the parts
        for k in range(parts):
            rows = np.sort(order[k::parts])
            share[rows] = self.solve(problem.part(rows, parts))
        return share

    def _problem(self, view: View, places: Ints, speed: Floats) -> Problem:
        jobs = view.jobs
        return Problem(
            speed,
            jobs.gpus[places],
            jobs.weight[places],
            jobs.queue[places],
            jobs.index[places],
            self.capacity,
            self.column_type,
            self.columns(view, places),
            not self.authors,
        )

    def columns(self, view: View, places: Ints) -> dict[str, Floats]:
        """Return what `solve` needs in addition to demands and speeds."""
        return {}

    def size(self, view: View) -> Sizes:
        sizes = super().size(view)
        return replace(sizes, places=self._places(view)) if self.placement_aware else sizes

    def _places(self, view: View) -> Ints:
        """Return place codes: a job that runs on a consolidated column waits rather than be spread over nodes."""
        codes = np.full(len(view.jobs), int(Place.AS_USUAL), np.int64)
        row_of = {int(job): row for row, job in enumerate(view.jobs.index)}
        for (job, _), column in self.rounds.columns_of().items():
            if column % 2 == 0:
                codes[row_of[job]] = Place.CONSOLIDATE + Place.STRICT
        return codes


class TimedGavel(Gavel):
    """A policy that also uses how much work is left, by the run's estimator, and how long ago each job arrived."""

    uses = frozenset({"demand", "nodes", "profile", "estimate"})

    def columns(self, view: View, places: Ints) -> dict[str, Floats]:
        left = view.jobs.expected_left_s[places]
        known = np.isfinite(left)
        usual = float(left[known].max()) if known.any() else DEFAULT_S
        left = np.maximum(np.where(known, left, usual), 1e-3)
        found = {"left_s": left, "age_s": view.now - view.jobs.submitted[places]}
        return found | {"steps_per_s": view.jobs.reference_rate[places]} if self.authors else found
