"""Find the smallest change to what is free that would let a job fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import WHOLE
from argosy.explain.words import amount, listed, plain
from argosy.mechanism.supply import ALL, Demand, Ints, Rules, Supply
from argosy.slack import RESOURCE_SLACK


@dataclass(frozen=True, slots=True)
class Change:
    """What would have to become free, by node."""

    gpus: dict[int, int] = field(default_factory=dict)
    milli: dict[int, int] = field(default_factory=dict)  # on one device of the node
    cpus: dict[int, float] = field(default_factory=dict)
    memory_gib: dict[int, float] = field(default_factory=dict)
    anywhere: bool = False  # whether the nodes are only an example

    def text(self, cluster: Cluster) -> str:
        device = ""
        if self.gpus:
            device = amount(sum(self.gpus.values()), "more free GPU")
        elif self.milli:
            device = f"{plain(sum(self.milli.values()) / WHOLE)} more of one GPU free"
        beside = []
        if self.cpus:
            beside.append(amount(sum(self.cpus.values()), "CPU" if device else "more free CPU"))
        if self.memory_gib:
            beside.append(f"{plain(sum(self.memory_gib.values()))} {'GiB' if device else 'more free GiB'}")
        text = " with ".join(part for part in (device, " and ".join(beside)) if part)
        if not text or (self.anywhere and device):
            return text
        nodes = sorted({*self.gpus, *self.milli, *self.cpus, *self.memory_gib})
        return f"{text} on {listed([cluster.nodes[n].name for n in nodes])}"


def smallest_change(supply: Supply, demand: Demand, rules: Rules = ALL) -> Change:
    """Choose the nodes with most room that could hold the job when empty, and return what is missing there.

    `rules` leaves out the limit that causes the wait: for a job that lacks CPUs, nodes with free GPUs are examined.
    """
    if not demand.gpus:
        return for_one_place(supply, demand, rules)
    allotted = allot(supply, demand, replace(rules, together=True))
    free = supply.whole()
    gpus = {n: k - int(free[n]) for n, k in allotted.items() if k > free[n]}
    units = seat_servers(supply, demand, allotted)
    cpus, memory = missing_beside(supply, demand, units)
    anywhere = (not supply.strict or demand.gpus == 1) and bool(supply.usable(demand).all())
    return Change(gpus=gpus, cpus=cpus, memory_gib=memory, anywhere=anywhere)


def for_one_place(supply: Supply, demand: Demand, rules: Rules) -> Change:
    """Find the node where least is missing, for a share of a device or a CPU-only job."""
    possible = supply.emptied().rooms(demand) > 0
    lack = np.maximum(demand.milli - supply.devices.max(axis=0), 0) / WHOLE
    beside = np.zeros(len(lack))
    for free, unit in ((supply.cpus, demand.cpu_unit), (supply.memory, demand.memory_unit)):
        if unit > 0:
            beside += np.maximum(unit - free, 0.0) / unit
    if not (rules.cpus and rules.memory):  # CPUs or memory are the reason: examine nodes with a free device
        lack = lack * 1e6
    node = int(np.argmin(np.where(possible, lack + beside, np.inf)))
    short = max(demand.milli - int(supply.devices[:, node].max()), 0)
    cpus, memory = missing_beside(supply, demand, {node: 1})
    return Change(milli={node: short} if short else {}, cpus=cpus, memory_gib=memory)


def allot(supply: Supply, demand: Demand, rules: Rules) -> dict[int, int]:
    """Assign GPUs by node to the gang, so that the fewest must be freed."""
    capacity = supply.emptied().rooms(demand)
    rooms = np.minimum(supply.rooms(demand, rules), capacity)
    best: dict[int, int] = {}
    fewest = demand.gpus + 1
    for t in range(supply.types):
        nodes = np.flatnonzero((supply.type == t) & (capacity > 0))
        chosen = roomiest(rooms, capacity, nodes, supply.most_nodes(demand, supply.type == t), demand.gpus)
        given, missing = fill(rooms, capacity, chosen, demand.gpus)
        if sum(given.values()) == demand.gpus and missing < fewest:
            best, fewest = given, missing
    return best


def roomiest(rooms: Ints, capacity: Ints, nodes: Ints, limit: int, gpus: int) -> Ints:
    """Return the `limit` nodes with most room now that together would hold this many GPUs if they were empty."""
    by_room = nodes[np.argsort(-rooms[nodes], kind="stable")]
    if capacity[by_room[:limit]].sum() >= gpus:
        return by_room[:limit]
    chosen: list[int] = []
    held = 0
    for i, node in enumerate(by_room):  # a node with room is skipped if it would be too small when empty
        others = np.sort(capacity[by_room[i + 1 :]])[::-1][: max(limit - len(chosen) - 1, 0)]
        if len(chosen) < limit and held + capacity[node] + others.sum() >= gpus:
            chosen.append(int(node))
            held += int(capacity[node])
    return np.array(chosen, np.int64)


def fill(rooms: Ints, capacity: Ints, nodes: Ints, gpus: int) -> tuple[dict[int, int], int]:
    """Return GPUs by node (first what has room, then what would have to be freed), and how many must be freed."""
    given: dict[int, int] = {}
    rest = gpus
    for node in (int(n) for n in nodes):
        given[node] = min(int(rooms[node]), rest)
        rest -= given[node]
    missing = rest
    for node in given:
        more = min(int(capacity[node]) - given[node], rest)
        given[node] += more
        rest -= more
    return {n: k for n, k in given.items() if k}, missing


def seat_servers(supply: Supply, demand: Demand, allotted: dict[int, int]) -> dict[int, int]:
    """Return workers and servers by node; servers go where CPUs and memory are free, then where they can be freed."""
    units = dict(allotted)
    if not demand.servers or not allotted:
        return units
    anywhere = np.flatnonzero(supply.usable(replace(demand, gpus=0, milli=0)))
    rest = demand.servers
    for capacity in (supply.per_node(demand), supply.emptied().per_node(demand)):
        for node in (int(n) for n in anywhere[np.argsort(-capacity[anywhere], kind="stable")]):
            more = int(min(max(capacity[node] - units.get(node, 0), 0), rest))
            if more:
                units[node] = units.get(node, 0) + more
                rest -= more
    return units


def missing_beside(supply: Supply, demand: Demand, units: dict[int, int]) -> tuple[dict[int, float], dict[int, float]]:
    """Return the CPUs and memory that these nodes lack for the given number of units."""
    cpus = {n: k * demand.cpu_unit - float(supply.cpus[n]) for n, k in units.items()}
    memory = {n: k * demand.memory_unit - float(supply.memory[n]) for n, k in units.items()}
    lacking = [{n: x for n, x in amounts.items() if x > RESOURCE_SLACK} for amounts in (cpus, memory)]
    return lacking[0], lacking[1]
