"""What the mechanism does not check in a policy's own plan: minimum run times, and jobs that share with nobody.

A plan that breaks none of these rules is carried out as it is. One that does is carried out as far as it can be: what
it may not stop stays, and starts that then find no room wait until the policy is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from argosy.cluster.view import WHOLE, JobState, NodeState
from argosy.mechanism.free_nodes import Claim, FreeNodes
from argosy.mechanism.plan import Placement, Plan
from argosy.slack import GPU_SLACK, TIME_SLACK_S

if TYPE_CHECKING:
    from argosy.live.planner.engine import LiveEngine


def allowed(engine: LiveEngine, plan: Plan, protected: Mapping[int, float], exclusive: Set[int]) -> Plan:
    """Return the plan, or the part of it that may be carried out now."""
    if exclusive and plan.packs:
        ids = engine.jobs.index
        packs = {g: h for g, h in plan.packs.items() if not {int(ids[g]), int(ids[h])} & exclusive}
        plan = replace(plan, packs=packs)
    young = _young(engine, protected) if protected else {}
    hurt = [row for row in young if _is_hurt(plan, row)]
    if not hurt:
        return plan
    return _without(engine, plan, set(young), min(young[row] for row in hurt))


def _young(engine: LiveEngine, protected: Mapping[int, float]) -> dict[int, float]:
    """Return the running jobs (by row) that may not be stopped yet, and until when."""
    jobs, found = engine.jobs, {}
    state, started = jobs.state, jobs.started
    for index, span in protected.items():
        row = jobs.row_of(index)
        if row >= 0 and state[row] == JobState.RUNNING and started[row] + span > engine.now + TIME_SLACK_S:
            found[row] = float(started[row] + span)
    return found


def _is_hurt(plan: Plan, row: int) -> bool:
    """Say whether the plan would stop the job. (A resize, a move or turns with others do not stop it.)"""
    return row in plan.stops or (not plan.keeps and row not in plan.placements and row not in plan.packs)


def _without(engine: LiveEngine, plan: Plan, young: set[int], until: float) -> Plan:
    """Stop the jobs that may be stopped, then start those for which there is room; change nothing else."""
    state = engine.jobs.state
    named = set(plan.placements) | set(plan.packs) | {row for rows, _ in plan.slices for row in rows}
    stops = set(plan.stops)
    if not plan.keeps:
        stops |= {int(row) for row in np.flatnonzero(state != JobState.WAITING)} - named
    stops = {row for row in stops if row not in young}
    rooms = Rooms(engine, stops)
    starts = {
        row: placement
        for row, placement in plan.placements.items()
        if state[row] == JobState.WAITING
        and not any(row in rows for rows, _ in plan.slices)
        and rooms.take(row, placement)
    }
    wake = until if plan.wake_at is None else min(until, plan.wake_at)
    return Plan(True, starts, stops, {}, [], plan.leases, plan.reasons, wake)


class Rooms:
    """What is free on each node once some jobs have stopped. Devices of those count only as numbers."""

    def __init__(self, engine: LiveEngine, stops: set[int]) -> None:
        self._engine, self._jobs, jobs = engine, engine.jobs, engine.jobs
        self._supply, self._devices = engine.supply(), engine.free_devices()
        self._free = FreeNodes(self._supply.whole(), self._supply.cpus.copy(), self._supply.memory.copy())
        self._queue = engine.queues.held.copy()
        self._named: dict[int, bool] = {}  # node → whether starts there name their devices
        for row in stops:
            if jobs.state[row] != JobState.RUNNING or jobs.peer[row] >= 0:
                continue
            self._queue[jobs.queue[row]] -= jobs.held[row]
            for part in engine.parts_of(row):
                whole = part.devices if part.milli == WHOLE else 0
                self._devices[part.node] |= whole
                units = part.devices.bit_count() + part.servers if jobs.gpus[row] >= 1 else 1
                self._free.give([self._claim(row, part.node, whole.bit_count(), units)])

    def _claim(self, row: int, node: int, gpus: int, units: int) -> Claim:
        return Claim(node, gpus, units * float(self._jobs.cpu_unit[row]), units * float(self._jobs.memory_unit[row]))

    def take(self, row: int, placement: Placement) -> bool:
        """Say whether there is room for a start; if so it is taken."""
        nodes = set(placement.gpus) | set(placement.servers)
        asked, queue = float(self._jobs.gpus[row]), int(self._jobs.queue[row])
        if 0 < asked < 1 or self._queue[queue] + asked > self._engine.queues.limit[queue] + GPU_SLACK:
            return False  # a share of a device can wait, too: to follow thousandths here is not worth it
        claims = []
        for node in nodes:
            gpus, devices = placement.gpus.get(node, 0), placement.devices.get(node, 0)
            units = gpus + placement.servers.get(node, 0) if asked >= 1 else 1
            named = self._named.get(node, devices > 0) == (devices > 0)  # or one might get the other's
            if not named or devices & ~self._devices[node] or self._supply.state[node] != NodeState.UP:
                return False
            claims.append(self._claim(row, node, gpus, units))
        if any(self._free.lacks(claim) for claim in claims):
            return False
        self._free.take(claims)
        for node in nodes:
            devices = placement.devices.get(node, 0)
            self._named[node] = devices > 0
            self._devices[node] &= ~devices
        self._queue[queue] += asked
        return True
