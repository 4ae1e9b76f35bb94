"""Keep track of which jobs use which GPUs while Gandiva makes one decision.

A *group* is a set of devices of one node with the jobs that use them, its members: one job that has the devices alone,
two that are packed on them, or several that take turns. Groups of a node never overlap. Placing, moving and
packing change the usage, and `write` turns the changes into a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import ne

import numpy as np

from argosy.cluster.view import WHOLE, Context, View
from argosy.mechanism.plan import Plan
from argosy.slack import GPU_SLACK, RESOURCE_SLACK


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a job holds: devices (a bit set) by node, and parameter servers by node; neither is changed."""

    devices: dict[int, int]
    servers: dict[int, int]
    only: tuple[int, int] | None = field(init=False)  # the node and its devices, if they are all on one

    def __post_init__(self) -> None:
        object.__setattr__(self, "only", next(iter(self.devices.items())) if len(self.devices) == 1 else None)


class Usage:
    """The jobs and nodes of one view, and which job holds what.

    `turns` gives the groups of jobs that take turns and `pairs` the partners of packed jobs, both by row. `before` is
    the usage of the last decision, which is used up: only this policy changes what jobs hold while they run, so
    allocations need not be looked up again, and what is known of a node stays as long as its jobs do.
    """

    def __init__(
        self,
        view: View,
        context: Context,
        turns: Mapping[int, tuple[int, int]],
        pairs: Mapping[int, int],
        before: Usage | None = None,
    ) -> None:
        jobs, nodes = view.jobs, view.nodes
        gpus, units = jobs.gpus, np.maximum(jobs.gpus, 1.0)
        self.pairs = dict(pairs)
        self.gpus, self.state, self.queue = gpus.tolist(), jobs.state.tolist(), jobs.queue.tolist()
        self.index, self.types, self.ps = jobs.index.tolist(), jobs.types.tolist(), jobs.ps.tolist()
        self.waited_s = jobs.waiting_s.tolist()
        self.size = np.where(gpus >= 1, gpus, gpus > 0).astype(np.int64).tolist()
        self.plain = ((gpus >= 1) & (jobs.ps == 0)).tolist()
        self.cpu_unit, self.memory_unit = (jobs.cpus / units).tolist(), (jobs.memory_gib / units).tolist()
        self.limit = context.queue_limits.tolist()
        self.changed: set[int] = set()
        self.shares: dict[tuple[int, int], int] = {}  # (node, device) → thousandths left of a shared device
        self._reformed: set[tuple[int, int]] = set()  # groups whose turns must be arranged again
        self._undone: set[tuple[int, int]] = set()  # groups of former pairs, which keep CPUs for both in this plan
        self._touched: set[int] = set()  # nodes that are not as the view has them, because of what was changed
        self._jobs = list(zip(self.index, self.gpus, self.cpu_unit, self.memory_unit, self.queue))
        columns = (nodes.gpus, nodes.type, nodes.cpus, nodes.memory_gib, nodes.state, nodes.owner)
        self._nodes = nodes_now = [column.tolist() for column in columns]
        self.node_gpus, self.node_type, self._all_cpus, self._all_memory, states, self.owner = nodes_now
        self.open = [state == 0 for state in states]
        self.held: dict[int, Allocation] = {}
        self._vacant: set[int] = set()  # open nodes with free devices
        self._mixed = False  # whether jobs with shares of devices, servers or CPUs alone were booked, too
        self._shared: list[tuple[int, int]] | None = None  # `shared_groups`, if they have not changed since
        others, fresh = self._look_up(view, turns, before)
        if before is None or before._mixed or others or before._nodes != nodes_now:
            self._begin_anew(view, others)
        else:
            self._take_over(before, fresh)
        self._vacant = {node for node, free in enumerate(self.free) if free and self.open[node]}

    def _look_up(
        self, view: View, turns: Mapping[int, tuple[int, int]], before: Usage | None
    ) -> tuple[list[int], set[int]]:
        """Find what the jobs with whole GPUs alone hold.

        Return the rows of the other jobs that run, and those of jobs that do not hold what they held before.
        """
        index, plain, held = self.index, self.plain, self.held
        others, fresh = list[int](), set[int]()
        known = {} if before is None else {before.index[row]: a for row, a in before.held.items() if before.plain[row]}
        for row, state in enumerate(self.state):
            if state == 0 or (state == 2 and row not in turns):
                continue
            if state == 1 and not plain[row]:
                others.append(row)
                continue
            allocation = known.get(index[row])
            if state == 2 and (allocation is None or allocation.only != turns[row]):
                allocation = Allocation(dict((turns[row],)), {})
                fresh.add(row)
            elif allocation is None:
                allocation = Allocation({p.node: p.devices for p in view.placement(row)}, {})
                fresh.add(row)
            held[row] = allocation
        return others, fresh

    def _begin_anew(self, view: View, others: Iterable[int]) -> None:
        count = len(self.node_gpus)
        # what is left when all jobs run that may run at the same time
        self.cpus, self.memory = list(self._all_cpus), list(self._all_memory)
        self.free = [(1 << n) - 1 for n in self.node_gpus]  # devices that no job uses
        self.groups: list[dict[int, list[int]]] = [{} for _ in range(count)]  # devices → members
        self.asked: list[dict[int, float]] = [{} for _ in range(count)]  # job size → GPUs asked for at that size
        self.used = [0.0] * len(self.limit)  # GPUs that the jobs of each queue hold at most at one time
        self._affinity: dict[int, int] = {}  # by node, if computed since the node's last change
        self._reserved: list[dict[int, tuple[float, float]]] = [{} for _ in range(count)]  # CPUs, memory of groups
        self._open_to: dict[tuple[int, int], list[int]] = {}
        self._crowds: set[tuple[int, int]] = set()  # groups of several jobs
        self._grown = [0] * count  # jobs of each node with more devices there than they asked for
        plain = list(self.held.items())
        for row in others:
            parts = view.placement(row)
            servers = {p.node: p.servers for p in parts if p.servers}
            devices_of = {p.node: p.devices for p in parts if p.devices or not servers}
            self._enter(row, Allocation(devices_of, servers))
        self._fill(range(count), plain)

    def _take_over(self, before: Usage, fresh: set[int]) -> None:
        """Go on from the usage of the last decision: fill only those nodes again where something is different."""
        rows, rows_before, pairs, held = len(self._jobs), len(before._jobs), self.pairs, self.held
        others = set(compress(range(rows), map(ne, self._jobs, before._jobs)))  # rows that now show another job
        others |= fresh | (before.held.keys() - held.keys())
        others.update(range(min(rows, rows_before), max(rows, rows_before)))
        others |= {row for row in pairs.keys() | before.pairs.keys() if pairs.get(row) != before.pairs.get(row)}
        again = set(before._touched)
        for holds in (held, before.held):
            again.update(*(holds[row].devices for row in others if row in holds))
        self.cpus, self.memory, self.free, self.groups = before.cpus, before.memory, before.free, before.groups
        self.asked, self.used, self._affinity, self._reserved = (
            before.asked,
            before.used,
            before._affinity,
            before._reserved,
        )
        self._open_to, self._crowds, self._grown = before._open_to, before._crowds, before._grown
        for node in again:
            for devices, members in self.groups[node].items():
                self._crowds.discard((node, devices))
                for queue in {before.queue[row] for row in members}:
                    self.used[queue] -= devices.bit_count()
            self.cpus[node], self.memory[node] = self._all_cpus[node], self._all_memory[node]
            self.free[node], self._grown[node] = (1 << self.node_gpus[node]) - 1, 0
            self.groups[node], self.asked[node], self._reserved[node] = {}, {}, {}
            self._affinity.pop(node, None)
        self._fill(again, held.items())

    def _fill(self, nodes: Iterable[int], held: Iterable[tuple[int, Allocation]]) -> None:
        """Enter jobs with whole GPUs alone into some nodes; a group's demand is summed once, when it is complete."""
        wanted = set(nodes)
        for row, allocation in held:
            for node, devices in allocation.devices.items():
                if node in wanted:
                    self.groups[node].setdefault(devices, []).append(row)
        sizes, queues, used, cpus, memory = self.size, self.queue, self.used, self.cpu_unit, self.memory_unit
        for node in sorted(wanted):
            asked, reserved = self.asked[node], self._reserved[node]
            for devices, rows in self.groups[node].items():
                if devices in reserved:  # already booked: a job with servers uses it
                    continue
                count = devices.bit_count()
                self.free[node] &= ~devices
                if len(rows) > 1:
                    self._crowds.add((node, devices))
                    self._reserve(node, devices)
                    for queue in {queues[row] for row in rows}:
                        used[queue] += count
                else:  # as `_reserve` would
                    only = rows[0]
                    needs = reserved[devices] = (count * cpus[only], count * memory[only])
                    self.cpus[node] -= needs[0]
                    self.memory[node] -= needs[1]
                    used[queues[only]] += count
                for row in rows:
                    size = sizes[row]
                    asked[size] = asked.get(size, 0.0) + (size if size < count else count)
                    if count > size:
                        self._grown[node] += 1

    def open_to(self, row: int, *, any_type: bool = False) -> list[int]:
        """Return the nodes where a job may start: up, not reserved for others, of a GPU type that it accepts."""
        types, queue = self.types[row] if self.size[row] and not any_type else -1, self.queue[row]
        found = self._open_to.get((types, queue))
        if found is None:
            found = self._open_to[types, queue] = [
                node
                for node, is_open in enumerate(self.open)
                if is_open
                and self.owner[node] in (-1, queue)
                and (types == -1 or self.node_gpus[node] == 0 or types >> self.node_type[node] & 1)
            ]
        return found

    def is_open_to(self, row: int, node: int) -> bool:
        """Return whether this node is one of `open_to`."""
        types = self.types[row] if self.size[row] and self.node_gpus[node] else -1
        accepts = types == -1 or bool(types >> self.node_type[node] & 1)
        return accepts and self.open[node] and self.owner[node] in (-1, self.queue[row])

    def has_room(self, row: int, node: int, units: int) -> bool:
        """Return whether a node has CPUs and memory left for `units` GPUs and servers of a job."""
        return self.suffice(row, units, self.cpus[node], self.memory[node])

    def suffice(self, row: int, units: int, cpus: float, memory_gib: float) -> bool:
        """Return whether these CPUs and this memory are enough for `units` GPUs and servers of a job."""
        enough_cpus = cpus >= units * self.cpu_unit[row] - RESOURCE_SLACK
        return bool(enough_cpus and memory_gib >= units * self.memory_unit[row] - RESOURCE_SLACK)

    def may_hold(self, row: int, more: float) -> bool:
        """Return whether the limit of its queue allows the job `more` GPUs in addition."""
        queue = self.queue[row]
        return bool(self.used[queue] + more <= self.limit[queue] + GPU_SLACK)

    def has_grown_jobs(self, node: int) -> bool:
        """Return whether any job has more GPUs of a node than it asked for."""
        return self._grown[node] > 0

    def has_free_gpus(self) -> bool:
        """Return whether any open node has free devices."""
        return bool(self._vacant)

    def load(self, node: int) -> float:
        """Return how many GPUs jobs ask for per GPU of a node; rounded up it is the node's height."""
        return float(sum(self.asked[node].values()) / max(self.node_gpus[node], 1))

    def affinity(self, node: int) -> int:
        """Return the size of the jobs that ask for most of a node's GPUs (ties: the smaller); 0 if it has no jobs."""
        found = self._affinity.get(node)
        if found is None:
            asked = self.asked[node]
            sizes = [size for size in sorted(asked) if asked[size] > GPU_SLACK]
            found = self._affinity[node] = max(sizes, key=asked.__getitem__, default=0)
        return found

    def group_of(self, row: int) -> tuple[int, int] | None:
        """Return the node and devices of a job that has whole GPUs of one node; None for other jobs."""
        allocation = self.held.get(row)
        return allocation.only if allocation is not None and self.plain[row] else None

    def members(self, row: int) -> list[int]:
        """Return the members of a job's group, itself among them."""
        group = self.group_of(row)
        return [row] if group is None else self.groups[group[0]][group[1]]

    def shared_groups(self) -> list[tuple[int, int]]:
        """Return the groups whose members take turns, the most crowded first."""
        if self._shared is None:
            crowds = [(self.groups[node][devices], node, devices) for node, devices in self._crowds]
            found = [(-len(rows), node, devices) for rows, node, devices in crowds if rows[0] not in self.pairs]
            self._shared = [(node, devices) for _, node, devices in sorted(found)]
        return self._shared

    def place(self, row: int, allocation: Allocation) -> None:
        """Give a job an allocation."""
        self._enter(row, allocation)
        self.changed.add(row)

    def share_turns(self, row: int, node: int, devices: int) -> None:
        """Let a job take turns with the members of a group."""
        self.place(row, Allocation({node: devices}, {}))
        self._reformed.add((node, devices))

    def pack(self, guest: int, host: int) -> None:
        """Run a job on the GPUs of another, at the same time."""
        group = self.group_of(host)
        assert group is not None  # only such jobs are hosts
        if guest in self.held:
            self.remove(guest)
        self.pairs[guest], self.pairs[host] = host, guest
        self._shared = None
        self.place(guest, Allocation(dict((group,)), {}))

    def take_turns_instead(self, guest: int, host: int) -> None:
        """Undo a packing: both jobs take turns."""
        del self.pairs[guest], self.pairs[host]
        self._shared = None
        group = self.group_of(host)
        assert group is not None  # only such jobs are hosts
        self._undone.add(group)
        self._reformed.add(group)
        self._touched.add(group[0])

    def remove(self, row: int) -> Allocation:
        """Take a job's allocation away, and return it; a packed job's partner then has the GPUs for itself."""
        allocation = self.held.pop(row)
        self.pairs.pop(self.pairs.pop(row, -1), None)
        self.changed.add(row)
        self._book(row, allocation, -1)
        return allocation

    def _enter(self, row: int, allocation: Allocation) -> None:
        self.held[row] = allocation
        self._book(row, allocation, 1)

    def _book(self, row: int, allocation: Allocation, sign: int) -> None:
        self._touched.update(allocation.devices)
        self._mixed |= not self.plain[row]
        self._shared = None
        for node, count in allocation.servers.items():
            self.cpus[node] -= sign * count * self.cpu_unit[row]
            self.memory[node] -= sign * count * self.memory_unit[row]
        for node, devices in allocation.devices.items():
            if self.gpus[row] >= 1:
                self._book_group(row, node, devices, sign)
            else:
                self._book_share(row, node, devices, sign)
            self._ask(row, node, devices, sign)

    def _ask(self, row: int, node: int, devices: int, sign: int) -> None:
        asked, size = self.asked[node], self.size[row]
        asked[size] = asked.get(size, 0.0) + sign * min(self.gpus[row], devices.bit_count())
        self._affinity.pop(node, None)

    def _book_group(self, row: int, node: int, devices: int, sign: int) -> None:
        group = self.groups[node].setdefault(devices, [])
        if devices.bit_count() > self.size[row]:
            self._grown[node] += sign
        if sign < 0:
            group.remove(row)
        if self.queue[row] not in [self.queue[other] for other in group]:
            self.used[self.queue[row]] += sign * devices.bit_count()
        if sign > 0:
            group.append(row)
        if len(group) > 1:
            self._crowds.add((node, devices))
        else:
            self._crowds.discard((node, devices))
        self._set_free(node, self.free[node] & ~devices if group else self.free[node] | devices)
        self._reserve(node, devices)
        if not group:
            del self.groups[node][devices]

    def _book_share(self, row: int, node: int, devices: int, sign: int) -> None:
        """Book a share of a device, or a job without GPUs."""
        self.cpus[node] -= sign * self.cpu_unit[row]
        self.memory[node] -= sign * self.memory_unit[row]
        self.used[self.queue[row]] += sign * self.gpus[row]
        if devices:
            left = self.shares.get((node, devices), WHOLE) - sign * round(self.gpus[row] * WHOLE)
            self.shares[node, devices] = left
            self._set_free(node, self.free[node] | devices if left == WHOLE else self.free[node] & ~devices)

    def _set_free(self, node: int, devices: int) -> None:
        self.free[node] = devices
        if devices and self.open[node]:
            self._vacant.add(node)
        else:
            self._vacant.discard(node)

    def _reserve(self, node: int, devices: int) -> None:
        """Reserve the CPUs and memory of a group: what the most demanding member needs, or both of a pair."""
        rows, units = self.groups[node][devices], devices.bit_count()
        if len(rows) == 1:
            cpus, memory = units * self.cpu_unit[rows[0]], units * self.memory_unit[rows[0]]
        else:
            together = sum if rows and (rows[0] in self.pairs or (node, devices) in self._undone) else max
            cpus = units * together([0.0, *(self.cpu_unit[row] for row in rows)])
            memory = units * together([0.0, *(self.memory_unit[row] for row in rows)])
        before = self._reserved[node].get(devices, (0.0, 0.0))
        self._reserved[node][devices] = (cpus, memory)
        self.cpus[node] -= cpus - before[0]
        self.memory[node] -= memory - before[1]

    def write(self, plan: Plan, quantum_s: float) -> None:
        """Write everything that has changed into a plan."""
        turns = [group for group in sorted(self._reformed) if len(self.groups[group[0]].get(group[1], ())) > 1]
        arranged = {row for node, devices in turns for row in self.groups[node][devices]}
        for row in sorted(self.changed | arranged):
            if row not in self.held:
                plan.stop(row)
            elif row in self.pairs:
                plan.stop(row)
                plan.pack(row, self.pairs[row])
            else:
                allocation = self.held[row]
                gpus = {node: devices.bit_count() for node, devices in allocation.devices.items()}
                plan.run(row, gpus, allocation.servers, {node: d for node, d in allocation.devices.items() if d})
        for node, devices in turns:
            # the job that has waited longest comes first; the running one has just had its turn
            order = sorted(
                self.groups[node][devices],
                key=lambda row: (self.state[row] == 1, self.state[row] == 0, -self.waited_s[row], self.index[row]),
            )
            plan.slice(order, quantum_s)
