"""Dominant resource fairness: jobs get equal shares of the resource that each of them uses most.

Decision: how many GPUs each job gets, by progressive filling: starting from nothing, the job with the
smallest weighted dominant share is granted one more unit; a job whose next unit does not fit is passed over
from then on. The unit of an elastic job is first its smallest size and then one GPU with its CPUs and
memory, with one parameter server beside each worker if it uses them; the unit of a rigid job is the whole
gang.
State used: demands, ranges, weights, held GPUs (between slots), which nodes are up; with `harmless` throughput
profiles.
Parameters: `slot_s`, how often resources are divided again (0: at every arrival and end; between DL2's time slots new
jobs wait and all others keep what they have; DL2 uses 1200 s); `stop_at_refusal`, as in DL2's code, where the first job
that cannot be served ends the filling; `harmless`, where a job gets no further units once the next one would make it
slower.
Differences from the paper: shares belong to jobs, not to users with endless tasks, so that a gang which never
shrinks has a share of 0 or of all it asked for, and arrival decides ties at 0. Filling uses the cluster's
totals, as the paper does, but grants a job no more than the empty nodes of one GPU type could hold; a gang
that then finds no room waits.
References: Ghodsi et al., Dominant resource fairness, NSDI'11; DL2 (pengyanghua/DL2) for the bundles.

    share(j) = max_r allocated_jr / capacity_r / weight(j),    next = argmin_j (share(j), arrival(j))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Policy, Sizes, register
from argosy.policies.common.demands import Units, cluster_totals, installed, size_range
from argosy.policies.common.filling import fill
from argosy.policies.common.growth_limit import GrowthLimit
from argosy.policies.common.node_shapes import NodeShapes
from argosy.policies.common.sizes import current_sizes
from argosy.policies.common.time_slots import slot_at


@register("drf", "equal dominant shares; elastic jobs grow and shrink", "Ghodsi et al., NSDI'11")
class Drf(Policy):
    uses = frozenset({"demand", "nodes"})
    preemptive = True

    def __init__(self, slot_s: float = 0.0, stop_at_refusal: bool = False, harmless: bool = False) -> None:
        if not 0 <= slot_s < np.inf:
            raise InputError(f"drf: slot_s must be a time ≥ 0, is {slot_s}")
        self.slot_s, self.stop_at_refusal, self.harmless = slot_s, stop_at_refusal, harmless
        self.uses = self.uses | ({"placement"} if slot_s else set()) | ({"profile"} if harmless else set())

    def reset(self, context: Context) -> None:
        self._capacity = cluster_totals(context)
        self._shapes = NodeShapes(len(context.gpu_types))
        self._slot = -1  # the last time slot in which resources were divided
        self._limits = GrowthLimit(context)

    def rank(self, view: View) -> Floats:
        """Return the order of arrival, which is the order of the first grants."""
        return view.jobs.submitted

    def size(self, view: View) -> Sizes:
        if self.slot_s:
            slot = slot_at(view.now, self.slot_s)
            if slot == self._slot:
                return current_sizes(view)
            self._slot = slot
        return self.divide(view)

    def divide(self, view: View) -> Sizes:
        """Divide the whole cluster, as if no job held anything."""
        jobs, units, with_servers = view.jobs, Units.of(view), view.jobs.ps > 0
        low, high = size_range(view)
        elastic = high > low
        first = units.amounts(low, np.where(elastic, low * with_servers, jobs.ps))
        step = units.worker + units.server * with_servers
        high = np.maximum(np.minimum(high, self._shapes.largest_gang(view, step)), low)
        if self.harmless:
            high = self._limits.most(view, low, high)
        arrival = np.argsort(jobs.index)
        grants = np.empty_like(low)
        grants[arrival] = fill(
            self._capacity,
            installed(view),
            first[:, arrival],
            step[:, arrival],
            (high - low + 1)[arrival],
            jobs.weight[arrival],
            stop_at_refusal=self.stop_at_refusal,
        )
        workers = np.where(grants > 0, low + grants - 1, 0)
        return Sizes(workers, np.where(elastic, workers * with_servers, jobs.ps))

    def wake_at(self, view: View) -> float | None:
        return (slot_at(view.now, self.slot_s) + 1) * self.slot_s if self.slot_s and len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        return {"slot": self._slot}

    def restore(self, state: dict[str, Any]) -> None:
        self._slot = int(state["slot"])
