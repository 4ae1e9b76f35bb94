"""Lyra (Aryl): base demands first, shortest job first; then extra workers by a knapsack; few preemptions on reclaim.

Decision: running jobs keep their base demand: what a rigid job asks for, the smallest size of an elastic one. Waiting
jobs get theirs in the order of their expected durations, as far as GPUs suffice, where extra workers count as free.
What is then left goes to elastic jobs as extra workers, so that the time saved is as large as possible (`knapsack.py`).
Jobs are placed on the nodes that they fill best; elastic jobs rather on lent ones, rigid jobs rather on the cluster's
own. When lent servers go back, those go whose return preempts the fewest jobs (`reclaim.py`).
State used: demands, ranges, placements, which nodes are there and which are lent, throughput profiles, the run's
estimate of the time left, what resizing costs.
Parameters: `every_s`, how often extra workers are divided again beside arrivals and ends; `reclaim`, which servers go
back: `cheapest`, or `random`, for comparison.
Differences from the paper: how many servers are lent is given by the cluster file, not decided by an inference
scheduler. The cost of a server (the sum of 1 / servers of each job on it) and the free release of extra workers are
from notes on the paper. The time saved by extra workers counts less the cost of the resize. With several GPU types, a
job's extra workers are of the type that it runs on, and each type has a knapsack of its own. Fastest types are tried
first.
References: Li et al., Lyra, EuroSys'23; Li et al., Aryl, arXiv 2202.07896.

    max Σ_j saved(j, k_j)    Σ_j k_j ≤ spare GPUs    saved(j, k) = left(j) / speed(base) − left(j) / speed(base + k)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.compose import compose
from argosy.mechanism.plan import Plan
from argosy.policies.base import POLICIES, Floats, Ints, Policy, register
from argosy.policies.common.demands import Units, size_range
from argosy.policies.common.estimates import longest_where_unknown
from argosy.policies.common.node_shapes import NodeShapes, largest_node_gpus
from argosy.policies.common.speeds import AllReduceSpeeds
from argosy.policies.lyra.knapsack import choose
from argosy.policies.lyra.reclaim import Holder, cheapest
from argosy.seeding import stream
from argosy.slack import GPU_SLACK

RECLAIM = ("cheapest", "random")
LATER = 1e15  # rank of jobs that only grow
SOURCE = "Li et al., EuroSys'23"


@register("lyra", "short jobs' base demands first, then extra workers by a knapsack; borrows idle servers", SOURCE)
class Lyra(Policy):
    uses = frozenset({"demand", "placement", "nodes", "profile", "estimate", "overhead"})
    seeded = True

    def __init__(self, every_s: float = 1800.0, reclaim: str = "cheapest") -> None:
        if not every_s > 0:
            raise InputError(f"{self.name}: every_s must be a time > 0, is {every_s}")
        if reclaim not in RECLAIM:
            raise InputError(f"{self.name}: reclaim must be one of {', '.join(RECLAIM)}, is {reclaim!r}")
        self.every_s, self.chooses = every_s, reclaim

    def reset(self, context: Context) -> None:
        self._types = len(context.gpu_types)
        self._largest = largest_node_gpus(context)
        self._shapes = NodeShapes(self._types)
        self._lent = np.zeros(len(context.node_gpus), bool) if context.lent is None else context.lent
        self._limits, self._costs = context.queue_limits, context.costs()
        self._speeds: AllReduceSpeeds | None = None
        self._random = stream(context.seed, "lyra.reclaim")

    def plan(self, view: View) -> Plan:
        left_s = longest_where_unknown(view.jobs.expected_left_s)
        key, sizes, of_type = self._sizes(view, left_s)

        def place(view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
            return self._place(view, row, gpus, free, of_type)

        plan = compose(view, key, place, sizes=sizes, limits=self._limits, fitting=True)
        plan.wake_at = view.now + self.every_s if len(view.jobs) else None
        return plan

    def reclaim(self, view: View, nodes: Ints, count: int) -> Ints:
        if self.chooses == "random":
            return np.asarray(self._random.permutation(nodes)[:count])
        low, high = size_range(view)
        holders = {}
        for row in range(len(view.jobs)):
            gpus = {part.node: part.devices.bit_count() for part in view.placement(row)}
            if gpus:
                elastic = high[row] > low[row] and not view.jobs.servers[row]
                holders[row] = Holder(gpus, float(low[row]) if elastic else float(sum(gpus.values())))
        return np.array(cheapest(nodes.tolist(), count, holders), np.int64)

    def _sizes(self, view: View, left_s: Floats) -> tuple[Floats, Ints, Ints]:
        """Return the order, the GPUs of each job, and the GPU type of jobs that run or shall."""
        jobs, nodes = view.jobs, view.nodes
        low, high = size_range(view)
        whole, runs = jobs.gpus >= 1, jobs.state == 1
        base = np.where(whole, low, jobs.gpus)
        up = np.where((nodes.state == 0) & ((nodes.owner < 0) | np.isin(nodes.owner, jobs.queue)), nodes.gpus, 0)
        room = np.bincount(nodes.type, up, self._types).astype(np.float64)
        of_type = np.where(runs, jobs.held_type, -1).astype(np.int64)
        on_gpus = runs & (of_type >= 0)
        np.subtract.at(room, of_type[on_gpus], np.minimum(base, jobs.held)[on_gpus])
        sizes = np.where(runs, np.where(whole, np.minimum(low, jobs.held), 1), np.where(jobs.gpus > 0, 0, 1))
        sizes = sizes.astype(np.int64)
        key = np.where(runs, LATER, left_s)
        for row in np.lexsort((jobs.index, left_s)).tolist():
            if runs[row] or jobs.gpus[row] == 0:
                continue
            for t in self._fastest_first(view, row):
                if room[t] + GPU_SLACK >= base[row]:
                    room[t] -= base[row]
                    sizes[row], of_type[row] = max(int(low[row]), 1), t
                    break
        self._extras(view, left_s, low, high, sizes, of_type, room)
        return key, sizes, of_type

    def _fastest_first(self, view: View, row: int) -> list[int]:
        accepted = [t for t in range(self._types) if int(view.jobs.types[row]) >> t & 1]
        if len(accepted) < 2:
            return accepted
        rate = view.profile.rate(view.jobs.kind[row], np.array(accepted), max(int(view.jobs.gpus[row]), 1), 1)
        return [accepted[i] for i in np.argsort(-np.asarray(rate), kind="stable")]

    def _extras(
        self, view: View, left_s: Floats, low: Ints, high: Ints, sizes: Ints, of_type: Ints, room: Floats
    ) -> None:
        """Add extra workers to the sizes, as the knapsacks choose."""
        jobs = view.jobs
        if self._speeds is None:
            self._speeds = AllReduceSpeeds(view.profile, self._largest)
        elastic = (high > low) & (sizes > 0) & (jobs.gpus >= 1)
        unit = Units.of(view)
        most = self._shapes.gangs_by_type(view, unit.worker + unit.server * (jobs.ps > 0))
        for t in range(self._types):
            spare = int(room[t] + GPU_SLACK)
            rows = np.flatnonzero(elastic & (of_type == t))
            if spare < 1 or not len(rows):
                continue
            groups = []
            for row in rows.tolist():
                top = int(min(high[row], low[row] + spare, max(most[t, row], low[row])))
                extra = np.arange(1, top - low[row] + 1)
                saved = self._saved_s(view, row, t, left_s[row], int(low[row]), top)
                groups.append((extra, saved))
            for row, item in zip(rows.tolist(), choose(groups, spare)):
                sizes[row] += item + 1

    def _saved_s(self, view: View, row: int, gpu_type: int, left_s: float, low: int, top: int) -> Floats:
        """Return the time that 1, 2, … workers beyond the smallest size save, less what the resize costs."""
        jobs = view.jobs
        if jobs.ps_kind[row] >= 0:
            workers = np.arange(low, top + 1)
            rate = np.asarray(view.profile.ps_rate(jobs.ps_kind[row], jobs.ps[row], workers), np.float64)
            seconds = 1.0 / np.maximum(rate, 1e-12)
        else:
            assert self._speeds is not None
            seconds = np.array(self._speeds.times(int(jobs.kind[row]), gpu_type, top)[low : top + 1])
        needs = left_s * jobs.reference_rate[row] * seconds
        if jobs.state[row] == 1:
            needs = needs + np.where(np.arange(low, top + 1) == jobs.held[row], 0.0, self._costs[jobs.kind[row], -1])
        return np.asarray(needs[0] - needs[1:])

    def _place(self, view: View, row: int, gpus: int, free: Ints, of_type: Ints) -> dict[int, int] | None:
        """Choose nodes for a job: those that it holds, then lent ones if it is elastic, else own ones.

        Among equal nodes, the one that is left with fewest free GPUs.
        """
        nodes = view.nodes
        on_type = np.flatnonzero((free > 0) & (nodes.type == of_type[row]))
        held = {part.node: part.devices.bit_count() for part in view.placement(row)}
        wrong = self._lent[on_type] != (view.jobs.max_gpus[row] > view.jobs.min_gpus[row])
        mine = np.array([held.get(node, 0) for node in on_type.tolist()], np.int64)
        chosen: dict[int, int] = {}
        while gpus:
            left = free[on_type] - np.array([chosen.get(node, 0) for node in on_type.tolist()], np.int64)
            if not (left > 0).any():
                return None
            whole = left >= gpus
            # first what it holds; then one node for all, the fullest; else the emptiest nodes
            order = np.lexsort((np.where(whole, left, -left), wrong, ~whole, -mine, left <= 0))
            node = int(on_type[order[0]])
            mine[order[0]] = 0
            count = int(min(left[order[0]], gpus))
            chosen[node] = chosen.get(node, 0) + count
            gpus -= count
        return chosen

    def state(self) -> dict[str, Any]:
        return {"random": self._random.bit_generator.state} if self.chooses == "random" else {}

    def restore(self, state: dict[str, Any]) -> None:
        if "random" in state:
            self._random.bit_generator.state = state["random"]


POLICIES.also("aryl", "lyra")  # its first name
