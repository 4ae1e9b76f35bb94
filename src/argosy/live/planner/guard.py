"""What the mechanism does not check in a policy's own plan: minimum run times, and jobs that share with nobody.

A plan that breaks none of these rules is carried out as it is. One that does is carried out as far as it can be: what
it may not stop stays, and starts that then find no room wait until the policy is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from argosy.mechanism.devices import free_devices
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Placement, Plan

if TYPE_CHECKING:
    from argosy.live.planner.engine import LiveEngine


def allowed(engine: LiveEngine, plan: Plan, protected: Mapping[int, float], exclusive: Set[int]) -> Plan:
    """The plan, or what may be done of it now."""
    w = engine.world
    if exclusive and plan.packs:
        ids = w.ji[L.ID]
        packs = {g: h for g, h in plan.packs.items() if not {int(ids[g]), int(ids[h])} & exclusive}
        plan = replace(plan, packs=packs)
    young = _young(engine, protected) if protected else {}
    hurt = [row for row in young if _is_hurt(plan, row)]
    if not hurt:
        return plan
    return _without(engine, plan, set(young), min(young[row] for row in hurt))


def _young(engine: LiveEngine, protected: Mapping[int, float]) -> dict[int, float]:
    """Running jobs (by row) that may not be stopped yet, and until when."""
    w, found = engine.world, {}
    for index, span in protected.items():
        row = int(w.so[index])
        if row >= 0 and w.ji[L.STATE, row] == L.RUNNING and w.jf[L.STARTED, row] + span > engine.now + 1e-9:
            found[row] = float(w.jf[L.STARTED, row] + span)
    return found


def _is_hurt(plan: Plan, row: int) -> bool:
    """Would the plan stop the job? (A resize, a move and turns with others are no stops.)"""
    return row in plan.stops or (not plan.keeps and row not in plan.placements and row not in plan.packs)


def _without(engine: LiveEngine, plan: Plan, young: set[int], until: float) -> Plan:
    """Stop whom we may, then start those for whom there is room; nothing else."""
    w, active = engine.world, int(engine.world.si[L.ACTIVE])
    state = w.ji[L.STATE, :active]
    named = set(plan.placements) | set(plan.packs) | {row for rows, _ in plan.slices for row in rows}
    stops = set(plan.stops)
    if not plan.keeps:
        stops |= {int(row) for row in np.flatnonzero(state != L.WAITING)} - named
    stops = {row for row in stops if row not in young}
    rooms = Rooms(engine, stops)
    starts = {
        row: placement
        for row, placement in plan.placements.items()
        if state[row] == L.WAITING and not any(row in rows for rows, _ in plan.slices) and rooms.take(row, placement)
    }
    wake = until if plan.wake_at is None else min(until, plan.wake_at)
    return Plan(True, starts, stops, {}, [], plan.leases, plan.reasons, wake)


class Rooms:
    """What is free on each node once some jobs have stopped. Devices of those count only as numbers."""

    def __init__(self, engine: LiveEngine, stops: set[int]) -> None:
        self._world = w = engine.world
        self._free, self._devices = w.ni[L.N_FREE].copy(), free_devices(w)
        self._cpus, self._memory = w.nf[L.CPU_FREE].copy(), w.nf[L.MEM_FREE].copy()
        self._queue = w.qu[L.Q_HELD].copy()
        self._named: dict[int, bool] = {}  # node → whether starts there name their devices
        for row in stops:
            if w.ji[L.STATE, row] != L.RUNNING or w.ji[L.PEER, row] >= 0:
                continue
            self._queue[w.ji[L.QUEUE, row]] -= w.jf[L.HELD, row]
            for part in engine.parts_of(row):
                whole = part.milli == L.WHOLE
                self._free[part.node] += part.devices.bit_count() if whole else 0
                self._devices[part.node] |= part.devices if whole else 0
                units = part.devices.bit_count() + part.servers if w.jf[L.GPUS, row] >= 1 else 1
                self._cpus[part.node] += units * w.jf[L.CPU_UNIT, row]
                self._memory[part.node] += units * w.jf[L.MEM_UNIT, row]

    def take(self, row: int, placement: Placement) -> bool:
        """Is there room for a start? If so it is taken."""
        w, nodes = self._world, set(placement.gpus) | set(placement.servers)
        asked, queue = float(w.jf[L.GPUS, row]), int(w.ji[L.QUEUE, row])
        if 0 < asked < 1 or self._queue[queue] + asked > w.qu[L.Q_LIMIT, queue] + 1e-9:
            return False  # a share of a device can wait, too: to follow thousandths here is not worth it
        needs = []
        for node in nodes:
            gpus, devices = placement.gpus.get(node, 0), placement.devices.get(node, 0)
            units = gpus + placement.servers.get(node, 0) if asked >= 1 else 1
            cpus, memory = units * w.jf[L.CPU_UNIT, row], units * w.jf[L.MEM_UNIT, row]
            fits = self._free[node] >= gpus and devices & ~self._devices[node] == 0
            fits = fits and self._named.get(node, devices > 0) == (devices > 0)  # or one might get the other's
            if not fits or w.ni[L.N_STATE, node] != L.NODE_UP:
                return False
            if self._cpus[node] < cpus - 1e-6 or self._memory[node] < memory - 1e-6:
                return False
            needs.append((node, gpus, devices, cpus, memory))
        for node, gpus, devices, cpus, memory in needs:
            self._free[node] -= gpus
            self._named[node] = devices > 0
            self._devices[node] &= ~devices
            self._cpus[node] -= cpus
            self._memory[node] -= memory
        self._queue[queue] += asked
        return True
