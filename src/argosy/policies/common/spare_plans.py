"""Adds spare GPUs to explicit plans: what a plan leaves free is spare, on the nodes where a job runs already.

The plan was made as if nobody had spare GPUs. So jobs keep theirs only where the plan does not need them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from argosy.cluster.view import JobState, NodeState, View
from argosy.mechanism.plan import Placement, Plan
from argosy.policies.base import Ints
from argosy.policies.common.spare_gpus import SpareGpus
from argosy.slack import GPU_SLACK

Nodes = dict[int, int]  # GPUs by node


def extend_plan(spare: SpareGpus, view: View, seen: View, plan: Plan) -> Plan:
    """Return the plan with spare GPUs added; `seen` is the view that it was made from, without them."""
    jobs, extra = view.jobs, spare.held(view)
    runs = jobs.state == JobState.RUNNING
    stopped = plan.stops | (set() if plan.keeps else set(np.flatnonzero(runs).tolist()) - set(plan.placements))
    core = {row: _held(seen, row) for row in np.flatnonzero(runs & (jobs.gpus >= 1 - GPU_SLACK)).tolist()}
    stays = {row for row in core if row not in stopped and _stays(plan, row, core[row])}
    shared = {row for pair in plan.packs.items() for row in pair} | {row for rows, _ in plan.slices for row in rows}
    shared |= set(np.flatnonzero(jobs.peer >= 0).tolist()) if len(jobs) else set()
    free = _free_after(seen, plan, core, stopped)
    kept = np.zeros(len(jobs), np.int64)
    for row in spare.by_worth(view, extra):
        more = {node: count - core[row].get(node, 0) for node, count in _held(view, row).items()}
        fits = all(free[node] >= count for node, count in more.items()) and not plan.slices
        if row in stays and row not in shared and fits:
            kept[row] = extra[row]
            for node, count in more.items():
                free[node] -= count
            if row in plan.placements:
                _place(plan, view, row, _held(view, row))
        elif row in stays:
            _place(plan, view, row, core[row])
    lost = int((extra - kept).sum())
    may = np.zeros(len(jobs), bool)
    may[sorted(stays - shared)] = not plan.slices
    full = np.array([sum(core.get(row, {}).values()) for row in range(len(jobs))])
    may &= (kept == 0) & (full >= jobs.max_gpus - GPU_SLACK) & (extra == 0)
    free[(view.nodes.state != NodeState.UP) | (view.nodes.owner >= 0)] = 0
    for row, count in spare.new_in_plan(view, may, kept, free, lost).items():
        wanted = dict(core[row])
        for node in sorted(core[row]):
            here = min(count, int(free[node]))
            wanted[node] += here
            free[node] -= here
            count -= here
        if not count:
            _place(plan, view, row, wanted)
    plan.grows = {row for row in range(len(jobs)) if int(jobs.index[row]) in spare.growing}
    wake = spare.wake_at(view.now)
    if wake is not None:
        plan.wake_at = wake if plan.wake_at is None else min(wake, plan.wake_at)
    return plan


def _held(view: View, row: int) -> Nodes:
    """Return the GPUs that a job holds on each node."""
    found: Nodes = {}
    for part in view.placement(row):
        if part.devices:
            found[part.node] = found.get(part.node, 0) + part.devices.bit_count()
    return found


def _place(plan: Plan, view: View, row: int, gpus: Mapping[int, int]) -> None:
    plan.placements[row] = Placement({node: count for node, count in gpus.items() if count})


def _stays(plan: Plan, row: int, core: Nodes) -> bool:
    """Return whether a plan leaves a running job where it is, on any of the devices there."""
    placement = plan.placements.get(row)
    if placement is None:
        return True
    return not placement.devices and {n: c for n, c in placement.gpus.items() if c} == core


def _free_after(seen: View, plan: Plan, core: Mapping[int, Nodes], stopped: set[int]) -> Ints:
    """Return the free GPUs of each node after the plan; none where it names the devices to take."""
    free = seen.nodes.free.astype(np.int64).copy()
    for row in stopped | (set(plan.placements) & set(core)):
        for node, count in core.get(row, {}).items():
            free[node] += count
    whole = seen.jobs.gpus >= 1 - GPU_SLACK
    for row, placement in plan.placements.items():
        for node, count in placement.gpus.items():
            free[node] -= count if whole[row] else 1
        for node in placement.devices:
            free[node] = -(1 << 30)
    return free
