"""Gandiva's repairs: moving jobs to GPUs that became free, joining split ones, growing into idle servers.

Each takes the board and a test of whether a job may be moved now, and returns the rows that it moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from argosy.policies.gandiva.placement import find_free, pick
from argosy.policies.gandiva.usage import Board, Seat

May = Callable[[int], bool]


def relieve(board: Board, may_move: May) -> list[int]:
    """Jobs that wait for their turn go to GPUs of their own, from the most crowded slots first."""
    moved: list[int] = []
    for node, devices in board.shared_slots():
        if not board.has_free_gpus():
            break
        paused = [row for row in board.slots[node][devices] if board.state[row] == 2 and row not in board.changed]
        for row in sorted(paused, key=lambda r: (-board.waited_s[r], board.index[r])):
            if len(board.slots[node][devices]) > 1 and _go(board, row, may_move):
                moved.append(row)
    return moved


def separate(board: Board, may_move: May) -> list[int]:
    """One of each packed pair goes to GPUs of its own."""
    rows = [row for row, partner in sorted(board.pairs.items()) if row not in board.changed and partner > row]
    return [row for row in rows if board.has_free_gpus() and _go(board, row, may_move)]


def _go(board: Board, row: int, may_move: May) -> bool:
    seat = find_free(board, row, may_split=False)
    if seat is None or not may_move(row):
        return False
    board.lift(row)
    board.sit(row, seat)
    return True


def join(board: Board, may_move: May) -> list[int]:
    """Bring split jobs together on one server; make room there by moving smaller jobs if need be."""
    moved: list[int] = []
    for row, seat in sorted(board.seats.items()):
        if len(seat.devices) < 2 or not board.plain[row] or row in board.changed or not may_move(row):
            continue
        board.lift(row)
        moved += _together(board, row, may_move)
        if row not in board.seats:
            board.sit(row, seat)
            board.changed.discard(row)
    return moved


def _together(board: Board, row: int, may_move: May) -> list[int]:
    """Seat a lifted job on one server, the one with most free GPUs first; the rows that had to move for it, too."""
    size = board.size[row]
    nodes = [n for n in board.open_to(row) if board.node_gpus[n] >= size]
    for node in sorted(nodes, key=lambda n: (-board.free[n].bit_count(), n)):
        if not board.free[node]:
            break
        others: list[tuple[int, Seat]] = []
        small = [r for devices, rows in sorted(board.slots[node].items()) if len(rows) == 1 for r in rows]
        for other in sorted(small, key=lambda r: (-board.size[r], board.index[r])):
            lacking = size - board.free[node].bit_count()
            if lacking <= 0:
                break
            suited = board.slot_of(other) is not None and board.size[other] < size and other not in board.changed
            if not suited or not may_move(other):
                continue
            seat = _fuller_server(board, other, node)
            if seat is not None:
                others.append((other, board.lift(other)))
                board.sit(other, seat)
        if board.free[node].bit_count() >= size and board.has_room(row, node, size):
            board.sit(row, Seat({node: pick(board.free[node], size)}, {}))
            return [row, *(other for other, _ in others)]
        for other, before in reversed(others):
            board.lift(other)
            board.sit(other, before)
            board.changed.discard(other)
    return []


def _fuller_server(board: Board, row: int, here: int) -> Seat | None:
    """Free GPUs of another server, the one with fewest free: moving there defragments."""
    size = board.size[row]
    nodes = [
        n for n in board.open_to(row)
        if n != here and board.free[n].bit_count() >= size and board.has_room(row, n, size)
    ]  # fmt: skip
    node = min(nodes, key=lambda n: (board.free[n].bit_count(), n), default=-1)
    return Seat({node: pick(board.free[node], size)}, {}) if node >= 0 else None


def grow(board: Board, most: Sequence[float], may_grow: May) -> list[int]:
    """Elastic jobs take the idle GPUs of their server."""
    grown = []
    for row, seat in sorted(board.seats.items()):
        slot = board.slot_of(row)
        if slot is None or most[row] <= slot[1].bit_count() or row in board.changed or len(board.mates(row)) > 1:
            continue
        node, devices = slot
        if not board.open[node] or not board.free[node] or node not in board.open_to(row):
            continue
        more = int(min(most[row] - devices.bit_count(), board.free[node].bit_count()))
        while more and not (board.has_room(row, node, more) and board.may_hold(row, more)):
            more -= 1
        if more and may_grow(row):
            board.lift(row)
            board.sit(row, Seat({node: devices | pick(board.free[node] & ~devices, more)}, seat.servers))
            grown.append(row)
    return grown


def shrink(board: Board, row: int) -> None:
    """Back to the size that the job asked for, on the devices it had first."""
    slot = board.slot_of(row)
    assert slot is not None  # only such jobs grow
    board.lift(row)
    board.sit(row, Seat({slot[0]: pick(slot[1], board.size[row])}, {}))


def shrink_for(board: Board, row: int) -> bool:
    """Let grown jobs give back enough for a job that waits, on one server; False if that would not do."""
    size = board.size[row]
    for node in board.open_to(row):
        grown = [
            r for devices, rows in sorted(board.slots[node].items()) for r in rows
            if len(rows) == 1 and board.slot_of(r) is not None and devices.bit_count() > board.size[r]
        ]  # fmt: skip
        extra = sum(board.seats[r].devices[node].bit_count() - board.size[r] for r in grown)
        if not grown or board.free[node].bit_count() + extra < size:
            continue
        for other in grown:
            if board.free[node].bit_count() < size:
                shrink(board, other)
        return True
    return False
