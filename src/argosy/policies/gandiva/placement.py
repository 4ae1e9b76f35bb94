"""Choose where Gandiva places an arriving job, in five steps, and to which free GPUs a job could move.

The *affinity* of a server is the size of the jobs on it; its *height* is ⌈GPUs asked for / GPUs⌉. A job goes to
(1) free GPUs of a server with its affinity, the least loaded first; (2) an empty server, which takes its affinity;
(3) free GPUs of a server with another affinity, or of several servers; (4) GPUs of a server with its affinity, where it
takes turns with other jobs; or (5) it waits.
"""

from __future__ import annotations

from collections.abc import Collection

from argosy.cluster.view import WHOLE
from argosy.mechanism.plan import Reason, Why
from argosy.policies.gandiva.usage import Allocation, Usage


def find_free(usage: Usage, row: int, *, may_split: bool, apart_from: Collection[int] = ()) -> Allocation | None:
    """Find GPUs that no job uses: steps 1 to 3."""
    if not usage.may_hold(row, usage.gpus[row]):
        return None
    if usage.gpus[row] < 1:
        return _for_a_share(usage, row) if usage.size[row] else _without_gpus(usage, row)
    node = _whole_node(usage, row, usage.size[row], apart_from)
    if node >= 0:
        servers = _beside(usage, row, {node: usage.size[row]}) or {}
        return Allocation({node: pick(usage.free[node], usage.size[row])}, servers)
    return _split(usage, row) if may_split else None


def find_crowd(usage: Usage, row: int, max_height: int) -> tuple[int, int] | None:
    """Find a group to take turns with, on the least loaded server with the job's affinity: step 4."""
    size, queue = usage.size[row], usage.queue[row]
    best: tuple[float, int, int, int] | None = None
    if not usage.plain[row]:
        return None
    affinity = usage.affinity
    for node in usage.open_to(row):
        if affinity(node) != size or (best is not None and usage.load(node) >= best[0]):
            continue
        for devices, rows in sorted(usage.groups[node].items()):
            if len(rows) >= max_height or devices.bit_count() != size or rows[0] in usage.pairs:
                continue
            if not all(usage.plain[r] and usage.size[r] == size and len(usage.held[r].devices) == 1 for r in rows):
                continue
            mine = any(usage.queue[r] == queue for r in rows)
            more_cpus = size * (usage.cpu_unit[row] - max(usage.cpu_unit[r] for r in rows))
            more_memory = size * (usage.memory_unit[row] - max(usage.memory_unit[r] for r in rows))
            if more_cpus > usage.cpus[node] or more_memory > usage.memory[node]:
                continue
            if not mine and not usage.may_hold(row, size):
                continue
            key = (usage.load(node), node, len(rows), devices)
            if best is None or key < best:
                best = key
    return None if best is None else (best[1], best[3])


def why_it_waits(usage: Usage, row: int) -> Reason:
    """Return why a job found no place: step 5."""
    nodes = usage.open_to(row)
    if not usage.may_hold(row, usage.gpus[row]):
        return Reason(Why.QUOTA, f"its queue has {usage.used[usage.queue[row]]:g} of {usage.limit[usage.queue[row]]:g}")
    there = sum(usage.free[node].bit_count() for node in nodes)
    if there < usage.size[row]:
        return Reason(Why.NO_GPUS, f"{usage.size[row]} wanted, {there} free, and no job there to take turns with")
    return Reason(Why.NO_CPUS, "the nodes with free GPUs lack CPUs or memory")


def pick(free: int, count: int) -> int:
    """Choose `count` free devices: neighbours that begin at a multiple of `count`, else the first ones."""
    block = (1 << count) - 1
    for start in range(0, free.bit_length(), count):
        if free >> start & block == block:
            return block << start
    chosen = 0
    for _ in range(count):
        bit = free & -free
        chosen |= bit
        free ^= bit
    return chosen


def _whole_node(usage: Usage, row: int, size: int, apart_from: Collection[int]) -> int:
    """Find a single server by steps 1 to 3; -1 if there is none."""
    best, node_found = (4, 0.0), -1
    units, free_on = size + usage.ps[row], usage.free
    for node in usage.open_to(row) if usage.has_free_gpus() else ():
        free = free_on[node].bit_count()
        if free < size or node in apart_from or not _takes(usage, row, node, size, units):
            continue
        affinity = usage.affinity(node)
        if affinity == size:
            key = (1, usage.load(node))
        elif affinity == 0:
            key = (2, float(usage.node_gpus[node]))
        else:
            key = (3, float(free))
        if key < best:
            best, node_found = key, node
    return node_found


def _takes(usage: Usage, row: int, node: int, size: int, units: int) -> bool:
    """Return whether this node has CPUs and memory for the workers, and this or another node for the servers."""
    if usage.has_room(row, node, units):
        return True
    return usage.ps[row] > 0 and usage.has_room(row, node, size) and _beside(usage, row, {node: size}) is not None


def _split(usage: Usage, row: int) -> Allocation | None:
    """Find free GPUs on several servers of one GPU type, as few servers as possible."""
    for gpu_type in sorted({usage.node_type[node] for node in usage.open_to(row)}):
        left, chosen = usage.size[row], dict[int, int]()
        nodes = [node for node in usage.open_to(row) if usage.node_type[node] == gpu_type and usage.free[node]]
        for node in sorted(nodes, key=lambda n: (-usage.free[n].bit_count(), n)):
            here = min(left, usage.free[node].bit_count())
            while here and not usage.has_room(row, node, here):
                here -= 1
            if here:
                chosen[node] = here
                left -= here
            if not left:
                servers = _beside(usage, row, chosen)
                if servers is not None:
                    return Allocation({n: pick(usage.free[n], count) for n, count in chosen.items()}, servers)
                break
    return None


def _beside(usage: Usage, row: int, workers: dict[int, int]) -> dict[int, int] | None:
    """Find places for parameter servers: with the workers, else on any node with room; None if there are none."""
    servers: dict[int, int] = {}
    order = [*workers, *(node for node in usage.open_to(row, any_type=True) if node not in workers)]
    for _ in range(usage.ps[row]):
        for node in order:
            if usage.has_room(row, node, workers.get(node, 0) + servers.get(node, 0) + 1):
                servers[node] = servers.get(node, 0) + 1
                break
        else:
            return None
    return servers


def _for_a_share(usage: Usage, row: int) -> Allocation | None:
    """Find the fullest shared device with room for a share, else a free device."""
    share = round(usage.gpus[row] * WHOLE)
    nodes = set(usage.open_to(row))
    for (node, device), left in sorted(usage.shares.items(), key=lambda item: (item[1], item[0])):
        if share <= left < WHOLE and node in nodes and usage.has_room(row, node, 1):
            return Allocation({node: device}, {})
    node = _whole_node(usage, row, 1, ())
    return Allocation({node: pick(usage.free[node], 1)}, {}) if node >= 0 else None


def _without_gpus(usage: Usage, row: int) -> Allocation | None:
    """Find a node for a job without GPUs: the one with fewest free GPUs."""
    nodes = [node for node in usage.open_to(row) if usage.has_room(row, node, 1)]
    node = min(nodes, key=lambda n: (usage.free[n].bit_count(), n), default=-1)
    return Allocation({node: 0}, {}) if node >= 0 else None
