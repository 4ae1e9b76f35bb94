"""Gandiva's packing: two jobs on the same GPUs, tried and kept only if that is better than taking turns.

Taking turns, two jobs do as much as one: the sum of their speeds relative to running alone is 1. Packed, it is
measured. Nobody is packed before he has run alone for a while, so that both speeds are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from argosy.cluster.view import View
from argosy.policies.gandiva.usage import Board

MOST_TRIED = 32  # hosts that a guest looks at in one decision


class Packing:
    """Who is packed with whom, who is on trial, and what was tried in vain; jobs go by their index."""

    def __init__(self, gpu_memory_gib: Sequence[float], profile_s: float, max_utilisation: float) -> None:
        self._gpu_memory_gib, self._profile_s, self._max_utilisation = gpu_memory_gib, profile_s, max_utilisation
        self._partner: dict[int, int] = {}
        self._trials: dict[tuple[int, int], float] = {}  # (guest, host) → since when
        self._in_vain: set[tuple[int, int]] = set()
        self._alone: dict[int, tuple[float, int]] = {}  # speed alone as requested, on which GPU type

    def pairs_by_row(self, rows: Mapping[int, int]) -> dict[int, int]:
        return {rows[job]: rows[partner] for job, partner in self._partner.items()}

    def judge(self, board: Board, view: View, rows: Mapping[int, int]) -> list[float]:
        """Note speeds, undo pairs that failed; when to look at the others."""
        rates = view.jobs.measured_rate.tolist()
        for node, slots in enumerate(board.slots):
            gpu_type = board.node_type[node]
            for devices, sitters in slots.items():
                for row in sitters:
                    if board.state[row] == 1 and row not in board.pairs and board.size[row] == devices.bit_count():
                        self._alone[board.index[row]] = (rates[row], gpu_type)
        again = []
        for (guest, host), since in sorted(self._trials.items()):
            if view.now < since + self._profile_s:
                again.append(since + self._profile_s)
                continue
            del self._trials[guest, host]
            together = sum(rates[rows[job]] / self._alone[job][0] for job in (guest, host))
            if together <= 1:
                board.take_turns_instead(rows[guest], rows[host])
                self._in_vain.add((guest, host))
        return again

    def attempt(self, board: Board, view: View) -> list[float]:
        """Under overload: pack jobs that wait for their turn, those that use a GPU least first."""
        footprint, kind = view.profile.footprint, view.jobs.kind
        utilisation, memory_gib = footprint.utilisation[kind].tolist(), footprint.memory_gib[kind].tolist()
        watched_s = view.jobs.executed_s.tolist()

        def is_watched(row: int) -> bool:
            return watched_s[row] >= self._profile_s and board.index[row] in self._alone

        def is_known(row: int) -> bool:
            return is_watched(row) and self._alone[board.index[row]][0] > 0 and row not in board.changed

        crowd = [row for node, devices in board.shared_slots() for row in board.slots[node][devices]]
        guests = [row for row in crowd if board.state[row] == 2 and is_known(row)]
        alone: dict[int, list[int]] = {}  # hosts who have their GPUs for themselves, by size
        for node, slots in enumerate(board.slots) if guests else ():
            for devices, (row, *others) in slots.items():
                fits = not others and board.open[node] and board.plain[row] and devices.bit_count() == board.size[row]
                if fits and board.state[row] == 1 and is_known(row):
                    alone.setdefault(board.size[row], []).append(row)
        for hosts in alone.values():
            hosts.sort(key=lambda r: (utilisation[r], board.index[r]))
        again = []
        roomiest = (max(board.cpus, default=0.0), max(board.memory, default=0.0))
        for guest in sorted(guests, key=lambda r: (utilisation[r], board.index[r])):
            size, mates = board.size[guest], board.mates(guest)
            hosts = [row for row in mates if row != guest and board.state[row] == 1 and is_known(row)]
            hosts = hosts if len(mates) == 2 else []
            if board.suffice(guest, size, *roomiest):
                hosts = sorted([*hosts, *alone.get(size, [])[:MOST_TRIED]], key=utilisation.__getitem__)
            for host in hosts:
                if utilisation[guest] + utilisation[host] > self._max_utilisation:
                    break
                if self._suits(board, guest, host, memory_gib[guest] + memory_gib[host]):
                    board.pack(guest, host)
                    self._trials[board.index[guest], board.index[host]] = view.now
                    again.append(view.now + self._profile_s)
                    break
        if not all(is_watched(row) for row in crowd):
            again.append(view.now + self._profile_s)
        return again

    def _suits(self, board: Board, guest: int, host: int, memory_gib: float) -> bool:
        slot = board.slot_of(host)
        pair = (board.index[guest], board.index[host])
        if slot is None or host in board.pairs or host in board.changed or {pair, pair[::-1]} & self._in_vain:
            return False
        node, size = slot[0], board.size[guest]
        gpu_type = board.node_type[node]
        if node not in board.open_to(guest) or memory_gib > self._gpu_memory_gib[gpu_type]:
            return False
        if self._alone[pair[0]][1] != gpu_type or self._alone[pair[1]][1] != gpu_type:
            return False  # speeds on another type say nothing
        if guest in board.mates(host):  # what the more demanding one needs is set aside already
            less_cpus = min(board.cpu_unit[guest], board.cpu_unit[host])
            less_memory = min(board.memory_unit[guest], board.memory_unit[host])
            return bool(size * less_cpus <= board.cpus[node] and size * less_memory <= board.memory[node])
        same_queue = board.queue[guest] == board.queue[host]
        return board.has_room(guest, node, size) and (same_queue or board.may_hold(guest, size))

    def note(self, board: Board) -> None:
        """Remember who is packed after this decision."""
        self._partner = {board.index[row]: board.index[partner] for row, partner in board.pairs.items()}

    # -- memory ----------------------------------------------------------------------------------------------------

    def forget(self, here: set[int], idle: set[int]) -> None:
        """Of jobs that have ended nothing is kept; those that hold nothing are in no pair."""
        there = here - idle
        self._partner = {a: b for a, b in self._partner.items() if a in there and b in there}
        self._trials = {pair: since for pair, since in self._trials.items() if self._partner.get(pair[0]) == pair[1]}
        self._in_vain = {pair for pair in self._in_vain if pair[0] in here and pair[1] in here}
        self._alone = {job: speed for job, speed in self._alone.items() if job in here}

    def state(self) -> dict[str, Any]:
        return {
            "partner": sorted(self._partner.items()),
            "trials": [[*pair, since] for pair, since in sorted(self._trials.items())],
            "in_vain": sorted(self._in_vain),
            "alone": [[job, *speed] for job, speed in sorted(self._alone.items())],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._partner = dict(state["partner"])
        self._trials = {(guest, host): since for guest, host, since in state["trials"]}
        self._in_vain = {(guest, host) for guest, host in state["in_vain"]}
        self._alone = {job: (rate, gpu_type) for job, rate, gpu_type in state["alone"]}
