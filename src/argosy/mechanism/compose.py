"""Make plans for policies that order jobs and choose their places in Python.

`compose` does what the compiled walk does for the built-in placers: it goes through the jobs in the policy's
order, keeps what runs, starts what fits, and preempts lower-ranked jobs if that is allowed and helps. The policy
only says where a job should go. It has to declare `demand`, `placement` and `nodes` in its `uses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import WHOLE, View
from argosy.errors import InvalidPlan
from argosy.mechanism.free_nodes import Claim, FreeNodes
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.slack import GPU_SLACK, RESOURCE_SLACK

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Place = Callable[[View, int, int, Ints], Mapping[int, int] | None]


def compose(
    view: View,
    key: Floats,
    place: Place,
    *,
    sizes: Ints | None = None,
    preemptive: bool = False,
    backfill: bool = True,
    limits: Floats | None = None,
    fixed: Flags | None = None,
    fitting: bool = False,
) -> Plan:
    """Make a plan that serves jobs by increasing `key` (ties: earlier submission) where `place` puts them.

    `place(view, row, gpus, free)` returns {node: GPUs} that add up to `gpus`, or None if the job should wait.
    `free` are the whole GPUs per node that the job may have at this point of the walk; it is 0 for nodes that are
    not up, are reserved for another queue or have a GPU type that the job does not accept. For a job that asks
    for a share of a device `gpus` is 1, and shared devices with room count as free. `place` is never asked about a
    job without GPUs, which goes where the built-in placers put it: where fewest GPUs are free, of the nodes with its
    CPUs and memory. For other jobs `place` need not consider CPUs, memory and parameter servers (which go with the
    workers if they can): a job whose place lacks them waits.

    `sizes` are GPUs per job, 0 for "not now"; by default each job gets what it asked for, and CPU-only jobs always
    do. A running job of another size is placed again, and stays as it is if there is no place. With `preemptive`,
    running jobs behind a job that finds no room make way for it, from the last one up and only as many as
    necessary. Without `backfill`, no job overtakes one that has to wait. `limits` are the GPUs that each queue may
    hold (`context.queue_limits`): a job that would exceed its queue's limit waits, and no job is preempted for it.
    Running jobs that are `fixed` never make way. With `fitting`, `free` counts only GPUs for which the node also has
    CPUs and memory, for the job's workers and their share of its parameter servers.
    """
    walk = Walk(view, place, sizes, limits, fixed, fitting)
    order = [int(row) for row in np.lexsort((view.jobs.index, key))]
    walk.give_back(order)
    ahead = -1  # the job that no other may overtake
    for position, row in enumerate(order):
        if walk.runs(row):
            walk.grow(row)
            continue
        if view.jobs.state[row] != 0 or row in walk.plan.reasons:
            continue
        if ahead >= 0:
            walk.plan.reasons[row] = Reason(Why.BEHIND, f"job {ahead} waits", behind=(ahead,))
        elif not walk.start(row) and not (preemptive and walk.make_way(row, order[position + 1 :])):
            ahead = -1 if backfill else int(view.jobs.index[row])
    return walk.plan


@dataclass(slots=True)
class Proposal:
    """Where a job should go, and what it takes there."""

    gpus: dict[int, int]
    servers: dict[int, int]
    devices: dict[int, int]  # only for a share of a device that others share already
    claims: list[Claim]


class Walk:
    """One pass over the jobs: the plan in the making, and what is still free."""

    def __init__(
        self,
        view: View,
        place: Place,
        sizes: Ints | None = None,
        limits: Floats | None = None,
        fixed: Flags | None = None,
        fitting: bool = False,
    ) -> None:
        jobs, nodes = view.jobs, view.nodes
        self._limits, self._fixed, self._fitting = limits, fixed, fitting
        self._used = None if limits is None else np.bincount(jobs.queue, jobs.held, len(limits))
        self.view, self.plan, self._place = view, Plan.keep(view), place
        self.free = FreeNodes(nodes.free.copy(), nodes.free_cpus.copy(), nodes.free_memory_gib.copy())
        self._wanted = np.ceil(jobs.gpus).astype(np.int64)
        if sizes is not None:
            self._wanted = np.where(jobs.gpus >= 1, sizes, np.minimum(sizes, self._wanted))
        self._sized = sizes is not None
        units = np.maximum(jobs.gpus, 1)
        self._cpus, self._memory_gib = jobs.cpus / units, jobs.memory_gib / units
        self._shared: dict[tuple[int, int], int] = {}  # (node, devices) → thousandths left
        for row in np.flatnonzero((jobs.state == 1) & (jobs.gpus > 0) & (jobs.gpus < 1)):
            for part in view.placement(int(row)):
                device = (part.node, part.devices)
                self._shared[device] = self._shared.get(device, WHOLE) - part.milli

    def runs(self, row: int) -> bool:
        return bool(self.view.jobs.state[row] == 1) and row not in self.plan.stops

    def give_back(self, order: list[int]) -> None:
        """Stop jobs that get nothing and shrink those that are too large, before any job starts."""
        if not self._sized:
            return
        for row in order:
            if self._wanted[row] == 0 and self.view.jobs.gpus[row] > 0:
                self.plan.reasons[row] = Reason(Why.POLICY, "size 0")
                if self.runs(row):
                    self._stop(row)
            elif self.runs(row) and self._is_whole(row) and self._wanted[row] < self.view.jobs.held[row]:
                self._resize(row)

    def grow(self, row: int) -> None:
        if self._sized and self._is_whole(row) and self._wanted[row] > self.view.jobs.held[row]:
            self._resize(row)

    def start(self, row: int) -> bool:
        """Start a waiting job on what is free, or note why it waits."""
        proposal, why = self._propose(row, self.free)
        if proposal is None:
            self.plan.reasons[row] = why
            return False
        self._run(row, proposal)
        return True

    def make_way(self, row: int, behind: list[int]) -> bool:
        """Start a waiting job on what is free and what jobs behind it hold."""
        trial = self.free.copy()
        lent: list[int] = []
        for other in reversed(behind):
            if not self.runs(other) or other in self.plan.placements or not self._is_whole(other):
                continue
            if self._fixed is not None and self._fixed[other]:
                continue
            trial.give(self._held(other))
            lent.append(other)
            proposal, _ = self._propose(row, trial)
            if proposal is not None:
                break
        else:
            return False
        for other in lent:
            nodes = {claim.node for claim in self._held(other)}
            if any(claim.node in nodes and self.free.lacks(claim) for claim in proposal.claims):
                self._stop(other)
        self._run(row, proposal)
        return True

    def rearrange(self, places: Mapping[int, Mapping[int, int]]) -> bool:
        """Give jobs these GPUs by node, all at once; return False, and change nothing, if they do not fit.

        They must be waiting or running jobs on whole GPUs, without parameter servers and without a neighbour on their
        GPUs, that the plan has not placed. A place must be open to its job.
        """
        gone = [claim for row in places if self.runs(row) for claim in self._held(row)]
        new = {row: self._claims(row, gpus) for row, gpus in places.items()}
        self.free.give(gone)
        self.free.take([claim for claims in new.values() for claim in claims])
        touched = {claim.node for claims in new.values() for claim in claims}
        if any(self.free.lacks(Claim(node, 0, 0.0, 0.0)) for node in touched):
            self.free.give([claim for claims in new.values() for claim in claims])
            self.free.take(gone)
            return False
        for row, gpus in places.items():
            self.free.give(new[row])
            self._run(row, Proposal(dict(gpus), {}, {}, new[row]))
        return True

    def seat(self, guest: int, host: int) -> bool:
        """Count the CPUs and memory of a job that is packed with a running one; return whether they suffice."""
        gpus = {part.node: part.devices.bit_count() for part in self.view.placement(host)}
        claims = [claim._replace(gpus=0) for claim in self._claims(guest, gpus)]
        if any(self.free.lacks(claim) for claim in claims):
            return False
        self.free.take(claims)
        return True

    def _claims(self, row: int, gpus: Mapping[int, int]) -> list[Claim]:
        """Return what a job without parameter servers takes with these GPUs."""
        return [Claim(node, n, n * self._cpus[row], n * self._memory_gib[row]) for node, n in sorted(gpus.items())]

    def _is_whole(self, row: int) -> bool:
        return bool(self.view.jobs.gpus[row] >= 1)

    def _run(self, row: int, proposal: Proposal) -> None:
        self.free.take(proposal.claims)
        share = round(float(self.view.jobs.gpus[row]) * WHOLE)
        for device in proposal.devices.items():
            self._shared[device] -= share
        if self._used is not None:
            more = sum(proposal.gpus.values()) if self._is_whole(row) else float(self.view.jobs.gpus[row])
            self._used[self.view.jobs.queue[row]] += more - (self.view.jobs.held[row] if self.runs(row) else 0.0)
        self.plan.run(row, proposal.gpus, proposal.servers, devices=proposal.devices)
        self.plan.reasons.pop(row, None)

    def _stop(self, row: int) -> None:
        self.free.give(self._held(row))
        if 0 < self.view.jobs.gpus[row] < 1:
            self._leave_shared(row)
        if self._used is not None:
            self._used[self.view.jobs.queue[row]] -= self.view.jobs.held[row]
        self.plan.stop(row)
        self.plan.reasons.setdefault(row, Reason(Why.OUTRANKED, "it made way for a better ranked one"))

    def _leave_shared(self, row: int) -> None:
        """Give a share back to its device; a device without sharers is free as a whole again, for any job."""
        for part in self.view.placement(row):
            device = (part.node, part.devices)
            self._shared[device] += part.milli
            if self._shared[device] == WHOLE:
                del self._shared[device]
                self.free.gpus[part.node] += 1

    def _resize(self, row: int) -> None:
        held = self._held(row)
        self.free.give(held)
        proposal, _ = self._propose(row, self.free)
        if proposal is None:
            self.free.take(held)
        else:
            self._run(row, proposal)

    def _held(self, row: int) -> list[Claim]:
        """Return what a running job would give back; a shared device becomes free only when all sharers leave."""
        claims = []
        for part in self.view.placement(row):
            gpus = part.devices.bit_count()
            units = gpus + part.servers if self._is_whole(row) else 1
            free = gpus if part.milli == WHOLE else 0
            claims.append(Claim(part.node, free, units * self._cpus[row], units * self._memory_gib[row]))
        return claims

    def _free_for(self, row: int, free_nodes: FreeNodes) -> tuple[Ints, dict[int, int]]:
        """Return the GPUs a job may have per node (-1: closed to it), and for a share the fullest device with room."""
        jobs, nodes = self.view.jobs, self.view.nodes
        mine = (nodes.owner < 0) | (nodes.owner == jobs.queue[row])
        fitting = (nodes.gpus == 0) | (jobs.types[row] >> nodes.type & 1 == 1) | (jobs.gpus[row] == 0)
        free = np.where((nodes.state == 0) & mine & fitting, free_nodes.gpus, -1)
        devices: dict[int, int] = {}
        if 0 < jobs.gpus[row] < 1:
            share = round(float(jobs.gpus[row]) * WHOLE)
            for (node, device), left in sorted(self._shared.items(), key=lambda item: (item[1], item[0])):
                if left >= share and free[node] >= 0 and node not in devices:
                    devices[node] = device
                    free[node] = max(free[node], 1)
        return free, devices

    def _propose(self, row: int, free_nodes: FreeNodes) -> tuple[Proposal | None, Reason]:
        if self._used is not None and self._limits is not None and not self.runs(row):
            queue = int(self.view.jobs.queue[row])
            more = float(self._wanted[row] if self._is_whole(row) else self.view.jobs.gpus[row])
            if self._used[queue] + more > self._limits[queue] + GPU_SLACK:
                used, limit = self._used[queue], self._limits[queue]
                return None, Reason(Why.QUOTA, f"its queue has {used:g} of {limit:g} GPUs")
        free, shared = self._free_for(row, free_nodes)
        if self.view.jobs.gpus[row] == 0:
            return self._place_without_gpus(row, free >= 0, free_nodes)
        open_to_it = np.maximum(free, 0)
        gpus, there = int(self._wanted[row]), int(open_to_it.sum())
        if there < gpus:
            return None, Reason(Why.NO_GPUS, f"{gpus} wanted, {there} free")
        if not self._fitting:
            return self._place_on(row, gpus, open_to_it, free, shared, free_nodes)
        ps = int(self.view.jobs.ps[row])
        for servers in (ps, 0) if ps else (0,):  # beside the workers; if that fails, wherever there is room
            fitting = np.minimum(open_to_it, self._room(row, gpus, free_nodes, servers))
            if int(fitting.sum()) < gpus:
                why = Reason(Why.NO_CPUS, f"{gpus} GPUs wanted, {int(fitting.sum())} with CPUs and memory")
                continue
            proposal, why = self._place_on(row, gpus, fitting, free, shared, free_nodes)
            if proposal is not None:
                return proposal, why
        return None, why

    def _place_without_gpus(self, row: int, is_open: Flags, free_nodes: FreeNodes) -> tuple[Proposal | None, Reason]:
        """Put a CPU-only job where fewest GPUs are free, so that it leaves few GPUs without CPUs."""
        cpus, memory_gib = float(self._cpus[row]), float(self._memory_gib[row])
        has_cpus = is_open & (free_nodes.cpus >= cpus - RESOURCE_SLACK)
        fits = np.flatnonzero(has_cpus & (free_nodes.memory_gib >= memory_gib - RESOURCE_SLACK))
        if not len(fits):
            why = Why.NO_MEMORY if has_cpus.any() else Why.NO_CPUS
            return None, Reason(why, f"no node open to it has {cpus:g} CPUs and {memory_gib:g} GiB of memory free")
        node = int(fits[free_nodes.gpus[fits].argmin()])
        return Proposal({node: 0}, {}, {}, [Claim(node, 0, cpus, memory_gib)]), Reason(Why.POLICY, "placed")

    def _place_on(
        self, row: int, gpus: int, usable: Ints, free: Ints, shared: dict[int, int], free_nodes: FreeNodes
    ) -> tuple[Proposal | None, Reason]:
        """Ask the policy for a place among the usable GPUs, and work out what the job takes there."""
        answer = self._place(self.view, row, gpus, usable)
        if answer is None:
            return None, Reason(Why.FRAGMENTED, f"the policy finds no place among {int(usable.sum())} free GPUs")
        self._check(row, gpus, answer, free)
        chosen = {int(node): int(count) for node, count in answer.items() if count}
        devices = {node: shared[node] for node in chosen if node in shared}
        servers = self._servers(row, chosen, free_nodes) if self._is_whole(row) else {}
        claims = []
        for node in sorted(chosen.keys() | servers.keys()):
            count = chosen.get(node, 0)
            units = count + servers.get(node, 0) if self._is_whole(row) else 1
            taken = 0 if node in devices else count
            claims.append(Claim(node, taken, units * self._cpus[row], units * self._memory_gib[row]))
        for claim in claims:
            why = free_nodes.lacks(claim)
            if why is not None:
                return None, Reason(why, f"on node {claim.node}, where the policy would put it")
        return Proposal(chosen, servers, devices, claims), Reason(Why.POLICY, "placed")

    def _room(self, row: int, gpus: int, free_nodes: FreeNodes, servers: int) -> Ints:
        """Return for how many GPUs of the job, each with its part of the servers, a node has CPUs and memory."""
        beside = 1 + int(servers) / gpus if self._is_whole(row) else 1.0
        room = np.full(len(free_nodes.gpus), gpus, np.int64)
        for free, unit in ((free_nodes.cpus, self._cpus[row]), (free_nodes.memory_gib, self._memory_gib[row])):
            if unit > 0:
                suffices = np.maximum((free + RESOURCE_SLACK) / (unit * beside), 0.0)
                room = np.minimum(room, suffices.astype(np.int64))
        return room

    def _servers(self, row: int, chosen: dict[int, int], free_nodes: FreeNodes) -> dict[int, int]:
        """Put parameter servers on the workers' nodes, each where most CPUs are left, and the rest on other nodes.

        Servers that no node has room for stay with the first worker, where the caller finds that they lack it.
        """
        servers: dict[int, int] = {}
        asked = int(self.view.jobs.ps[row])
        if not asked:
            return servers
        units = np.zeros(len(free_nodes.gpus))
        units[list(chosen)] = list(chosen.values())
        among = units > 0
        nodes, queue = self.view.nodes, self.view.jobs.queue[row]
        is_open = (nodes.state == 0) & ((nodes.owner < 0) | (nodes.owner == queue))
        for _ in range(asked):
            cpus = free_nodes.cpus - (units + 1) * self._cpus[row]
            memory_gib = free_nodes.memory_gib - (units + 1) * self._memory_gib[row]
            suffices = (cpus > -RESOURCE_SLACK) & (memory_gib > -RESOURCE_SLACK)
            if not (among & suffices).any():
                among |= suffices & is_open  # whatever GPU type they have
            fits = among & suffices
            node = int(np.argmax(np.where(fits, cpus, -np.inf))) if fits.any() else next(iter(chosen))
            servers[node] = servers.get(node, 0) + 1
            units[node] += 1
        return servers

    def _check(self, row: int, gpus: int, answer: Mapping[int, int], free: Ints) -> None:
        """Raise `InvalidPlan` for an impossible place, which is an error in the policy."""
        problem = ""
        if sum(answer.values()) != gpus:
            problem = f"that is not {gpus} GPUs"
        for node, count in answer.items():
            if not 0 <= node < len(free) or free[node] < 0:
                problem = f"there is no node {node} for it"
            elif not 0 <= count <= free[node]:
                problem = f"node {node} has {free[node]} free"
        if problem:
            index = int(self.view.jobs.index[row])
            raise InvalidPlan(f"place() put job {index} on {dict(answer)} (node: GPUs), but {problem}")
