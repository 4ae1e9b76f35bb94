"""List the places that a job could have: single nodes, parts of one rack, and several racks as the last resort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from argosy.policies.base import Floats, Ints

NODE, RACK, CLUSTER = 1, 2, 3  # levels, as in the column `level` of the jobs
MOST_RACKS = 16  # that are tried for one gang, those with the fastest machines first
SLOWER = 0.2  # machines whose log speed is so far below the best of the rack are left out of one of the proposals


@dataclass(frozen=True, slots=True)
class Machines:
    """What the placement agent knows about the machines at one decision."""

    rack: Ints
    type: Ints
    gpus: Ints
    mean: Floats  # believed log speeds
    deviation: Floats


@dataclass(frozen=True, slots=True)
class PlaceOption:
    """One place: GPUs by node."""

    gpus: dict[int, int]
    level: int


def single_nodes(gpus: int, free: Ints) -> Ints:
    """Return the nodes that could hold the whole job."""
    return np.flatnonzero(free >= max(gpus, 1))


def several_nodes(machines: Machines, gpus: int, free: Ints) -> list[PlaceOption]:
    """Return places on several nodes: of one rack if that is possible, otherwise of all racks."""
    racks = int(machines.rack.max()) + 1
    room = np.bincount(machines.rack, free, racks)
    enough = np.flatnonzero(room >= gpus)
    if len(enough) > MOST_RACKS:
        fastest = np.full(racks, -np.inf)
        np.maximum.at(fastest, machines.rack[free > 0], machines.mean[free > 0])
        enough = enough[np.argsort(-fastest[enough], kind="stable")[:MOST_RACKS]]
    found: list[PlaceOption] = []
    for rack in enough.tolist():
        nodes = np.flatnonzero((machines.rack == rack) & (free > 0))
        found += [PlaceOption(place, RACK) for place in _ways(machines, nodes, gpus, free)]
    if not found:
        nodes = np.flatnonzero(free > 0)
        found = [PlaceOption(place, CLUSTER) for place in _ways(machines, nodes, gpus, free)]
    return found


def _ways(machines: Machines, nodes: Ints, gpus: int, free: Ints) -> Iterator[dict[int, int]]:
    """Yield the fewest nodes of these, and the fewest of those that are not slow."""
    every = fewest(nodes, gpus, free, machines.mean)
    if every:
        yield every
    speeds = machines.mean[nodes]
    if len(nodes):
        for slowest in sorted({float(x) for x in (speeds.max() - SLOWER, np.median(speeds))}):
            fast = nodes[speeds >= slowest]
            if len(fast) < len(nodes) and free[fast].sum() >= gpus:
                yield fewest(fast, gpus, free, machines.mean)


def fewest(nodes: Ints, gpus: int, free: Ints, mean: Floats) -> dict[int, int]:
    """Fill the nodes with most room, the faster of equals first; the rest goes to the tightest node that holds it."""
    place: dict[int, int] = {}
    rest = gpus
    for node in sorted(nodes.tolist(), key=lambda n: (-min(int(free[n]), gpus), -mean[n], n)):
        here = int(free[node])
        if here >= rest:
            fits = [n for n in nodes.tolist() if n not in place and free[n] >= rest]
            place[min(fits, key=lambda n: (int(free[n]), -mean[n], n))] = rest
            return place
        place[node] = here
        rest -= here
    return {} if rest else place
