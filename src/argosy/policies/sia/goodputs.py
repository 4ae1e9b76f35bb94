"""What Sia believes of each job: its goodput in every configuration, bootstrapped across GPU types.

A configuration is a number of GPUs of one type: a power of two inside a node, or whole nodes. On arrival a job is
profiled on one GPU of each type at a few batch sizes, so its computing time is known everywhere. How it synchronises is
learned where it has run: a type B on which it has not yet had several GPUs takes the goodputs of a type A on which it
has, times the ratio of the two on one GPU. Before it has run anywhere on several GPUs, it is believed to scale
perfectly. A live job is not profiled: nothing is known before it runs, and then all types are believed to be as fast as
that where it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.perf.batch_family import BatchFamily
from argosy.policies.base import Floats
from argosy.policies.pollux.speedups import Points, at_sizes, fit_points

TRIALS = 3  # batch sizes of the profiling on one GPU


@dataclass(slots=True)
class Belief:
    """What is known of one job, by GPU type."""

    points: dict[int, Points] = field(default_factory=dict)
    models: dict[int, Floats] = field(default_factory=dict)
    several: set[int] = field(default_factory=set)  # types on which it has had several GPUs
    most: int = 1  # GPUs of the largest configuration that was measured
    rows: tuple[Floats, Floats] | None = None  # goodput and best batch by configuration
    made_for: tuple[float, int] = (0.0, -1)


class Goodputs:
    """Keeps a belief of each job, and lists the configurations of the cluster."""

    def __init__(self, context: Context, *, growth: int, cap: int) -> None:
        self._growth, self._cap = growth, cap
        self._beliefs: dict[int, Belief] = {}
        self._fixed: dict[tuple[int, ...], Floats] = {}
        kinds, sizes = [], []
        self.node_gpus = np.ones(len(context.gpu_types), np.int64)
        for t in range(len(context.gpu_types)):
            here = context.node_gpus[(context.node_types == t) & (context.node_gpus > 0)]
            if not len(here):
                continue
            in_node, total = int(here.max()), int(here.sum())
            self.node_gpus[t] = in_node
            powers = [1 << i for i in range(in_node.bit_length()) if 1 << i < in_node]
            for size in (*powers, *range(in_node, min(total, cap) + 1, in_node)):
                kinds.append(t)
                sizes.append(size)
        self.types, self.sizes = np.array(kinds, np.int64), np.array(sizes, np.int64)
        pairs = np.stack([self.sizes > self.node_gpus[self.types], self.sizes], axis=1).astype(np.int64)
        different, place = np.unique(np.concatenate([[[0, 1]], pairs]), axis=0, return_inverse=True)
        self._several, self._size = different[:, 0] > 0, np.ascontiguousarray(different[:, 1])
        self._one, *self._place = place.reshape(-1).tolist()  # where one GPU, and each configuration, is among these
        self._names = context.gpu_types

    def observe(self, view: View) -> None:
        """Take what jobs report, and fit the models of those that have shown something new."""
        jobs = view.jobs
        here = set(jobs.index.tolist())
        self._beliefs = {index: belief for index, belief in self._beliefs.items() if index in here}
        noise = jobs.noise_scale
        for row in np.flatnonzero(jobs.family >= 0).tolist():
            index = int(jobs.index[row])
            if index not in self._beliefs:
                self._beliefs[index] = self._profiled(view.profile.families[int(jobs.family[row])])
            if jobs.state[row] != 1 or noise[row] != noise[row]:
                continue
            report = view.steps(row)
            if report is None:
                continue
            belief, kind = self._beliefs[index], int(jobs.held_type[row])
            key = (report.nodes, report.gpus, report.local_batch)
            if key not in belief.points[kind]:
                belief.points[kind][key] = (report.pass_s, report.step_s)
                belief.most = max(belief.most, report.gpus)
                if report.gpus > 1:
                    belief.several.add(kind)
                belief.made_for = (0.0, -1)
                belief.models[kind] = fit_points(belief.points[kind])

    def _profiled(self, family: BatchFamily) -> Belief:
        """Return what is known after a job was tried on one GPU of each type; a live job cannot be tried."""
        belief = Belief({kind: {} for kind in range(len(self._names))})
        if not family.profiled:
            return belief
        for kind, name in enumerate(self._names):
            top = min(float(family.largest_local[kind]), float(family.batches[-1]))
            low = min(family.m0, top)
            tried = np.unique(np.round(np.geomspace(low, top, TRIALS)))
            for local in tried.tolist():
                step_s, pass_s = family.model.step_times(name, 1, 0, local)
                belief.points[kind][1, 1, local] = (pass_s, step_s)
            belief.models[kind] = fit_points(belief.points[kind])
        return belief

    def of(self, view: View, row: int) -> tuple[Floats, Floats]:
        """Return a job's goodput in each configuration (0: not possible now) and its best batch there."""
        jobs = view.jobs
        if jobs.family[row] < 0:
            return self._by_profile(view, row), np.full(len(self.sizes), np.nan)
        family = view.profile.families[int(jobs.family[row])]
        belief = self._beliefs[int(jobs.index[row])]
        phi = float(jobs.noise_scale[row])
        phi = phi if phi == phi else family.m0
        limit = min(int(jobs.max_gpus[row]), self._growth * belief.most, self._cap, int(jobs.max_batch[row]))
        if belief.rows is None or belief.made_for != (phi, limit):
            belief.rows = self._rows(belief, family, phi, float(jobs.max_batch[row]), limit)
            belief.made_for = (phi, limit)
        goodput, batches = belief.rows
        accepted = jobs.types[row] >> self.types & 1 == 1
        asked = (self.sizes >= jobs.min_gpus[row]) & (self.sizes <= max(limit, int(np.ceil(jobs.min_gpus[row]))))
        return np.where(accepted & asked, goodput, 0.0), batches

    def _rows(self, belief: Belief, family: BatchFamily, phi: float, most: float, limit: int) -> tuple[Floats, Floats]:
        goodput, batches = np.zeros(len(self.sizes)), np.full(len(self.sizes), family.m0)
        limit = max(limit, 1)
        few = np.flatnonzero(self._size <= limit)
        several, sizes = self._several[few], self._size[few]
        tables = {
            kind: at_sizes(model, phi, family.m0, most, float(family.largest_local[kind]), several, sizes)
            for kind, model in belief.models.items()
        }
        number = {place: at for at, place in enumerate(few.tolist())}
        for at, (kind, size) in enumerate(zip(self.types.tolist(), self.sizes.tolist())):
            if size > limit:
                continue
            if not tables:  # nothing is known of the job
                goodput[at] = size
                continue
            source = kind if kind in tables else min(tables)
            if size > 1 and source not in belief.several and belief.several:
                source = min(belief.several)
            known = tables.get(kind, tables[source])  # an unknown type is believed to be as fast as a known one
            ratio = known[0][number[self._one]] / max(tables[source][0][number[self._one]], 1e-12)
            goodput[at] = tables[source][0][number[self._place[at]]] * ratio
            batches[at] = tables[source][1][number[self._place[at]]]
        return goodput, batches

    def _by_profile(self, view: View, row: int) -> Floats:
        """Return the speeds of a job whose batch is fixed in each configuration."""
        jobs = view.jobs
        key = tuple(
            int(getattr(jobs, name)[row]) for name in ("kind", "ps_kind", "ps", "types", "min_gpus", "max_gpus")
        )
        known = self._fixed.get(key)
        if known is None:
            speeds = np.zeros(len(self.sizes))
            for at, (kind, size) in enumerate(zip(self.types.tolist(), self.sizes.tolist())):
                if jobs.types[row] >> kind & 1 and jobs.min_gpus[row] <= size <= jobs.max_gpus[row]:
                    speeds[at] = self.speed(view, row, kind, size)
            self._fixed[key] = known = speeds
        return known

    def speed(self, view: View, row: int, kind: int, size: int) -> float:
        """Return the speed of a job with a fixed batch by its profile."""
        jobs, profile = view.jobs, view.profile
        if jobs.ps_kind[row] >= 0:
            return float(profile.ps_rate(int(jobs.ps_kind[row]), int(jobs.ps[row]), size))
        return float(profile.rate(int(jobs.kind[row]), kind, size, 1 if size <= self.node_gpus[kind] else 2))

    def state(self) -> list[Any]:
        """Return what jobs have shown, as JSON."""
        rows = []
        for index, belief in self._beliefs.items():
            points = [[k, [[*key, *seconds] for key, seconds in of.items()]] for k, of in belief.points.items()]
            models = [[k, model.tolist()] for k, model in belief.models.items()]
            rows.append([index, points, models, sorted(belief.several), belief.most])
        return rows

    def restore(self, state: list[Any]) -> None:
        self._beliefs = {}
        for index, points, models, several, most in state:
            of = {int(k): {(int(n), int(g), float(m)): (float(a), float(b)) for n, g, m, a, b in r} for k, r in points}
            fitted = {int(k): np.array(model) for k, model in models}
            self._beliefs[int(index)] = Belief(of, fitted, set(several), int(most))
