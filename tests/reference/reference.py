"""A slow and simple simulator: whole seconds, plain lists, no short cuts. The engine is compared with it.

It knows gangs of whole GPUs (or of none) with CPUs and memory, on nodes of one GPU type, and policies that only order
jobs. A decision is one walk in the policy's order, as docs/design.md describes it under *The walk*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf


@dataclass
class Node:
    gpus: int
    cpus: int
    memory: int
    free: set[int]  # devices


@dataclass
class Job:
    number: int  # by submit time: breaks ties
    submit: int
    work: int
    gpus: int
    cpus: int  # of each GPU; of the whole job if it has none
    memory: int
    queue: str
    state: str = "to come"  # then waiting, running, ended
    place: dict[int, set[int]] = field(default_factory=dict)  # node: devices
    former: dict[int, set[int]] = field(default_factory=dict)  # where it ran until this very decision took it away
    left: int = 0
    attained: int = 0  # GPU-seconds, overheads included
    mark: int = 0  # until when both are known
    ready: int = 0  # when the overhead of its last start or move is over
    started: int = 0
    finish: int = -1
    preemptions: int = 0
    migrations: int = 0

    def units(self, devices: set[int]) -> int:
        """Return how many units of CPUs and memory the job needs beside these devices."""
        return len(devices) if self.gpus else 1


@dataclass
class Rules:
    key: Callable[[Job], int]
    preemptive: bool
    backfill: bool
    every: float  # asked again so long after a decision at which somebody waited
    strict: bool  # no more nodes than the empty cluster would need
    min_run: int
    max_preemptions: int
    overheads: dict[str, int]  # s: start, suspend, resume, migrate
    limits: dict[str, int]  # GPUs of a queue


class Reference:
    def __init__(self, nodes: list[Node], jobs: list[Job], rules: Rules) -> None:
        self.nodes, self.jobs, self.rules, self.now, self.wake = nodes, jobs, rules, 0, inf

    def run(self) -> None:
        while any(job.state != "ended" for job in self.jobs):
            ends = [max(job.mark, job.ready) + job.left for job in self.running()]
            self.now = int(min([*ends, *(job.submit for job in self.jobs if job.state == "to come"), self.wake]))
            self.wake = inf if self.wake <= self.now else self.wake
            for job in self.running():
                job.left -= max(0, self.now - max(job.mark, job.ready))
                job.attained += job.gpus * (self.now - job.mark)
                job.mark = self.now
                if job.left == 0 and job.ready <= self.now:
                    self.release(job, "ended")
                    job.finish = self.now
            for job in self.jobs:
                if job.state == "to come" and job.submit <= self.now:
                    job.state, job.left = "waiting", job.work
            self.decide()

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.state == "running"]

    def decide(self) -> None:
        rules = self.rules
        active = [job for job in self.jobs if job.state in ("waiting", "running")]
        order = sorted(active, key=lambda job: (rules.key(job), job.number))
        self.wake = self.now + rules.every if any(job.state == "waiting" for job in order) else inf
        self.may_reclaim = rules.preemptive
        for position, job in enumerate(order):
            if job.state == "running" or self.over_limit(job):
                continue
            if job.former and self.fits(job, job.former):
                self.occupy(job, job.former)
                continue
            place = self.choose(job, [])
            if not place and self.may_reclaim:
                place = self.reclaim(job, order[position + 1 :])
            if place:
                self.begin(job, place)
            elif not rules.backfill:
                break
        for job in (job for job in order if job.former):  # those that were taken and found no other place
            if self.fits(job, job.former) and not self.over_limit(job):
                self.occupy(job, job.former)
            else:
                job.former, job.preemptions = {}, job.preemptions + 1

    def over_limit(self, job: Job) -> bool:
        held = sum(other.gpus for other in self.running() if other.queue == job.queue)
        return held + job.gpus > self.rules.limits.get(job.queue, inf)

    def begin(self, job: Job, counts: dict[int, int]) -> None:
        cost = self.rules.overheads
        if job.former:
            overhead, job.migrations = cost["migrate"], job.migrations + 1
        else:
            overhead, job.started = cost["suspend"] + cost["resume"] if job.preemptions else cost["start"], self.now
        self.occupy(job, {n: set(sorted(self.nodes[n].free)[:count]) for n, count in counts.items()})
        job.mark, job.ready = self.now, self.now + overhead

    def occupy(self, job: Job, place: dict[int, set[int]]) -> None:
        job.place, job.state, job.former = place, "running", {}
        for n, devices in place.items():
            self.nodes[n].free -= devices
            self.nodes[n].cpus -= job.cpus * job.units(devices)
            self.nodes[n].memory -= job.memory * job.units(devices)

    def release(self, job: Job, state: str) -> None:
        for n, devices in job.place.items():
            self.nodes[n].free |= devices
            self.nodes[n].cpus += job.cpus * job.units(devices)
            self.nodes[n].memory += job.memory * job.units(devices)
        job.former, job.place, job.state = job.place if state == "waiting" else {}, {}, state

    def fits(self, job: Job, place: dict[int, set[int]]) -> bool:
        return all(self.nodes[n].free >= gpus and self.room(job, n, []) >= len(gpus) for n, gpus in place.items())

    def room(self, job: Job, n: int, lent: list[Job]) -> int:
        """Return how many of the job's GPUs fit on the node if these others left; -1 if not even its CPUs fit."""
        node, here, gpus = self.nodes[n], [other for other in lent if n in other.place], self.gpus(n, lent)
        cpus = node.cpus + sum(other.cpus * other.units(other.place[n]) for other in here)
        memory = node.memory + sum(other.memory * other.units(other.place[n]) for other in here)
        if job.gpus == 0:
            return 0 if cpus >= job.cpus and memory >= job.memory else -1
        return min(gpus, cpus // job.cpus if job.cpus else gpus, memory // job.memory if job.memory else gpus)

    def gpus(self, n: int, lent: list[Job]) -> int:
        return len(self.nodes[n].free) + sum(len(other.place.get(n, ())) for other in lent)

    def choose(self, job: Job, lent: list[Job]) -> dict[int, int]:
        """Choose one node: of those that hold it, the one with fewest free GPUs (with most, if others must leave)."""
        sign = -1 if lent and job.gpus else 1
        holding = [n for n in range(len(self.nodes)) if self.room(job, n, lent) >= job.gpus]
        if holding:
            return {min(holding, key=lambda n: (sign * len(self.nodes[n].free), n)): job.gpus}
        return {} if lent or job.gpus < 2 else self.spread(job, lent)

    def spread(self, job: Job, lent: list[Job]) -> dict[int, int]:
        """Choose several nodes: those with most room, and for the rest the one with least room that holds it."""
        rooms, largest = {n: self.room(job, n, lent) for n in range(len(self.nodes))}, max(n.gpus for n in self.nodes)
        place, rest = dict[int, int](), job.gpus
        while rest > 0 and max(rooms.values(), default=0) > 0:
            tight = [(self.gpus(n, lent), n) for n, room in rooms.items() if room >= rest]
            n = min(tight)[1] if tight else max(rooms, key=lambda n: (rooms[n], -n))
            place[n] = min(rooms.pop(n), rest)
            rest -= place[n]
        return {} if rest or (self.rules.strict and len(place) > -(-job.gpus // largest)) else place

    def reclaim(self, job: Job, behind: list[Job]) -> dict[int, int]:
        """Make room by taking running jobs behind it in the order, from the last one on, no more than needed."""
        together = self.rules.strict and job.gpus <= max(node.gpus for node in self.nodes)
        takeable = [j for j in reversed(behind) if j.state == "running" and j.preemptions < self.rules.max_preemptions]
        counts = [self.gpus(n, takeable) for n in range(len(self.nodes))]
        if (max(counts) if together else sum(counts)) < job.gpus:
            return {}
        young = (i for i, other in enumerate(takeable) if other.started + self.rules.min_run > self.now)
        old = next(young, len(takeable))
        for where in [self.choose] if job.gpus < 2 or together else [self.choose, self.spread]:
            for lent in (takeable[:m] for m in range(1, old + 1)):
                if place := where(job, lent):
                    return self.clear(job, place, lent)
        if old < len(takeable):  # a job that is too young bars the way for all, until it is old enough
            self.wake, self.may_reclaim = min(self.wake, takeable[old].started + self.rules.min_run), False
        return {}

    def clear(self, job: Job, place: dict[int, int], lent: list[Job]) -> dict[int, int]:
        """Remove the last-ranked jobs; then put back, best-ranked first, those that need not leave after all."""
        taken = []
        for other in lent:
            if any(self.room(job, n, []) < place[n] for n in other.place if n in place):
                self.release(other, "waiting")
                taken.append(other)
        for other in reversed(taken):
            self.occupy(other, other.former)
            if any(self.room(job, n, []) < count for n, count in place.items()):
                self.release(other, "waiting")
        return place
