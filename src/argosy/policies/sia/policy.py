"""Sia: each job gets one configuration (a GPU type and a number of GPUs) so that goodputs add up to most.

Decision: for every job and configuration, goodput at the best batch, relative to the job's worst configuration. A
change of configuration counts less, because of the restart. Of the bids (one for each configuration) the mechanism
takes at most one of each job, within the GPUs of each type, with the largest sum of values: that is Sia's integer
program. Jobs take the batch that is best in their configuration.
State used: demands, what jobs hold; step times, batch sizes and noise scales that jobs report;
profiles of jobs with fixed batches; what restarts cost.
Parameters: `p`, the power of goodputs, below 0: the smaller, the fairer; `idle`, the penalty of a job without GPUs,
above 1; `every_s`, how often it decides if nothing happens; `growth`, how many times as many GPUs as ever measured a
job may get; `cap`, most GPUs of a job.
Differences from the paper: the mechanism's choice is exact for few jobs, and has a bound on the loss beyond; a running
job that wins nothing goes on if nobody needs its place; what is left over is filled with jobs that won nothing. The
restart factor holds for running jobs alone: one that waits has to start anyway. Profiling on one GPU of each type takes
no time. The fit is Argosy's (see pollux). No pipeline-parallel jobs.
References: Jayaram Subramanya et al., Sia, SOSP'23; siasosp23/artifacts.

    minimise Σ_ij X_ij · (G_ij · r_ij)^p + λ Σ_i (1 − Σ_j X_ij)   as bids:   value_ij = λ − (G_ij · r_ij)^p
    r = max(age − n·c, 0) / (age + c) for another configuration than the present one; 1 for that, and if age < c
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, Overhead, View
from argosy.errors import InputError
from argosy.mechanism.bids import ANY_TYPE, Bids
from argosy.policies.base import Floats, Policy, register
from argosy.policies.common.restarts import Restarts
from argosy.policies.sia.goodputs import Goodputs

TINY = 1e-9
MOST = 3000.0  # larger goodputs, relative to the worst configuration, count as this


@register(
    "sia", "one configuration of GPU type and size for each job, by goodput", "Jayaram Subramanya et al., SOSP'23"
)
class Sia(Policy):
    uses = frozenset({"demand", "placement", "profile", "efficiency", "overhead"})
    preemptive = True

    def __init__(
        self, p: float = -0.5, idle: float = 1.1, every_s: float = 60.0, growth: int = 2, cap: int = 64
    ) -> None:
        if not -10 <= p < 0:
            raise InputError(f"sia: p must lie in -10..0, below 0, is {p}")
        least = {"idle": (idle, 1.0), "every_s": (every_s, 1.0), "growth": (growth, 1), "cap": (cap, 1)}
        for name, (value, at_least) in least.items():
            if not at_least <= value < np.inf:
                raise InputError(f"sia: {name} must be a number ≥ {at_least:g}, is {value}")
        self.p, self.idle, self.every_s, self.growth, self.cap = p, idle, every_s, growth, cap

    def reset(self, context: Context) -> None:
        self._costs = context.costs()
        self._goodputs = Goodputs(context, growth=self.growth, cap=self.cap)
        self._restarts = Restarts()

    def bid(self, view: View) -> Bids:
        jobs, goodputs = view.jobs, self._goodputs
        goodputs.observe(view)
        restarts, since = self._restarts.of(view)
        cost_s = self._costs[jobs.kind, Overhead.RESIZE]
        age = view.now - jobs.submitted
        factor = np.where(age < cost_s, 1.0, np.maximum(age - restarts * cost_s, 0.0) / np.maximum(age + cost_s, TINY))
        frozen = (jobs.state == 1) & (view.now - since < cost_s) & (since < view.now)
        parts: list[tuple[Any, ...]] = []
        for row in range(len(jobs)):
            parts.append(self._bids_of(view, row, float(factor[row]), bool(frozen[row])))
        if not parts:
            nothing = np.zeros(0, np.int64)
            return Bids(nothing, nothing, nothing, np.zeros(0))
        job = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        types, sizes, value, batch = (np.concatenate(column) for column in zip(*parts))
        return Bids(job, types, sizes, value, servers=np.where(sizes > 0, jobs.ps[job], 0), batch=batch)

    def _bids_of(self, view: View, row: int, factor: float, frozen: bool) -> tuple[Any, ...]:
        """Return GPU types, sizes, values and batches of one job's bids."""
        jobs, goodputs = view.jobs, self._goodputs
        one, unknown = np.ones(1, np.int64), np.full(1, np.nan)
        if jobs.gpus[row] < 1:
            if jobs.gpus[row] == 0:
                return np.array([ANY_TYPE]), one, np.array([self.idle]), unknown
            types = np.flatnonzero(jobs.types[row] >> np.arange(len(goodputs.node_gpus)) & 1)
            small = np.full(len(types), (self.idle - 1.0) + TINY)
            return types, np.ones(len(types), np.int64), small, np.full(len(types), np.nan)
        goodput, batches = goodputs.of(view, row)
        types, sizes = goodputs.types, goodputs.sizes
        held, on = int(jobs.held[row]), int(jobs.held_type[row])
        present = (types == on) & (sizes == held)
        found = goodput > 0
        if not found.any() or (held and on >= 0 and not (present & found).any()):
            # a size that is no configuration: what a rigid job asks for, or what it has now
            extra = self._odd_sizes(view, row, held, on)
            types = np.append(types, [t for t, _, _ in extra]).astype(np.int64)
            sizes = np.append(sizes, [k for _, k, _ in extra]).astype(np.int64)
            goodput = np.append(goodput, [speed for _, _, speed in extra])
            batches = np.append(batches, np.full(len(extra), np.nan))
            present, found = (types == on) & (sizes == held), goodput > 0
        types, sizes, goodput = types[found], sizes[found], goodput[found]
        batches, present = batches[found], present[found]
        runs = bool(jobs.state[row] == 1)
        relative = np.minimum(goodput / max(float(goodput.min(initial=np.inf)), TINY), MOST)
        weighed = relative * np.where(present | (not runs), 1.0, max(factor, TINY))
        value: Floats = (self.idle - np.maximum(weighed, TINY) ** self.p) * jobs.weight[row]
        if runs and frozen and present.any():
            return types[present], sizes[present], np.full(1, 1e3), batches[present]
        if runs and present.any():  # never worth less than nothing: it would only be stopped for that
            value = np.where(present, np.maximum(value, TINY), value)
        return types, sizes, value, batches

    def _odd_sizes(self, view: View, row: int, held: int, on: int) -> list[tuple[int, int, float]]:
        jobs, goodputs = view.jobs, self._goodputs
        accepted = [t for t in range(len(goodputs.node_gpus)) if int(jobs.types[row]) >> t & 1]
        rigid = jobs.min_gpus[row] == jobs.max_gpus[row]
        wanted = {(t, int(jobs.gpus[row])) for t in accepted} if rigid else set()
        smallest = max(int(np.ceil(jobs.min_gpus[row])), 1)
        if not rigid:
            wanted |= {(t, smallest) for t in accepted}
        if held and on >= 0:
            wanted.add((on, held))
        return [(t, k, max(goodputs.speed(view, row, t, k), TINY)) for t, k in sorted(wanted)]

    def wake_at(self, view: View) -> float | None:
        return view.now + self.every_s if len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        return {"goodputs": self._goodputs.state(), "restarts": self._restarts.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._goodputs.restore(state["goodputs"])
        self._restarts.restore(state["restarts"])
