"""Who sits on which GPUs, as one decision of Gandiva sees it and changes it.

A *slot* is a set of devices of one node. Its sitters are one job that has it for itself, two that are packed on it,
or several that take turns; slots of a node never overlap. Placing, moving and packing change the board; `write`
turns the changes into a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from argosy.cluster.view import Context, View
from argosy.mechanism.plan import Plan

WHOLE = 1000  # thousandths of a device
SLACK = 1e-7  # for sums of CPUs and memory


class Seat(NamedTuple):
    """What a job has: devices (bit set) by node, parameter servers by node."""

    devices: dict[int, int]
    servers: dict[int, int]


class Board:
    """The jobs and nodes of one view.

    `turns` are the slots of jobs that take turns and `pairs` packed jobs, by row. `known` spares looking up where jobs
    are, by index: the seats that the last decision gave them, which nobody else changes while they run.
    """

    def __init__(
        self, view: View, context: Context, turns: Mapping[int, tuple[int, int]], pairs: Mapping[int, int],
        known: Mapping[int, Seat],
    ) -> None:  # fmt: skip
        jobs, nodes = view.jobs, view.nodes
        self.pairs = dict(pairs)
        self.gpus, self.state, self.queue = jobs.gpus.tolist(), jobs.state.tolist(), jobs.queue.tolist()
        self.index, self.types, self.ps = jobs.index.tolist(), jobs.types.tolist(), jobs.ps.tolist()
        self.waited_s = jobs.waiting_s.tolist()
        self.size = [int(g) if g >= 1 else int(g > 0) for g in self.gpus]
        self.plain = [g >= 1 and not ps for g, ps in zip(self.gpus, self.ps)]
        self.cpu_unit = [c / max(g, 1.0) for c, g in zip(jobs.cpus.tolist(), self.gpus)]
        self.memory_unit = [m / max(g, 1.0) for m, g in zip(jobs.memory_gib.tolist(), self.gpus)]
        self.node_gpus, self.node_type = nodes.gpus.tolist(), nodes.type.tolist()
        self.open, self.owner = (nodes.state == 0).tolist(), nodes.owner.tolist()
        self.cpus, self.memory = nodes.cpus.tolist(), nodes.memory_gib.tolist()  # left if all who may run at once do
        self.free = [(1 << n) - 1 for n in self.node_gpus]  # devices that nobody sits on
        self.slots: list[dict[int, list[int]]] = [{} for _ in self.node_gpus]  # devices → sitters
        self.asked: list[dict[int, float]] = [{} for _ in self.node_gpus]  # size of a job → GPUs for such jobs
        self._affinity: dict[int, int] = {}  # as far as it has been looked up since the last change
        self.shares: dict[tuple[int, int], int] = {}  # (node, device) → thousandths left of a shared one
        self.limit = context.queue_limits.tolist()
        self.used = [0.0] * len(self.limit)  # GPUs that the sitters of a queue can come to hold
        self.seats: dict[int, Seat] = {}
        self.changed: set[int] = set()
        self._reserved: dict[tuple[int, int], tuple[float, float]] = {}  # CPUs, memory of a slot
        self._reformed: set[tuple[int, int]] = set()  # slots whose turns must be arranged anew
        self._undone: set[tuple[int, int]] = set()  # slots of former pairs, which make way only at the plan's end
        self._open_to: dict[tuple[int, int], list[int]] = {}
        self._vacant: set[int] = set()  # open nodes with free devices
        self._fill(view, turns, known)

    def _fill(self, view: View, turns: Mapping[int, tuple[int, int]], known: Mapping[int, Seat]) -> None:
        """Seat all who are somewhere; slots are reckoned up once, when they are complete."""
        for row, state in enumerate(self.state):
            if state == 1 and self.plain[row]:
                seat = known.get(self.index[row]) or Seat({p.node: p.devices for p in view.placement(row)}, {})
            elif state == 2 and row in turns:
                seat = Seat(dict((turns[row],)), {})
            else:
                if state == 1:
                    parts = view.placement(row)
                    servers = {p.node: p.servers for p in parts if p.servers}
                    self._enter(row, Seat({p.node: p.devices for p in parts if p.devices or not servers}, servers))
                continue
            self.seats[row] = seat
            for node, devices in seat.devices.items():
                self.slots[node].setdefault(devices, []).append(row)
        for node, slots in enumerate(self.slots):
            asked = self.asked[node]
            for devices, rows in slots.items():
                if (node, devices) in self._reserved:  # it has a job with servers, which is booked already
                    continue
                count = devices.bit_count()
                self.free[node] &= ~devices
                self._reserve(node, devices)
                for row in rows:
                    size = self.size[row]
                    asked[size] = asked.get(size, 0.0) + (size if size < count else count)
                for queue in {self.queue[row] for row in rows} if len(rows) > 1 else (self.queue[rows[0]],):
                    self.used[queue] += count
        self._vacant = {node for node, free in enumerate(self.free) if free and self.open[node]}

    # -- questions ---------------------------------------------------------------------------------------------

    def open_to(self, row: int, *, any_type: bool = False) -> list[int]:
        """Nodes where a job may be started: up, not reserved for others, of a GPU type that it accepts."""
        types, queue = self.types[row] if self.size[row] and not any_type else -1, self.queue[row]
        found = self._open_to.get((types, queue))
        if found is None:
            found = self._open_to[types, queue] = [
                node for node, is_open in enumerate(self.open)
                if is_open and self.owner[node] in (-1, queue)
                and (types == -1 or self.node_gpus[node] == 0 or types >> self.node_type[node] & 1)
            ]  # fmt: skip
        return found

    def has_room(self, row: int, node: int, units: int) -> bool:
        """CPUs and memory for so many GPUs and servers of a job."""
        return self.suffice(row, units, self.cpus[node], self.memory[node])

    def suffice(self, row: int, units: int, cpus: float, memory_gib: float) -> bool:
        """Are so many CPUs and so much memory enough for so many GPUs and servers of a job?"""
        enough_cpus = cpus >= units * self.cpu_unit[row] - SLACK
        return bool(enough_cpus and memory_gib >= units * self.memory_unit[row] - SLACK)

    def may_hold(self, row: int, more: float) -> bool:
        """Does the limit of its queue allow the job so many more GPUs?"""
        queue = self.queue[row]
        return bool(self.used[queue] + more <= self.limit[queue] + 1e-9)

    def has_free_gpus(self) -> bool:
        return bool(self._vacant)

    def load(self, node: int) -> float:
        """GPUs asked for per GPU; rounded up it is the node's height."""
        return float(sum(self.asked[node].values()) / max(self.node_gpus[node], 1))

    def affinity(self, node: int) -> int:
        """The size of job that most of its GPUs are asked for by (ties: the smaller one); 0 if it has no jobs."""
        found = self._affinity.get(node)
        if found is None:
            asked = self.asked[node]
            sizes = [size for size in sorted(asked) if asked[size] > SLACK]
            found = self._affinity[node] = max(sizes, key=asked.__getitem__, default=0)
        return found

    def slot_of(self, row: int) -> tuple[int, int] | None:
        """Node and devices of a whole-GPU job on one node."""
        seat = self.seats.get(row)
        if seat is None or not self.plain[row] or len(seat.devices) != 1:
            return None
        return next(iter(seat.devices.items()))

    def mates(self, row: int) -> list[int]:
        """The sitters of its slot, itself among them."""
        slot = self.slot_of(row)
        return [row] if slot is None else self.slots[slot[0]][slot[1]]

    def shared_slots(self) -> list[tuple[int, int]]:
        """Slots whose sitters take turns, the most crowded first."""
        found = [
            (-len(rows), node, devices) for node, slots in enumerate(self.slots) for devices, rows in slots.items()
            if len(rows) > 1 and rows[0] not in self.pairs
        ]  # fmt: skip
        return [(node, devices) for _, node, devices in sorted(found)]

    # -- changes -----------------------------------------------------------------------------------------------

    def sit(self, row: int, seat: Seat) -> None:
        self._enter(row, seat)
        self.changed.add(row)

    def share_turns(self, row: int, node: int, devices: int) -> None:
        """Let a job take turns with the sitters of a slot."""
        self.sit(row, Seat({node: devices}, {}))
        self._reformed.add((node, devices))

    def pack(self, guest: int, host: int) -> None:
        slot = self.slot_of(host)
        assert slot is not None  # only such jobs are hosts
        if guest in self.seats:
            self.lift(guest)
        self.pairs[guest], self.pairs[host] = host, guest
        self.sit(guest, Seat(dict((slot,)), {}))

    def take_turns_instead(self, guest: int, host: int) -> None:
        """Undo a packing."""
        del self.pairs[guest], self.pairs[host]
        slot = self.slot_of(host)
        assert slot is not None  # as above
        self._undone.add(slot)
        self._reformed.add(slot)

    def lift(self, row: int) -> Seat:
        """Take a job off; the partner of a packed one has its GPUs for itself."""
        seat = self.seats.pop(row)
        self.pairs.pop(self.pairs.pop(row, -1), None)
        self.changed.add(row)
        self._book(row, seat, -1)
        return seat

    def _enter(self, row: int, seat: Seat) -> None:
        self.seats[row] = seat
        self._book(row, seat, 1)

    def _book(self, row: int, seat: Seat, sign: int) -> None:
        for node, count in seat.servers.items():
            self.cpus[node] -= sign * count * self.cpu_unit[row]
            self.memory[node] -= sign * count * self.memory_unit[row]
        for node, devices in seat.devices.items():
            if self.gpus[row] >= 1:
                self._book_slot(row, node, devices, sign)
            else:
                self._book_share(row, node, devices, sign)
            self._ask(row, node, devices, sign)

    def _ask(self, row: int, node: int, devices: int, sign: int) -> None:
        asked, size = self.asked[node], self.size[row]
        asked[size] = asked.get(size, 0.0) + sign * min(self.gpus[row], devices.bit_count())
        self._affinity.pop(node, None)

    def _book_slot(self, row: int, node: int, devices: int, sign: int) -> None:
        slot = self.slots[node].setdefault(devices, [])
        if sign < 0:
            slot.remove(row)
        if self.queue[row] not in [self.queue[other] for other in slot]:
            self.used[self.queue[row]] += sign * devices.bit_count()
        if sign > 0:
            slot.append(row)
        self._set_free(node, self.free[node] & ~devices if slot else self.free[node] | devices)
        self._reserve(node, devices)
        if not slot:
            del self.slots[node][devices]

    def _book_share(self, row: int, node: int, devices: int, sign: int) -> None:
        """A share of a device, or a job without GPUs."""
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
        """Set aside what the sitters of a slot need: the most demanding one, or both of a pair."""
        rows, units = self.slots[node][devices], devices.bit_count()
        if len(rows) == 1:
            cpus, memory = units * self.cpu_unit[rows[0]], units * self.memory_unit[rows[0]]
        else:
            together = sum if rows and (rows[0] in self.pairs or (node, devices) in self._undone) else max
            cpus = units * together([0.0, *(self.cpu_unit[row] for row in rows)])
            memory = units * together([0.0, *(self.memory_unit[row] for row in rows)])
        before = self._reserved.get((node, devices), (0.0, 0.0))
        self._reserved[node, devices] = (cpus, memory)
        self.cpus[node] -= cpus - before[0]
        self.memory[node] -= memory - before[1]

    # -- the plan ----------------------------------------------------------------------------------------------

    def write(self, plan: Plan, quantum_s: float) -> None:
        """Everything that has changed."""
        turns = [slot for slot in sorted(self._reformed) if len(self.slots[slot[0]].get(slot[1], ())) > 1]
        arranged = {row for node, devices in turns for row in self.slots[node][devices]}
        for row in sorted(self.changed | arranged):
            if row not in self.seats:
                plan.stop(row)
            elif row in self.pairs:
                plan.stop(row)
                plan.pack(row, self.pairs[row])
            else:
                seat = self.seats[row]
                gpus = {node: devices.bit_count() for node, devices in seat.devices.items()}
                plan.run(row, gpus, seat.servers, {node: d for node, d in seat.devices.items() if d})
        for node, devices in turns:
            # whoever has waited longest comes first; who runs now has had his turn
            order = sorted(
                self.slots[node][devices],
                key=lambda row: (self.state[row] == 1, self.state[row] == 0, -self.waited_s[row], self.index[row]),
            )
            plan.slice(order, quantum_s)
