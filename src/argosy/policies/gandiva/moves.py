"""How Gandiva improves placements: it moves jobs to free GPUs, joins split jobs, and lets jobs grow into idle GPUs.

Each function takes the usage and a test of whether a job may be moved now, and returns the rows that it moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from argosy.policies.gandiva.placement import find_free, pick
from argosy.policies.gandiva.usage import Allocation, Usage

May = Callable[[int], bool]


def relieve(usage: Usage, may_move: May) -> list[int]:
    """Move jobs that wait for their turn to GPUs of their own, from the most crowded groups first."""
    moved: list[int] = []
    for node, devices in usage.shared_groups():
        if not usage.has_free_gpus():
            break
        paused = [row for row in usage.groups[node][devices] if usage.state[row] == 2 and row not in usage.changed]
        for row in sorted(paused, key=lambda r: (-usage.waited_s[r], usage.index[r])):
            if len(usage.groups[node][devices]) > 1 and _move_to_free(usage, row, may_move):
                moved.append(row)
    return moved


def separate(usage: Usage, may_move: May) -> list[int]:
    """Move one job of each packed pair to GPUs of its own."""
    rows = [row for row, partner in sorted(usage.pairs.items()) if row not in usage.changed and partner > row]
    return [row for row in rows if usage.has_free_gpus() and _move_to_free(usage, row, may_move)]


def _move_to_free(usage: Usage, row: int, may_move: May) -> bool:
    allocation = find_free(usage, row, may_split=False)
    if allocation is None or not may_move(row):
        return False
    usage.remove(row)
    usage.place(row, allocation)
    return True


def join(usage: Usage, may_move: May) -> list[int]:
    """Move each split job to a single server; make room there by moving smaller jobs where needed."""
    moved: list[int] = []
    for row, allocation in sorted(usage.held.items()):
        if len(allocation.devices) < 2 or not usage.plain[row] or row in usage.changed or not may_move(row):
            continue
        usage.remove(row)
        moved += _together(usage, row, may_move)
        if row not in usage.held:
            usage.place(row, allocation)
            usage.changed.discard(row)
    return moved


def _together(usage: Usage, row: int, may_move: May) -> list[int]:
    """Place a removed job on one server, trying those with most free GPUs first; return the rows that moved."""
    size = usage.size[row]
    nodes = [n for n in usage.open_to(row) if usage.node_gpus[n] >= size]
    for node in sorted(nodes, key=lambda n: (-usage.free[n].bit_count(), n)):
        if not usage.free[node]:
            break
        others: list[tuple[int, Allocation]] = []
        small = [r for devices, rows in sorted(usage.groups[node].items()) if len(rows) == 1 for r in rows]
        for other in sorted(small, key=lambda r: (-usage.size[r], usage.index[r])):
            lacking = size - usage.free[node].bit_count()
            if lacking <= 0:
                break
            suited = usage.group_of(other) is not None and usage.size[other] < size and other not in usage.changed
            if not suited or not may_move(other):
                continue
            allocation = _fuller_server(usage, other, node)
            if allocation is not None:
                others.append((other, usage.remove(other)))
                usage.place(other, allocation)
        if usage.free[node].bit_count() >= size and usage.has_room(row, node, size):
            usage.place(row, Allocation({node: pick(usage.free[node], size)}, {}))
            return [row, *(other for other, _ in others)]
        for other, before in reversed(others):
            usage.remove(other)
            usage.place(other, before)
            usage.changed.discard(other)
    return []


def _fuller_server(usage: Usage, row: int, here: int) -> Allocation | None:
    """Find free GPUs on another server, the one with fewest free ones, because that reduces fragmentation."""
    size = usage.size[row]
    nodes = [
        n
        for n in usage.open_to(row)
        if n != here and usage.free[n].bit_count() >= size and usage.has_room(row, n, size)
    ]
    node = min(nodes, key=lambda n: (usage.free[n].bit_count(), n), default=-1)
    return Allocation({node: pick(usage.free[node], size)}, {}) if node >= 0 else None


def grow(usage: Usage, most: Sequence[float], may_grow: May) -> list[int]:
    """Give the idle GPUs of a server to its elastic jobs."""
    grown = []
    for row, allocation in sorted(usage.held.items()):
        group = usage.group_of(row)
        if group is None or most[row] <= group[1].bit_count() or row in usage.changed or len(usage.members(row)) > 1:
            continue
        node, devices = group
        if not usage.open[node] or not usage.free[node] or node not in usage.open_to(row):
            continue
        more = int(min(most[row] - devices.bit_count(), usage.free[node].bit_count()))
        while more and not (usage.has_room(row, node, more) and usage.may_hold(row, more)):
            more -= 1
        if more and may_grow(row):
            usage.remove(row)
            usage.place(row, Allocation({node: devices | pick(usage.free[node] & ~devices, more)}, allocation.servers))
            grown.append(row)
    return grown


def shrink(usage: Usage, row: int) -> None:
    """Shrink a job to the size that it asked for, on the first of its devices."""
    group = usage.group_of(row)
    assert group is not None  # only jobs with whole GPUs of one node grow
    usage.remove(row)
    usage.place(row, Allocation({group[0]: pick(group[1], usage.size[row])}, {}))


def shrink_for(usage: Usage, row: int) -> bool:
    """Shrink grown jobs of one server enough for a waiting job; return False if no server would have room."""
    size = usage.size[row]
    for node in usage.open_to(row):
        if not usage.has_grown_jobs(node):
            continue
        grown = [
            r
            for devices, rows in sorted(usage.groups[node].items())
            for r in rows
            if len(rows) == 1 and usage.group_of(r) is not None and devices.bit_count() > usage.size[r]
        ]
        extra = sum(usage.held[r].devices[node].bit_count() - usage.size[r] for r in grown)
        if not grown or usage.free[node].bit_count() + extra < size:
            continue
        for other in grown:
            if usage.free[node].bit_count() < size:
                shrink(usage, other)
        return True
    return False
