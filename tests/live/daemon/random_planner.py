"""A planner for tests of the daemon: keeps the contract of the real one, and decides at random.

It starts, preempts, resizes, moves, packs and pauses as the dice fall, never giving a device out twice. With `calm` it
only starts jobs, first come, first served.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from argosy.cluster.cluster import Cluster
from argosy.live.backends.base import Part, Placement
from argosy.live.planner.messages import Active, Decision, JobFacts, Snapshot, Told, Update

Device = tuple[str, int]


class RandomPlanner:
    def __init__(self, cluster: Cluster, seed: int = 0, calm: bool = False, again_s: float = 0.05) -> None:
        self.snapshot: Callable[[], Snapshot] = Snapshot
        self.started = False
        self.devices: list[Device] = [(n.name, d) for n in cluster.nodes for d in range(n.gpus)]
        self.dice, self.calm, self.again_s = random.Random(seed), calm, again_s
        self.jobs: dict[int, JobFacts] = {}
        self.placements: dict[int, Placement] = {}
        self.closed: set[str] = set()
        self.fails_with: Exception | None = None
        self.updates: list[Update] = []
        self.snapshots: list[Snapshot] = []

    def attach(self, snapshot: Callable[[], Snapshot]) -> RandomPlanner:
        """Install this planner in a daemon."""
        self.snapshot, self.started = snapshot, False
        return self

    def _begin(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.jobs, self.placements = {}, {}
        self.closed = {name for name, state in snapshot.nodes.items() if state != "up"}
        for job in snapshot.jobs:
            self._arrive(job)

    def _arrive(self, job: Active) -> None:
        assert job.facts.id not in self.jobs, "told twice"
        self.jobs[job.facts.id] = job.facts
        if job.parts:
            self.placements[job.facts.id] = Placement(job.parts, job.paused)

    async def plan(self, update: Update) -> Decision:
        if self.fails_with is not None:
            self.started = False
            raise self.fails_with
        if not self.started:
            self._begin(self.snapshot())
            self.started, update = True, Update(update.now_s)
        self.updates.append(update)
        for number in update.ended:
            del self.jobs[number]
            self.placements.pop(number, None)
        for number in update.stopped:
            self.placements.pop(number, None)
        for job in update.arrived:
            self._arrive(job)
        for number, most in update.most_gpus.items():
            self.jobs[number] = replace(self.jobs[number], max_gpus=most)
        for name, state in update.nodes.items():
            self.closed = self.closed | {name} if state != "up" else self.closed - {name}
            if state == "down":
                self.placements = {
                    n: p for n, p in self.placements.items() if all(part.node != name for part in p.parts)
                }
        if not self.calm:
            self._stir()
        self._go_on()
        self._start()
        return Decision(update.now_s, dict(self.placements), update.now_s + self.again_s)

    async def why(self, jobs: Sequence[int]) -> Mapping[int, Told]:
        return {number: Told("dice", "the dice did not fall for it", "none") for number in jobs}

    async def close(self) -> None:
        pass

    def _start(self) -> None:
        for number, facts in sorted(self.jobs.items()):
            if number in self.placements or (not self.calm and self.dice.random() < 0.2):
                continue
            parts = self._fit(facts)
            if parts is not None:
                self.placements[number] = Placement(parts)

    def _fit(self, facts: JobFacts) -> tuple[Part, ...] | None:
        free = self._free()
        if facts.gpus < 1:
            return () if facts.gpus == 0 else self._share(round(facts.gpus * 1000))
        low, high = int(facts.min_gpus or facts.gpus), int(facts.max_gpus or facts.gpus)
        most = min(high, len(free))
        if most < low:
            return None
        count = low if self.calm else self.dice.randint(low, most)
        return _parts(free[:count] if self.calm else self.dice.sample(free, count))

    def _share(self, milli: int) -> tuple[Part, ...] | None:
        used = self._used()
        for node, device in self.devices:
            if node not in self.closed and used.get((node, device), 0) + milli <= 1000:
                return (Part(node, (device,), milli),)
        return None

    def _stir(self) -> None:
        for number, placement in list(self.placements.items()):
            throw = self.dice.random()
            if throw < 0.05:
                del self.placements[number]
            elif throw < 0.15 and self.jobs[number].gpus >= 1:  # another size or place
                del self.placements[number]
                parts = self._fit(self.jobs[number])
                self.placements[number] = Placement(parts) if parts and not placement.paused else placement
            elif throw < 0.2 and not placement.paused and placement.parts:
                self.placements[number] = Placement(placement.parts, paused=True)

    def _go_on(self) -> None:
        for number, placement in list(self.placements.items()):
            if placement.paused and (self.calm or self.dice.random() < 0.5) and not self._overlaps(number, placement):
                self.placements[number] = Placement(placement.parts)

    def _overlaps(self, number: int, placement: Placement) -> bool:
        used = self._used(number)
        return any(used.get((p.node, d), 0) + p.milli > 1000 for p in placement.parts for d in p.devices)

    def _used(self, without: int = -1) -> dict[Device, int]:
        used: dict[Device, int] = {}
        for number, placement in self.placements.items():
            if number != without and not placement.paused:
                for part in placement.parts:
                    for device in part.devices:
                        used[part.node, device] = used.get((part.node, device), 0) + part.milli
        return used

    def _free(self) -> list[Device]:
        used = self._used()
        return [place for place in self.devices if place not in used and place[0] not in self.closed]


def _parts(places: list[Device]) -> tuple[Part, ...]:
    by_node: dict[str, list[int]] = {}
    for node, device in sorted(places):
        by_node.setdefault(node, []).append(device)
    return tuple(Part(node, tuple(devices)) for node, devices in by_node.items())
