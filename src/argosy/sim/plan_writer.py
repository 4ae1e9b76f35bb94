"""Turn a policy's explicit Plan into the rows that the kernels carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from argosy.errors import InvalidPlan
from argosy.mechanism.devices import count_words, words
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Placement, Plan

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

Row = tuple[int, int, int, int, int, int]  # L.PART_…


class PlanWriter:
    """Checks a plan against the world and carries it out."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def carry_out(self, plan: Plan) -> None:
        engine = self._engine
        w = engine.world
        state, ids = w.ji[L.STATE], w.ji[L.ID]
        self._check(plan)
        ops: list[tuple[int, int, int, int, int]] = []
        parts: list[Row] = []
        sliced = {row for rows, _ in plan.slices for row in rows}
        named = set(plan.placements) | set(plan.packs) | sliced
        stops = set(plan.stops)
        if not plan.keeps:
            stops |= {r for r in range(int(w.si[L.ACTIVE])) if state[r] != L.WAITING} - named
        ops += [(L.DO_STOP, int(ids[row]), 0, 0, 0) for row in sorted(stops) if state[row] != L.WAITING]
        for row, placement in _named_devices_first(plan.placements):
            if row in sliced:
                continue
            first = len(parts)
            parts += self._parts(row, placement)
            size = len(parts) - first
            if state[row] == L.PAUSED:  # it leaves its group
                ops.append((L.DO_STOP, int(ids[row]), 0, 0, 0))
            if state[row] != L.RUNNING:
                ops.append((L.DO_START, int(ids[row]), first, size, 0))
            elif not self._is_where_it_is(row, placement) or self._is_given_its_own(row, placement, stops):
                resized = sum(placement.gpus.values()) != self._gpus_held(row)
                ops.append((L.DO_MOVE, int(ids[row]), first, size, L.K_RESIZE if resized else L.K_MIGRATE))
            else:
                del parts[first:]
        ops += [(L.DO_PACK, int(ids[row]), 0, 0, int(ids[host])) for row, host in sorted(plan.packs.items())]
        self._make_room_for_groups(plan)
        for rows, quantum in plan.slices:
            group = self._new_group(quantum, rows, plan)
            for row in rows:
                first = len(parts)
                parts += self._parts(row, plan.placements[row])
                ops.append((L.DO_SLICE, int(ids[row]), first, len(parts) - first, group))
        for row, until in plan.leases.items():
            w.jf[L.LEASE, row] = until
        if not ops:
            return
        bad = engine.kernel(L.OP_PLAN, np.array(ops, np.int64), np.array(parts, np.int64).reshape(-1, L.PART_FIELDS))
        if bad >= 0:
            job = engine.job_name(ops[bad][1])
            raise InvalidPlan(
                f"policy {engine.policy.name!r} at t={engine.now:g}: job {job!r} does not fit where the plan puts it"
                f" (node, GPUs, word, devices, ‰, servers): {parts[ops[bad][2] : ops[bad][2] + ops[bad][3]]}"
            )

    def _check(self, plan: Plan) -> None:
        engine, w = self._engine, self._engine.world
        active, nodes = int(w.si[L.ACTIVE]), int(w.si[L.NODES])
        for row, placement in plan.placements.items():
            if not 0 <= row < active:
                raise InvalidPlan(f"policy {engine.policy.name!r}: there is no row {row}; the view has {active} jobs")
            self._check_amount(row, placement)
            for node, count in placement.gpus.items():
                if not 0 <= node < nodes or count < 0:
                    raise InvalidPlan(
                        f"policy {engine.policy.name!r}: {count} GPUs on node {node} of {nodes} are impossible"
                    )
                self._check_node(row, node, count, placement.devices.get(node, 0))

    def _refuse(self, row: int, what: str) -> InvalidPlan:
        engine = self._engine
        job = engine.job_name(int(engine.world.ji[L.ID, row]))
        return InvalidPlan(f"policy {engine.policy.name!r} at t={engine.now:g}, job {job!r}: {what}")

    def _check_amount(self, row: int, placement: Placement) -> None:
        jf = self._engine.world.jf
        asked, got = float(jf[L.GPUS, row]), sum(placement.gpus.values())
        low, high = float(jf[L.MIN_GPUS, row]), float(jf[L.MAX_GPUS, row] + jf[L.SPARE_GPUS, row])
        if asked >= 1 and not low <= got <= high:
            raise self._refuse(row, f"gets {got} GPUs, takes {low:g}..{high:g}")
        if asked < 1 and got != (1 if asked > 0 else 0):
            raise self._refuse(row, f"asks for {asked:g} GPUs and gets {got} devices")
        if asked == 0 and len(placement.gpus) != 1:
            raise self._refuse(row, "needs exactly one node")

    def _check_node(self, row: int, node: int, count: int, devices: int) -> None:
        w = self._engine.world
        if devices and (devices >> int(w.ni[L.N_GPUS, node]) or devices.bit_count() != count):
            raise self._refuse(row, f"{count} GPUs as devices {devices:b} of node {node}")
        if count and not int(w.ji[L.TYPES, row]) >> int(w.ni[L.N_TYPE, node]) & 1:
            raise self._refuse(row, f"node {node} has GPUs of a type that it does not accept")
        if w.ni[L.N_OWNER, node] >= 0 and w.ni[L.N_OWNER, node] != w.ji[L.QUEUE, row]:
            raise self._refuse(row, f"node {node} is reserved for another queue")

    def _parts(self, row: int, placement: Placement) -> list[Row]:
        asked = float(self._engine.world.jf[L.GPUS, row])
        milli = round(asked * L.WHOLE) if 0 < asked < 1 else L.WHOLE
        parts: list[Row] = []
        for node in sorted(set(placement.gpus) | set(placement.servers)):
            servers = placement.servers.get(node, 0)
            named = list(words(placement.devices.get(node, 0)))
            if not named:  # only their number is given
                parts.append((node, placement.gpus.get(node, 0), 0, 0, milli, servers))
            for word, bits in named:
                parts.append((node, bits.bit_count(), word, bits, milli, servers))
                servers = 0
        return parts

    def _held(self, row: int) -> dict[int, int]:
        held: dict[int, int] = {}
        for part in self._engine.parts_of(row):
            held[part.node] = held.get(part.node, 0) + part.devices.bit_count()
        return held

    def _gpus_held(self, row: int) -> int:
        return sum(self._held(row).values())

    def _is_where_it_is(self, row: int, placement: Placement) -> bool:
        parts = self._engine.parts_of(row)
        servers = {p.node: p.servers for p in parts if p.servers}
        if float(self._engine.world.jf[L.GPUS, row]) == 0:
            return {p.node for p in parts} == set(placement.gpus)
        if placement.devices and {p.node: p.devices for p in parts} != placement.devices:
            return False
        return {n: c for n, c in self._held(row).items() if c} == {n: c for n, c in placement.gpus.items() if c} and (
            servers == {n: c for n, c in placement.servers.items() if c}
        )

    def _is_given_its_own(self, row: int, placement: Placement, stops: set[int]) -> bool:
        """Return whether a packed job leaves its partner for the same number of other GPUs, which it has alone."""
        w = self._engine.world
        peer = int(w.ji[L.PEER, row])
        return peer >= 0 and not placement.devices and int(w.so[peer]) not in stops

    def _new_group(self, quantum: float, rows: tuple[int, ...], plan: Plan) -> int:
        """Open one more time-sliced group."""
        engine = self._engine
        w = engine.world
        if not quantum > 0:
            raise InvalidPlan(f"policy {engine.policy.name!r}: a time slice must be > 0 s, is {quantum}")
        for row in rows:
            if row not in plan.placements or not plan.placements[row].devices:
                raise InvalidPlan(
                    f"policy {engine.policy.name!r}: row {row} takes turns, but the plan gives it no devices"
                )
        group = int(w.si[L.GROUPS])
        w.si[L.GROUPS] = group + 1
        engine.world = w._replace(gq=np.vstack([w.gq, [[quantum, 0.0]]]))
        return group

    def _make_room_for_groups(self, plan: Plan) -> None:
        engine = self._engine
        w = engine.world
        placed = [plan.placements[row] for rows, _ in plan.slices for row in rows if row in plan.placements]
        more = sum(
            max(count_words(int(w.ni[L.N_GPUS, node])), 1) for p in placed for node in set(p.gpus) | set(p.servers)
        )
        need = int(w.si[L.GROUP_ROWS]) + more
        if need > len(w.gp):
            gp = np.vstack([w.gp, np.zeros((2 * need - len(w.gp), L.GP_FIELDS), np.int64)])
            short = len(gp) - w.wk.shape[1]
            engine.world = w._replace(gp=gp, wk=np.pad(w.wk, ((0, 0), (0, max(short, 0)))))


def _named_devices_first(placements: dict[int, Placement]) -> list[tuple[int, Placement]]:
    """Return jobs whose devices the plan names before those that take any devices, which might be just the named ones.

    A device that is shared now is wholly free once its last sharer has stopped, and then it is one of "any".
    """
    return sorted(placements.items(), key=lambda item: (not item[1].devices, item[0]))
