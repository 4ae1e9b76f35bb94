"""Find out whether a job would fit, as the placers do, but with arrays and with single rules left out.

The kernels answer this fast, but only for the present state of the cluster. To explain why a job waits it must
also be answered for hypothetical states: with a node repaired, with unlimited CPUs, with three jobs gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import WHOLE, NodeState
from argosy.mechanism.kernels import layout as L
from argosy.slack import RESOURCE_SLACK

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which limits count; leaving one out shows whether it is the reason why a job waits."""

    states: bool = True  # only nodes that are up
    owners: bool = True  # no nodes reserved for another queue
    types: bool = True  # only accepted GPU types
    cpus: bool = True
    memory: bool = True
    together: bool = True  # one GPU type; as few nodes as strict consolidation wants; one device for a share


ALL = Rules()


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job must get to start."""

    gpus: int  # whole devices
    milli: int  # or thousandths of one; both 0: CPUs only
    servers: int
    cpu_unit: float  # CPUs per GPU (of the job, if it has no whole GPU)
    memory_unit: float
    types: int  # bit set
    queue: int

    @classmethod
    def of(cls, world: L.World, row: int) -> Demand:
        jf, ji = world.jf, world.ji
        asked, want = float(jf[L.GPUS, row]), max(int(ji[L.WANT, row]), 1)
        whole = asked >= 1.0
        if world.si[L.ELASTIC]:  # the mechanism tries sizes down to the smallest
            want = min(want, max(int(jf[L.MIN_GPUS, row]), 1))
        return cls(
            gpus=want if whole else 0,
            milli=0 if whole else int(np.round(asked * WHOLE)),
            servers=min(int(ji[L.WANT_PS, row]), want) if whole else 0,
            cpu_unit=float(jf[L.CPU_UNIT, row]),
            memory_unit=float(jf[L.MEM_UNIT, row]),
            types=int(ji[L.TYPES, row] & ji[L.WANT_TYPES, row]),
            queue=int(ji[L.QUEUE, row]),
        )

    @property
    def units(self) -> int:
        """The number of units for which room is needed: GPUs, or 1 for a job without whole GPUs."""
        return self.gpus or 1


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the running jobs hold, one row for each job and word of a node."""

    slot: Ints
    node: Ints
    word: Ints
    mask: Ints
    milli: Ints
    cpus: Floats
    memory: Floats

    @classmethod
    def of(cls, world: L.World) -> Holdings:
        active = int(world.si[L.ACTIVE])
        slots = np.flatnonzero(world.ji[L.STATE, :active] == L.RUNNING)
        entries = world.ji[L.HEAD, slots]
        found: list[tuple[Ints, Ints]] = []
        while len(entries):  # follows all lists in parallel, as many times as the longest list has entries
            here = entries >= 0
            slots, entries = slots[here], entries[here]
            found.append((slots, entries))
            entries = world.en[entries, L.E_NEXT]
        slot = np.concatenate([s for s, _ in found]) if found else np.zeros(0, np.int64)
        entry = np.concatenate([e for _, e in found]) if found else np.zeros(0, np.int64)
        en, jf = world.en, world.jf
        units = en[entry, L.E_UNITS]
        return cls(
            slot,
            en[entry, L.E_NODE],
            en[entry, L.E_WORD],
            en[entry, L.E_MASK],
            en[entry, L.E_MILLI],
            units * jf[L.CPU_UNIT, slot],
            units * jf[L.MEM_UNIT, slot],
        )


@dataclass(frozen=True, slots=True)
class Supply:
    """What is free on each node, and the properties of the nodes."""

    devices: Ints  # [devices, nodes] free thousandths
    cpus: Floats
    memory: Floats
    cpus_total: Floats
    memory_total: Floats
    state: Ints
    owner: Ints
    type: Ints
    gpus: Ints
    types: int  # number of GPU types
    strict: bool
    placer: int

    @classmethod
    def of(cls, world: L.World) -> Supply:
        ni, si = world.ni, world.si
        return cls(
            devices=ni[L.DEVICE0 : L.DEVICE0 + int(si[L.DEVICES])],
            cpus=world.nf[L.CPU_FREE],
            memory=world.nf[L.MEM_FREE],
            cpus_total=world.nf[L.CPU_TOTAL],
            memory_total=world.nf[L.MEM_TOTAL],
            state=ni[L.N_STATE],
            owner=ni[L.N_OWNER],
            type=ni[L.N_TYPE],
            gpus=ni[L.N_GPUS],
            types=int(si[L.TYPES_N]),
            strict=bool(si[L.STRICT]),
            placer=int(si[L.PLACER]),
        )

    def without(self, holdings: Holdings, gone: Bools) -> Supply:
        """Return the supply as if the jobs in these rows held nothing."""
        rows = np.flatnonzero(gone[holdings.slot])
        if not len(rows):
            return self
        node, word, mask, milli = holdings.node[rows], holdings.word[rows], holdings.mask[rows], holdings.milli[rows]
        n = len(self.cpus)
        devices = self.devices.copy()
        for d in range(len(devices)):
            here = word == d // L.WORD
            devices[d] += np.bincount(node[here], ((mask[here] >> d % L.WORD) & 1) * milli[here], n).astype(np.int64)
        return replace(
            self,
            devices=devices,
            cpus=self.cpus + np.bincount(node, holdings.cpus[rows], n),
            memory=self.memory + np.bincount(node, holdings.memory[rows], n),
        )

    def emptied(self) -> Supply:
        """Return the supply of the same nodes with no job on them."""
        numbers = np.arange(len(self.devices))[:, None]
        devices = np.where(numbers < self.gpus, WHOLE, 0)
        return replace(self, devices=devices, cpus=self.cpus_total, memory=self.memory_total)

    def whole(self) -> Ints:
        """Return the number of free whole devices of each node."""
        free: Ints = (self.devices == WHOLE).sum(axis=0)
        return free

    def usable(self, demand: Demand, rules: Rules = ALL) -> Bools:
        """Return on which nodes the job may start at all."""
        yes = np.ones(len(self.cpus), bool)
        if rules.states:
            yes &= self.state == NodeState.UP
        if rules.owners:
            yes &= (self.owner < 0) | (self.owner == demand.queue)
        if rules.types and (demand.gpus or demand.milli):
            yes &= ((demand.types >> self.type) & 1 == 1) | (self.gpus == 0)
        return yes

    def per_node(self, demand: Demand, rules: Rules = ALL) -> Floats:
        """Return for how many units the CPUs and memory of each node suffice, regardless of its devices."""
        room: Floats = np.full(len(self.cpus), np.inf)
        for free, unit, counts in (
            (self.cpus, demand.cpu_unit, rules.cpus),
            (self.memory, demand.memory_unit, rules.memory),
        ):
            if counts and unit > 0:
                room = np.minimum(room, np.floor((free + RESOURCE_SLACK) / unit))
        np.maximum(room, 0.0, out=room)
        return room

    def rooms(self, demand: Demand, rules: Rules = ALL) -> Ints:
        """Return how many units of the job each node could take."""
        if demand.gpus:
            devices = self.whole()
        elif demand.milli:
            devices = (self.devices.max(axis=0) >= demand.milli).astype(np.int64)
        else:
            devices = np.ones(len(self.cpus), np.int64)
        room = np.minimum(devices, self.per_node(demand, rules)).astype(np.int64)
        return np.where(self.usable(demand, rules), room, 0)

    def most_nodes(self, demand: Demand, of_type: Bools) -> int:
        """Return on how many nodes of one GPU type the placer may put the gang."""
        if not demand.gpus:
            return 1
        if not self.strict or self.placer == L.SPREAD:
            return len(self.cpus)
        largest = max(int(self.gpus[of_type].max(initial=0)), 1)
        if self.placer in (L.FIRST_FIT, L.RANDOM):
            return 1 if demand.gpus <= largest else len(self.cpus)
        return -(-demand.gpus // largest)

    def best(self, demand: Demand, rules: Rules = ALL) -> tuple[int, Ints]:
        """Return the largest number of units in one placement, and its nodes, those with most room first."""
        rooms = self.rooms(demand, rules)
        everywhere = np.ones(len(rooms), bool)
        kinds = [everywhere]
        if demand.gpus and self.types > 1 and rules.together:
            kinds = [self.type == t for t in range(self.types)]
        most, where = -1, np.zeros(0, np.int64)
        for kind in kinds:
            here = np.where(kind, rooms, 0)
            limit = self.most_nodes(demand, kind) if rules.together else len(rooms)
            nodes = np.argsort(-here, kind="stable")[:limit]
            total = int(here[nodes].sum())
            if total > most:
                most, where = total, nodes[here[nodes] > 0]
        return most, where

    def fits(self, demand: Demand, rules: Rules = ALL) -> bool:
        if demand.milli and not rules.together:
            beside = self.usable(demand, rules) & (self.per_node(demand, rules) >= 1)
            return bool(self.devices[:, beside].sum() >= demand.milli)
        if self.best(demand, rules)[0] < demand.units:
            return False
        return demand.servers <= self.server_room(demand, rules)

    def server_room(self, demand: Demand, rules: Rules = ALL) -> float:
        """Return how many parameter servers fit in addition to the workers, each with one GPU's CPUs and memory."""
        anywhere = self.usable(replace(demand, gpus=0, milli=0), rules)
        return float(self.per_node(demand, rules)[anywhere].sum()) - demand.gpus

    def fits_on(self, demand: Demand, gpu_type: int) -> bool:
        """Return whether the job would fit on this GPU type, if it accepted that type."""
        return self.fits(replace(demand, types=1 << gpu_type))
