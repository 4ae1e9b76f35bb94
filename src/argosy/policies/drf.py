"""Dominant resource fairness.

Decision: how many GPUs each job gets, by progressive filling: starting from nothing, the job with the
smallest weighted dominant share is granted one more unit; a job whose next unit does not fit is passed over
from then on. The unit of an elastic job is first its smallest size and then one GPU with its CPUs and
memory, with one parameter server beside each worker if it uses them; the unit of a rigid job is the whole
gang.
State used: demands, ranges, weights, held GPUs (between slots), which nodes are up; with `harmless` throughput
profiles.
Parameters: `slot_s`, how often resources are divided anew (0: at every arrival and end; between slots
newcomers wait and all others keep what they have, as in DL2, where a slot is 1200 s); `stop_at_refusal`, DL2's
code, where the first job that can not be served ends the filling; `harmless`, where a job is passed over from the
first unit on that would make it slower than it is.
Differences from the paper: the parties are jobs, not users with endless tasks, so that a gang which never
shrinks has a share of 0 or of all it asked for, and ties at 0 go by arrival. Filling counts the cluster's
totals, as the paper does, but grants no job more than the empty nodes of one GPU type would hold of it; a
gang that then finds no room waits.
References: Ghodsi et al., Dominant resource fairness, NSDI'11; DL2 (pengyanghua/DL2) for the bundles.

    share(j) = max_r allocated_jr / capacity_r / weight(j),    next = argmin_j (share(j), arrival(j))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies._filling import SLACK, fill
from argosy.policies._harmless import Harmless
from argosy.policies.base import Floats, Ints, Policy, Sizes, register

NO_GPU = np.array([[0.0], [1.0], [1.0]])


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
        self._capacity = np.array([context.total_gpus, context.total_cpus, context.total_memory_gib])
        self._types = len(context.gpu_types)
        self._slot = -1  # the last one that was divided
        self._known_state = b""
        self._limits = Harmless(context)

    def rank(self, view: View) -> Floats:
        """Filling serves everybody for the first time in the order of arrival."""
        return view.jobs.submitted

    def size(self, view: View) -> Sizes:
        if self.slot_s:
            slot = self._slot_at(view.now)
            if slot == self._slot:
                return as_it_is(view)
            self._slot = slot
        return self.divide(view)

    def divide(self, view: View) -> Sizes:
        """Everything anew, from nothing."""
        jobs, nodes = view.jobs, view.nodes
        whole, with_servers = jobs.gpus >= 1, jobs.ps > 0
        low = np.where(whole, np.maximum(np.ceil(jobs.min_gpus), 1), 1).astype(np.int64)
        high = np.where(whole, np.floor(jobs.max_gpus), 1).astype(np.int64)
        elastic = high > low
        units = np.maximum(jobs.gpus, 1)
        worker = np.stack([np.ones(len(jobs)), jobs.cpus / units, jobs.memory_gib / units])
        server = worker * NO_GPU  # takes what a worker takes, but no GPU
        first = worker * low + server * np.where(elastic, low * with_servers, jobs.ps)
        first[0] = np.minimum(low, jobs.gpus)  # a share of a device, or none at all
        step = worker + server * with_servers
        up = nodes.state == 0
        high = np.maximum(np.minimum(high, self._largest_gang(view, step)), low)
        if self.harmless:
            high = self._limits.most(view, low, high)
        there = np.array([nodes.gpus @ up, nodes.cpus @ up, nodes.memory_gib @ up])
        arrival = np.argsort(jobs.index)
        grants = np.empty_like(low)
        grants[arrival] = fill(
            self._capacity, there, first[:, arrival], step[:, arrival], (high - low + 1)[arrival],
            jobs.weight[arrival], stop_at_refusal=self.stop_at_refusal,
        )  # fmt: skip
        workers = np.where(grants > 0, low + grants - 1, 0)
        return Sizes(workers, np.where(elastic, workers * with_servers, jobs.ps))

    def _largest_gang(self, view: View, step: Floats) -> Ints:
        """How many units of each job the empty nodes hold, on the best GPU type that the job accepts."""
        state = view.nodes.state.tobytes()
        if state != self._known_state:  # nodes of one shape count together; only faults change shapes
            self._known_state, self._shapes = state, shapes_of(view)
        held = np.zeros((self._types, len(view.jobs)), np.int64)
        for (gpu_type, *amounts), count in zip(*self._shapes):
            room = np.full(step.shape, np.inf)
            np.divide(np.array(amounts)[:, None], step, out=room, where=step > 0)
            held[int(gpu_type)] += count * np.floor(room.min(axis=0) + SLACK).astype(np.int64)
        accepted = view.jobs.types >> np.arange(self._types)[:, None] & 1
        return np.asarray((held * accepted).max(axis=0))

    def wake_at(self, view: View) -> float | None:
        return (self._slot_at(view.now) + 1) * self.slot_s if self.slot_s and len(view.jobs) else None

    def _slot_at(self, now: float) -> int:
        return int(now / self.slot_s + SLACK)

    def state(self) -> dict[str, Any]:
        return {"slot": self._slot}

    def restore(self, state: dict[str, Any]) -> None:
        self._slot = int(state["slot"])


def shapes_of(view: View) -> tuple[Floats, Ints]:
    """(type, GPUs, CPUs, memory) of each kind of node that is up and has GPUs, and how many there are."""
    nodes = view.nodes
    there = (nodes.state == 0) & (nodes.gpus > 0)
    rows = np.stack([nodes.type, nodes.gpus, nodes.cpus, nodes.memory_gib], axis=1)[there]
    shapes, counts = np.unique(rows, axis=0, return_counts=True)
    return shapes, counts


def as_it_is(view: View) -> Sizes:
    """What runs keeps its size, what waits goes on waiting."""
    jobs = view.jobs
    held = np.maximum(np.ceil(jobs.held), 1).astype(np.int64)  # 1 stands for a share, and for a CPU-only job
    return Sizes(np.where(jobs.state == 1, held, 0), jobs.servers)
