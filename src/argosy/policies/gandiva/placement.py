"""Gandiva's placement: five steps for a job that arrives, and the free GPUs that a job could have.

The *affinity* of a server is the size of the jobs on it; its *height* is ⌈GPUs asked for / GPUs⌉. A job goes to
(1) free GPUs of a server with its affinity, the least loaded first; (2) an empty server, which takes its affinity;
(3) free GPUs of a server with another affinity, or of several servers; (4) GPUs of a server with its affinity whose
jobs it takes turns with; or (5) it waits.
"""

from __future__ import annotations

from collections.abc import Collection

from argosy.mechanism.plan import Reason, Why
from argosy.policies.gandiva.usage import WHOLE, Board, Seat


def find_free(board: Board, row: int, *, may_split: bool, apart_from: Collection[int] = ()) -> Seat | None:
    """Steps 1 to 3: GPUs that nobody sits on."""
    if not board.may_hold(row, board.gpus[row]):
        return None
    if board.gpus[row] < 1:
        return _for_a_share(board, row) if board.size[row] else _without_gpus(board, row)
    node = _whole_node(board, row, board.size[row], apart_from)
    if node >= 0:
        return Seat({node: pick(board.free[node], board.size[row])}, _beside(board, row, {node: board.size[row]}) or {})
    return _split(board, row) if may_split else None


def find_crowd(board: Board, row: int, max_height: int) -> tuple[int, int] | None:
    """Step 4: the slot to take turns on, of the least loaded server with the job's affinity."""
    size, queue = board.size[row], board.queue[row]
    best: tuple[float, int, int, int] | None = None
    if not board.plain[row]:
        return None
    for node in board.open_to(row):
        if board.affinity(node) != size or (best is not None and board.load(node) >= best[0]):
            continue
        for devices, rows in sorted(board.slots[node].items()):
            first = rows[0]
            suited = devices.bit_count() == size and len(rows) < max_height and first not in board.pairs
            alike = all(board.plain[r] and board.size[r] == size and len(board.seats[r].devices) == 1 for r in rows)
            if not suited or not alike:
                continue
            mine = any(board.queue[r] == queue for r in rows)
            more_cpus = size * (board.cpu_unit[row] - max(board.cpu_unit[r] for r in rows))
            more_memory = size * (board.memory_unit[row] - max(board.memory_unit[r] for r in rows))
            if more_cpus > board.cpus[node] or more_memory > board.memory[node]:
                continue
            if not mine and not board.may_hold(row, size):
                continue
            key = (board.load(node), node, len(rows), devices)
            if best is None or key < best:
                best = key
    return None if best is None else (best[1], best[3])


def why_it_waits(board: Board, row: int) -> Reason:
    """Step 5."""
    nodes = board.open_to(row)
    if not board.may_hold(row, board.gpus[row]):
        return Reason(Why.QUOTA, f"its queue has {board.used[board.queue[row]]:g} of {board.limit[board.queue[row]]:g}")
    there = sum(board.free[node].bit_count() for node in nodes)
    if there < board.size[row]:
        return Reason(Why.NO_GPUS, f"{board.size[row]} wanted, {there} free, and nobody there to take turns with")
    return Reason(Why.NO_CPUS, "no CPUs or memory beside the free GPUs")


def pick(free: int, count: int) -> int:
    """So many of the free devices: neighbours that begin at a multiple of their number, else the first ones."""
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


def _whole_node(board: Board, row: int, size: int, apart_from: Collection[int]) -> int:
    """Steps 1 to 3 on a single server; -1 if there is none."""
    best, node_found = (4, 0.0), -1
    units = size + board.ps[row]
    for node in board.open_to(row):
        free = board.free[node].bit_count()
        if free < size or node in apart_from or not _takes(board, row, node, size, units):
            continue
        affinity = board.affinity(node)
        if affinity == size:
            key = (1, board.load(node))
        elif affinity == 0:
            key = (2, float(board.node_gpus[node]))
        else:
            key = (3, float(free))
        if key < best:
            best, node_found = key, node
    return node_found


def _takes(board: Board, row: int, node: int, size: int, units: int) -> bool:
    """CPUs and memory for the workers here, and for the servers here or elsewhere."""
    if board.has_room(row, node, units):
        return True
    return board.ps[row] > 0 and board.has_room(row, node, size) and _beside(board, row, {node: size}) is not None


def _split(board: Board, row: int) -> Seat | None:
    """Several servers of one GPU type, as few as possible."""
    for gpu_type in sorted({board.node_type[node] for node in board.open_to(row)}):
        left, chosen = board.size[row], dict[int, int]()
        nodes = [node for node in board.open_to(row) if board.node_type[node] == gpu_type and board.free[node]]
        for node in sorted(nodes, key=lambda n: (-board.free[n].bit_count(), n)):
            here = min(left, board.free[node].bit_count())
            while here and not board.has_room(row, node, here):
                here -= 1
            if here:
                chosen[node] = here
                left -= here
            if not left:
                servers = _beside(board, row, chosen)
                if servers is not None:
                    return Seat({n: pick(board.free[n], count) for n, count in chosen.items()}, servers)
                break
    return None


def _beside(board: Board, row: int, workers: dict[int, int]) -> dict[int, int] | None:
    """Parameter servers beside the workers, else on any node with room; None if there is none."""
    servers: dict[int, int] = {}
    order = [*workers, *(node for node in board.open_to(row, any_type=True) if node not in workers)]
    for _ in range(board.ps[row]):
        for node in order:
            if board.has_room(row, node, workers.get(node, 0) + servers.get(node, 0) + 1):
                servers[node] = servers.get(node, 0) + 1
                break
        else:
            return None
    return servers


def _for_a_share(board: Board, row: int) -> Seat | None:
    """The fullest shared device that has room, else a device of its own."""
    share = round(board.gpus[row] * WHOLE)
    nodes = set(board.open_to(row))
    for (node, device), left in sorted(board.shares.items(), key=lambda item: (item[1], item[0])):
        if share <= left < WHOLE and node in nodes and board.has_room(row, node, 1):
            return Seat({node: device}, {})
    node = _whole_node(board, row, 1, ())
    return Seat({node: pick(board.free[node], 1)}, {}) if node >= 0 else None


def _without_gpus(board: Board, row: int) -> Seat | None:
    """Where fewest GPUs are free."""
    nodes = [node for node in board.open_to(row) if board.has_room(row, node, 1)]
    node = min(nodes, key=lambda n: (board.free[n].bit_count(), n), default=-1)
    return Seat({node: 0}, {}) if node >= 0 else None
