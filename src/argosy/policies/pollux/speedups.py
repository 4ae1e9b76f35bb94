"""What Pollux believes of each job: goodput by size, at the best batch, from the job's own measurements.

A job whose batch may be chosen reports its steps and its gradient noise scale. The throughput model is fitted again
only when a configuration is measured that was not known, and the table of goodputs is worked out again only when the
model or the noise scale has changed. Until it has run, a job is believed to speed up in proportion to its GPUs.
A job with a fixed batch has the speeds of its profile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.perf.batch_family import BatchFamily
from argosy.perf.iteration import IterationModel
from argosy.policies.base import Floats, Ints
from argosy.slack import RELATIVE_SLACK

STARTS = np.array([[*np.log([0.1, 0.01] * 3), 0.001], [*np.log([0.1, 0.001] * 3), 1.5]])  # where fits begin
Points = dict[tuple[int, int, float], tuple[float, float]]  # (nodes, K, local batch) → seconds of a pass, of a step
Table = tuple[Floats, Floats]  # goodputs and best batches: [0 one node / 1 several, K]


@dataclass(slots=True)
class Belief:
    """What is known of one job."""

    points: Points = field(default_factory=dict)
    model: Floats | None = None
    most: int = 0  # GPUs of the largest configuration that was measured
    tables: Table | None = None
    made_for: float = 0.0  # the noise scale of the tables


class Speedups:
    """Keeps a belief of each job."""

    def __init__(self, context: Context, *, cap: int, growth: int, profiled: bool) -> None:
        """Set the most GPUs of a job, as a number and relative to what it has ever had.

        With `profiled`, models are those that ship.
        """
        self._cap, self._growth, self._profiled = cap, growth, profiled
        self._beliefs: dict[int, Belief] = {}
        self._node_gpus = int(context.node_gpus.max(initial=1))
        self._types = context.gpu_types
        self._plain: dict[tuple[int, int, int], Floats] = {}
        self._shipped: dict[tuple[int, float, float, int], Table] = {}

    def observe(self, view: View) -> None:
        """Take what jobs report, and fit the models of those that have shown something new."""
        jobs = view.jobs
        here = set(jobs.index.tolist())
        self._beliefs = {index: belief for index, belief in self._beliefs.items() if index in here}
        noise = jobs.noise_scale
        for row in np.flatnonzero((jobs.family >= 0) & (jobs.state == 1) & ~np.isnan(noise)).tolist():
            report = view.steps(row)
            if report is None:
                continue
            belief = self._beliefs.setdefault(int(jobs.index[row]), Belief())
            key = (report.nodes, report.gpus, report.local_batch)
            if key in belief.points:
                continue
            belief.points[key] = (report.pass_s, report.step_s)
            belief.most = max(belief.most, report.gpus)
            belief.made_for = 0.0
            if not self._profiled:
                belief.model = fit_points(belief.points)

    def largest(self, view: View) -> Ints:
        """Return the most GPUs that each job may have now: exploration goes to `growth` times the largest measured."""
        jobs = view.jobs
        most = np.minimum(np.maximum(jobs.max_gpus, 1), self._cap).astype(np.int64)
        most = np.where(jobs.max_gpus == jobs.min_gpus, np.maximum(jobs.gpus, 1), most).astype(np.int64)
        if not self._profiled:
            for row in np.flatnonzero((jobs.family >= 0) & (jobs.min_gpus < jobs.max_gpus)).tolist():
                belief = self._beliefs.get(int(jobs.index[row]))
                seen = belief.most if belief is not None else 0
                lowest = max(int(np.ceil(jobs.min_gpus[row])), 1)
                most[row] = max(min(int(most[row]), max(self._growth * seen, 1), int(jobs.max_batch[row])), lowest)
        return np.asarray(most, np.int64)

    def tables(self, view: View, row: int, size: int, gpu_type: int) -> Table:
        """Return goodputs of a job (in any unit) and its best batches, up to `size` GPUs on this GPU type."""
        jobs = view.jobs
        if jobs.family[row] < 0:
            return self._fixed(view, row, size, gpu_type)
        family = view.profile.families[int(jobs.family[row])]
        belief = self._beliefs.setdefault(int(jobs.index[row]), Belief())
        phi = float(jobs.noise_scale[row])
        if self._profiled:
            return self._of_family(family, phi if phi == phi else family.m0, float(jobs.max_batch[row]), size, gpu_type)
        if belief.model is None or phi != phi:
            proportional = np.tile(np.arange(size + 1.0), (2, 1))
            return proportional, np.tile(np.maximum(family.m0, np.arange(size + 1.0)), (2, 1))
        if belief.tables is None or belief.made_for != phi or belief.tables[0].shape[1] <= size:
            largest = float(family.largest_local[gpu_type])
            belief.tables = fill(belief.model, phi, family.m0, float(jobs.max_batch[row]), largest, size)
            belief.made_for = phi
        return belief.tables

    def state(self) -> list[Any]:
        """Return what jobs have shown, as JSON."""
        return [
            [
                index,
                [[*key, *seconds] for key, seconds in one.points.items()],
                None if one.model is None else one.model.tolist(),
            ]
            for index, one in self._beliefs.items()
        ]

    def restore(self, state: list[Any]) -> None:
        self._beliefs = {}
        for index, rows, model in state:
            points = {(int(n), int(k), float(m)): (float(a), float(b)) for n, k, m, a, b in rows}
            most = max((k for _, k, _ in points), default=0)
            self._beliefs[int(index)] = Belief(points, None if model is None else np.array(model), most)

    def _of_family(self, family: BatchFamily, phi: float, most: float, size: int, gpu_type: int) -> Table:
        key = (family.first_class, phi, most, gpu_type)
        known = self._shipped.get(key)
        if known is None or known[0].shape[1] <= size:
            if len(self._shipped) > 4096:
                self._shipped.clear()
            name = self._types[gpu_type]
            if isinstance(family.model, IterationModel):
                p = family.model.params_for(name)
                seven = (p.alpha_s, p.beta_s, p.across_a_s, p.across_b_s, p.local_a_s, p.local_b_s, p.gamma)
                model = np.maximum(np.array(seven), 1e-8)
                known = fill(model, phi, family.m0, most, float(family.largest_local[gpu_type]), max(self._cap, size))
            else:
                known = of_measurements(family, phi, most, gpu_type, max(self._cap, size))
            self._shipped[key] = known
        return known[0][:, : size + 1], known[1][:, : size + 1]

    def _fixed(self, view: View, row: int, size: int, gpu_type: int) -> Table:
        jobs, profile, kind = view.jobs, view.profile, int(view.jobs.kind[row])
        servers = int(jobs.ps_kind[row])
        key = (kind, servers * 100_000 + int(jobs.ps[row]), gpu_type)
        known = self._plain.get(key)
        if known is None or known.shape[1] <= size:
            k = np.arange(size + 1)
            if servers >= 0:
                rate = np.asarray(profile.ps_rate(servers, int(jobs.ps[row]), k), np.float64)
                known = np.stack([rate, rate])
            else:
                known = np.stack([profile.rate(kind, gpu_type, k, level) for level in (1, 2)])
            self._plain[key] = known = np.where(k > 0, known, 0.0)
        return known[:, : size + 1], np.full((2, size + 1), np.nan)


def fit_points(points: Points) -> Floats:
    """Return the throughput model that fits what was measured."""
    from argosy.policies.pollux.kernels.speedup import fit  # imports Numba

    measured = np.array([(*key, *seconds) for key, seconds in points.items()], np.float64)
    return np.asarray(fit(measured, STARTS))


def fill(model: Floats, phi: float, m0: float, most: float, largest_local: float, size: int) -> Table:
    from argosy.policies.pollux.kernels.speedup import goodput_table

    table, batches = np.zeros((2, size + 1)), np.zeros((2, size + 1))
    goodput_table(model, phi, m0, max(most, m0), largest_local, size, table, batches)
    return table, batches


def at_sizes(
    model: Floats, phi: float, m0: float, most: float, largest_local: float, several: NDArray[np.bool_], sizes: Ints
) -> Table:
    """Return what `fill` does, for these sizes alone."""
    from argosy.policies.pollux.kernels.speedup import goodputs_at

    goodputs, batches = np.zeros(len(sizes)), np.zeros(len(sizes))
    goodputs_at(model, phi, m0, max(most, m0), largest_local, several, sizes, goodputs, batches)
    return goodputs, batches


def of_measurements(family: BatchFamily, phi: float, most: float, gpu_type: int, size: int) -> Table:
    """Return goodputs from measured speeds at the batch sizes of a family."""
    allowed = family.batches <= most * (1 + RELATIVE_SLACK)
    batches = family.batches[allowed]
    efficiency = (phi + family.m0) / (phi + batches)
    top = min(size, family.throughput.shape[2] - 1)
    goodput: Any = family.throughput[allowed][:, gpu_type, : top + 1, 1:3] * efficiency[:, None, None]
    goodput = np.where(batches[:, None, None] >= np.arange(top + 1)[None, :, None], goodput, 0.0)
    best = goodput.argmax(axis=0)
    table = np.zeros((2, size + 1))
    chosen = np.full((2, size + 1), family.m0)
    table[:, : top + 1], chosen[:, : top + 1] = goodput.max(axis=0).T, batches[best].T
    table[:, top + 1 :] = table[:, top : top + 1]
    return table, chosen
