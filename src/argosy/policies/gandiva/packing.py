"""Gandiva's packing: two jobs run on the same GPUs as a trial, and stay there if they do more than by taking turns.

Two jobs that take turns do as much work as one: the sum of their speeds relative to running alone is 1. For packed jobs
this sum is measured. A job runs alone for a while before it is packed, so that both of its speeds are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from argosy.cluster.view import View
from argosy.policies.gandiva.usage import Usage

MOST_TRIED = 32  # hosts that are considered for a guest in one decision


class Packing:
    """Remembers which jobs are packed, which pairs are on trial, and which failed; jobs are given by their index."""

    def __init__(self, gpu_memory_gib: Sequence[float], profile_s: float, max_utilisation: float) -> None:
        self._gpu_memory_gib, self._profile_s, self._max_utilisation = gpu_memory_gib, profile_s, max_utilisation
        self._partner: dict[int, int] = {}
        self._trials: dict[tuple[int, int], float] = {}  # (guest, host) → since when
        self._in_vain: set[tuple[int, int]] = set()
        self._alone: dict[int, tuple[float, int]] = {}  # job → speed alone at the requested size, GPU type

    def pairs_by_row(self, rows: Mapping[int, int]) -> dict[int, int]:
        """Return the partner of each packed job, by row."""
        return {rows[job]: rows[partner] for job, partner in self._partner.items()}

    def judge(self, usage: Usage, view: View, rows: Mapping[int, int]) -> list[float]:
        """Note speeds and undo pairs that failed; return the times at which the other trials end."""
        rates = view.jobs.measured_rate.tolist()
        for row, allocation in usage.held.items():
            group = allocation.only
            if usage.state[row] != 1 or group is None or usage.gpus[row] < 1 or row in usage.pairs:
                continue
            if usage.size[row] == group[1].bit_count():
                self._alone[usage.index[row]] = (rates[row], usage.node_type[group[0]])
        again = []
        for (guest, host), since in sorted(self._trials.items()):
            if view.now < since + self._profile_s:
                again.append(since + self._profile_s)
                continue
            del self._trials[guest, host]
            together = sum(rates[rows[job]] / self._alone[job][0] for job in (guest, host))
            if together <= 1:
                usage.take_turns_instead(rows[guest], rows[host])
                self._in_vain.add((guest, host))
        return again

    def attempt(self, usage: Usage, view: View) -> list[float]:
        """Pack jobs that wait for their turn, those that use a GPU least first; return when to look again."""
        footprint, kind = view.profile.footprint, view.jobs.kind
        utilisation, memory_gib = footprint.utilisation[kind].tolist(), footprint.memory_gib[kind].tolist()
        speeds = [self._alone.get(job) for job in usage.index]
        watched = [
            s >= self._profile_s and speed is not None for s, speed in zip(view.jobs.executed_s.tolist(), speeds)
        ]
        known = [seen and speed is not None and speed[0] > 0 for seen, speed in zip(watched, speeds)]
        state, size, index, groups, changed = usage.state, usage.size, usage.index, usage.groups, usage.changed
        crowd = [row for node, devices in usage.shared_groups() for row in groups[node][devices]]
        guests = [(utilisation[r], index[r], r) for r in crowd if state[r] == 2 and known[r] and r not in changed]
        alone = self._possible_hosts(usage, known, utilisation) if guests else {}
        again = []
        roomiest = (max(usage.cpus, default=0.0), max(usage.memory, default=0.0))
        for used, _, guest in sorted(guests):
            members = usage.members(guest)
            hosts = [row for row in members if row != guest] if len(members) == 2 else []
            hosts = [row for row in hosts if state[row] == 1 and known[row] and row not in changed]
            others = alone.get(size[guest])
            if others and usage.suffice(guest, size[guest], *roomiest):
                hosts = sorted([*hosts, *others], key=utilisation.__getitem__) if hosts else others
            for host in hosts:
                if used + utilisation[host] > self._max_utilisation:
                    break
                if self._suits(usage, guest, host, memory_gib[guest] + memory_gib[host]):
                    usage.pack(guest, host)
                    self._trials[index[guest], index[host]] = view.now
                    again.append(view.now + self._profile_s)
                    break
        if not all(watched[row] for row in crowd):
            again.append(view.now + self._profile_s)
        return again

    def _possible_hosts(
        self, usage: Usage, known: Sequence[bool], utilisation: Sequence[float]
    ) -> dict[int, list[int]]:
        """Return the jobs that have their GPUs for themselves, by size, those first that use a GPU least."""
        found: dict[int, list[tuple[float, int, int]]] = {}
        for node, groups in enumerate(usage.groups):
            for devices, members in groups.items() if usage.open[node] else ():
                row = members[0]
                fits = len(members) == 1 and usage.plain[row] and devices.bit_count() == usage.size[row]
                if fits and usage.state[row] == 1 and known[row] and row not in usage.changed:
                    found.setdefault(usage.size[row], []).append((utilisation[row], usage.index[row], row))
        return {size: [row for _, _, row in sorted(rows)[:MOST_TRIED]] for size, rows in found.items()}

    def _suits(self, usage: Usage, guest: int, host: int, memory_gib: float) -> bool:
        a, b = pair = (usage.index[guest], usage.index[host])
        if pair in self._in_vain or (b, a) in self._in_vain or host in usage.pairs or host in usage.changed:
            return False
        group = usage.group_of(host)
        if group is None:
            return False
        node, size = group[0], usage.size[guest]
        gpu_type = usage.node_type[node]
        if memory_gib > self._gpu_memory_gib[gpu_type] or not usage.is_open_to(guest, node):
            return False
        if self._alone[a][1] != gpu_type or self._alone[b][1] != gpu_type:
            return False  # speeds on different GPU types cannot be compared
        if guest in usage.members(host):  # what the more demanding of the two needs is already reserved
            less_cpus = min(usage.cpu_unit[guest], usage.cpu_unit[host])
            less_memory = min(usage.memory_unit[guest], usage.memory_unit[host])
            return bool(size * less_cpus <= usage.cpus[node] and size * less_memory <= usage.memory[node])
        same_queue = usage.queue[guest] == usage.queue[host]
        return usage.has_room(guest, node, size) and (same_queue or usage.may_hold(guest, size))

    def note(self, usage: Usage) -> None:
        """Remember which jobs are packed after this decision."""
        self._partner = {usage.index[row]: usage.index[partner] for row, partner in usage.pairs.items()}

    def forget(self, here: set[int], idle: set[int]) -> None:
        """Forget jobs that have ended, and the pairs of jobs that no longer hold anything."""
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
