"""An independent auditor: it replays an event log in plain Python and lists what cannot be true.

It shares no code with the engine. What several events do at one instant is judged when the instant is over, because
a plan lifts all it moves before it puts anything down.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from argosy.cluster.cluster import Cluster
from argosy.mechanism.kernels import layout as L
from argosy.perf import gpus as gpu_types
from argosy.perf.rigid import default_slowdowns
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine
from argosy.sim.result import CLOSING, OPENING, EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

K = EventKind
ENDS = {K.FINISH: "completed", K.FAIL: "failed", K.KILL: "killed", K.CANCEL: "cancelled", K.REFUSE: "refused"}
WAITS_AGAIN = (K.PREEMPT, K.PAUSE, K.EVICT, K.CRASH)
NEAR = 1e-6
Part = tuple[int, int, int]  # node, devices (bit set), thousandths


@dataclass
class Life:
    """The history of one job, from the log."""

    state: str = "unknown"
    parts: tuple[Part, ...] = ()
    since: float = 0.0
    ready: float = 0.0  # when the overhead of the last change is over
    held_gpu_s: float = 0.0
    work_s: float = 0.0  # at the rigid model's speeds
    first_start_s: float | None = None
    end: tuple[float, str] | None = None
    packed: bool = False  # it shared its devices with another job at some time
    counts: dict[EventKind, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def held(self) -> float:
        return sum(devices.bit_count() * milli for _, devices, milli in self.parts) / 1000


class Audit:
    """Replays one result. `problems` stays empty for an honest engine."""

    def __init__(
        self, result: Result, trace: Trace, settings: Settings, cancels: Mapping[str, float] | None = None
    ) -> None:
        self.result, self.settings, self.cluster = result, settings, result.cluster
        self.jobs = trace.frame.to_dicts()
        self.cancels = cancels or {}
        self.problems: list[str] = []
        self.lives = [Life() for _ in self.jobs]
        self.down: set[int] = set()
        self.now = 0.0
        with_gpus = [n for n in self.cluster.nodes if n.gpus]
        self.cpus_per_gpu = min((n.cpus / n.gpus for n in with_gpus), default=0.0)
        self.memory_per_gpu = min((n.memory_gib / n.gpus for n in with_gpus), default=0.0)
        self.speed = RigidSpeed(self.cluster, settings.locality)
        self.calm = settings.node_mtbf_h is None and settings.job_mtbf_h is None and not settings.drifting

    def say(self, problem: str) -> None:
        self.problems.append(f"t={self.now:g}: {problem}")

    def run(self) -> list[str]:
        events = self.result.events.to_dicts()
        i = 0
        while i < len(events):
            first = events[i]
            rows = [first]
            while i + len(rows) < len(events) and events[i + len(rows)]["seq"] == first["seq"]:
                rows.append(events[i + len(rows)])
            i += len(rows)
            if first["t"] < self.now:
                self.say(f"time goes back to {first['t']:g}")
            if first["t"] > self.now:
                self.check_instant()
            self.now = first["t"]
            self.take(K(first["kind"]), rows)
        self.check_instant()
        if self.now > self.settings.until_s:
            self.say(f"something happens after until_s = {self.settings.until_s:g}")
        if self.result.end_s < self.now:
            self.say(f"the run ended at {self.result.end_s:g}, before its last event")
        self.now = self.result.end_s
        for job in range(len(self.jobs)):
            self.check_end(job)
        return self.problems

    # -- events --------------------------------------------------------------------------------------------------

    def take(self, kind: EventKind, rows: list[dict[str, Any]]) -> None:
        job, node = rows[0]["job"], rows[0]["node"]
        if any(row["info"] < 0 for row in rows if kind in OPENING):
            self.say(f"job {job}: a negative overhead")
        if any(row["kind"] != kind or row["job"] != job or row["t"] != self.now for row in rows):
            self.say(f"rows of one seq differ in kind, job or time: {rows}")
        if kind is K.NODE_DOWN:
            self.down.add(node)
        elif kind is K.NODE_UP:
            self.down.discard(node)
        elif kind in OPENING:
            self.open(kind, job, self.parts(job, rows), rows[0]["info"])
        elif kind in CLOSING:
            self.close(kind, job)
        elif kind is K.SUBMIT:
            self.expect(job, kind, "unknown")
            self.lives[job].state = "waiting"
            if self.now != self.jobs[job]["submit_s"]:
                self.say(f"job {job} is submitted at {self.now:g}, not at {self.jobs[job]['submit_s']:g}")
        elif kind is K.REFUSE:
            self.expect(job, kind, "waiting")
            self.lives[job].state, self.lives[job].end = "ended", (self.now, "refused")

    def parts(self, job: int, rows: list[dict[str, Any]]) -> tuple[Part, ...]:
        """Return what a job has on each node; a row has 48 devices."""
        masks, firsts, shares = defaultdict[int, int](int), set(), defaultdict[int, set[int]](set)
        for row in rows:
            node, first = row["node"], row["first"]
            if (node, first) in firsts or first % 48 or row["devices"] >> 48:
                self.say(f"job {job}: rows of node {node} overlap or are out of range: {rows}")
            firsts.add((node, first))
            masks[node] |= row["devices"] << first
            shares[node].add(row["milli"])
        if any(len(millis) > 1 for millis in shares.values()):
            self.say(f"job {job} has different shares of devices on one node: {rows}")
        return tuple((node, mask, max(shares[node])) for node, mask in masks.items())

    def expect(self, job: int, kind: EventKind, *states: str) -> None:
        if self.lives[job].state not in states:
            self.say(f"job {job}: {kind.name} while {self.lives[job].state}")

    def settle(self, job: int) -> None:
        life = self.lives[job]
        life.held_gpu_s += life.held * (self.now - life.since)
        worked = max(self.now - max(life.since, life.ready), 0.0)
        life.work_s += worked * self.speed.of(self.jobs[job], life.parts)
        life.since = self.now

    def open(self, kind: EventKind, job: int, parts: tuple[Part, ...], overhead_s: float) -> None:
        life = self.lives[job]
        life.counts[kind] += 1
        self.settle(job)
        if kind is K.START:
            self.expect(job, kind, "waiting")
            if life.first_start_s is not None:
                self.say(f"job {job} starts twice")
            life.first_start_s = self.now
        elif kind is K.RESUME and life.state == "running":  # a partner came or went: same devices, another share
            if {(n, d) for n, d, _ in life.parts} != {(n, d) for n, d, _ in parts} or overhead_s:
                self.say(f"job {job} resumes while it runs, from {life.parts} to {parts}")
        elif kind is K.RESUME:
            self.expect(job, kind, "waiting")
            if life.first_start_s is None:
                self.say(f"job {job} resumes before it ever started")
        else:
            self.expect(job, kind, "running")
            before, after = (sum(d.bit_count() for _, d, _ in p) for p in (life.parts, parts))
            if kind is K.MIGRATE and before != after:
                self.say(f"job {job} changes its size in a migration: {life.parts} to {parts}")
        if not (kind is K.RESUME and life.state == "running"):
            life.ready = self.now + overhead_s
        life.state, life.parts, life.since = "running", parts, self.now
        life.packed |= self.jobs[job]["gpus"] >= 1 and any(mask and milli < 1000 for _, mask, milli in parts)

    def close(self, kind: EventKind, job: int) -> None:
        life = self.lives[job]
        life.counts[kind] += 1
        if kind is K.CANCEL:
            self.expect(job, kind, "waiting", "running")
        else:
            self.expect(job, kind, "running")
        self.settle(job)
        life.parts = ()
        life.state = "waiting" if kind in WAITS_AGAIN else "ended"
        if kind in ENDS:
            life.end = (self.now, ENDS[kind])

    # -- an instant ----------------------------------------------------------------------------------------------

    def check_instant(self) -> None:
        """Check what jobs hold between two times, and whether they may."""
        running = [(job, life) for job, life in enumerate(self.lives) if life.state == "running"]
        devices: dict[tuple[int, int], int] = defaultdict(int)
        cpus: dict[int, float] = defaultdict(float)
        memory: dict[int, float] = defaultdict(float)
        queues: dict[str, float] = defaultdict(float)
        for job, life in running:
            self.check_gang(job, life.parts)
            row = self.jobs[job]
            queues[row["queue"] or "default"] += life.held
            asked = row["gpus"]
            cpu = row["cpus"] if row["cpus"] is not None else asked * self.cpus_per_gpu
            mem = row["memory_gib"] if row["memory_gib"] is not None else asked * self.memory_per_gpu
            for node, mask, milli in life.parts:
                self.check_node(job, node, mask)
                units = mask.bit_count() / asked if asked >= 1 else 1.0  # servers are not in the log: a lower bound
                cpus[node] += cpu * units
                memory[node] += mem * units
                for device in range(mask.bit_length()):
                    devices[node, device] += milli * (mask >> device & 1)
        for (node, device), milli in devices.items():
            if milli > 1000:
                self.say(f"device {device} of node {node} holds {milli} thousandths")
        for node, n in enumerate(self.cluster.nodes):
            if cpus[node] > n.cpus + 1e-5 or memory[node] > n.memory_gib + 1e-5:
                held = f"{cpus[node]:g} of {n.cpus:g} CPUs, {memory[node]:g} of {n.memory_gib:g} GiB"
                self.say(f"node {node} holds {held}")
        for queue in self.cluster.queues:
            if queue.limit_gpus is not None and queues[queue.name] > queue.limit_gpus + NEAR:
                self.say(f"queue {queue.name} holds {queues[queue.name]:g} GPUs, its limit is {queue.limit_gpus:g}")
        for job, row in enumerate(self.jobs):
            at = self.cancels.get(row["job_id"])
            if at is not None and row["submit_s"] <= at <= self.now and self.lives[job].state in ("waiting", "running"):
                self.say(f"job {job} was cancelled at {at:g} and is still {self.lives[job].state}")

    def check_gang(self, job: int, parts: tuple[Part, ...]) -> None:
        row = self.jobs[job]
        asked, count = row["gpus"], sum(mask.bit_count() for _, mask, _ in parts)
        shares = {milli for _, mask, milli in parts if mask}
        if asked == 0:
            fine = count == 0 and len(parts) == 1
        elif asked < 1:
            fine = count == 1 and len(parts) == 1 and shares in ({round(asked * 1000)}, {1000})
        else:
            least, most = row["min_gpus"] or asked, row["max_gpus"] or asked
            fine = least <= count <= most + (row["spare_gpus"] or 0) and shares <= {1000, 500} and len(shares) == 1
        if not fine:
            self.say(f"job {job} asked for {asked:g} GPUs ({row['min_gpus']}..{row['max_gpus']}) and holds {parts}")

    def check_node(self, job: int, node: int, mask: int) -> None:
        row, n = self.jobs[job], self.cluster.nodes[node]
        if node in self.down:
            self.say(f"job {job} runs on node {node}, which is down")
        if mask >> n.gpus:
            self.say(f"job {job} holds devices {mask:b} of node {node}, which has {n.gpus}")
        accepted = [t.strip().lower() for t in (row["gpu_type"] or "").split("|") if t.strip()]
        if mask and accepted and n.gpu_type.lower() not in accepted:
            self.say(f"job {job} accepts {accepted} and runs on {n.gpu_type}")
        for r in self.cluster.reservations:
            if n.name in r.nodes and r.start_s <= self.now < r.end_s and (row["queue"] or "default") != r.queue:
                self.say(f"job {job} runs on node {node}, which is reserved for {r.queue}")

    # -- the end -------------------------------------------------------------------------------------------------

    def check_end(self, job: int) -> None:
        life, row = self.lives[job], self.result.jobs.row(job, named=True)
        if life.state == "running":
            self.settle(job)
        said = life.end[1] if life.end else "unfinished"
        if row["status"] != said:
            self.say(f"job {job} is {row['status']} in the table and {said} in the log")
        if life.state == "unknown" and row["submit_s"] <= min(self.result.end_s, self.settings.until_s):
            self.say(f"job {job} was never submitted")
        finish = life.end[0] if life.end and life.end[1] != "refused" else None
        if row["finish_s"] != finish or row["first_start_s"] != life.first_start_s:
            table = f"{row['first_start_s']}..{row['finish_s']}"
            self.say(f"job {job}: the log says {life.first_start_s}..{finish}, the table {table}")
        parts = [row[f"{name}_gpu_s"] for name in ("useful", "overhead", "interference", "lost")]
        held = row["held_gpu_s"]
        if not near(sum(parts), held):
            self.say(f"job {job}: {held} GPU-s held are not the sum of {parts}")
        if not near(held, life.held_gpu_s):
            self.say(f"job {job}: the log holds {life.held_gpu_s} GPU-s, the table {held}")
        if row["overhead_gpu_s"] < 0 or row["lost_gpu_s"] < -NEAR or row["useful_gpu_s"] < -NEAR:
            self.say(f"job {job}: negative accounts {parts}")
        for kinds, name in (((K.MIGRATE,), "migrations"), ((K.RESIZE, K.GROW), "resizes")):
            logged = sum(life.counts[kind] for kind in kinds)
            if logged != row[name]:
                self.say(f"job {job}: {logged} {name} in the log, {row[name]} in the table")
        if life.counts[K.PREEMPT] > row["preemptions"] or life.counts[K.CRASH] > row["faults"]:
            self.say(f"job {job}: preemptions or faults are missing from the table")
        self.check_work(job, life, row)

    def check_work(self, job: int, life: Life, row: dict[str, Any]) -> None:
        """Check that a completed job did exactly its work (where this auditor knows the speeds)."""
        asked = self.jobs[job]
        known = self.settings.perf == "rigid" and self.calm and not life.packed
        if not known or life.end is None or life.end[1] in ("cancelled", "refused"):
            return
        if not near(life.work_s, asked["duration_s"]):
            self.say(f"job {job} did {life.work_s} s of its {asked['duration_s']} s of work")
        if self.settings.overheads == "none" and row["overhead_gpu_s"] > NEAR:
            self.say(f"job {job} pays {row['overhead_gpu_s']} GPU-s of overhead where there is none")


class RigidSpeed:
    """A second implementation of the rigid model: GPUs × type × locality, relative to the request."""

    def __init__(
        self, cluster: Cluster, locality: bool, slowdown: Callable[[], tuple[float, ...]] = default_slowdowns
    ) -> None:
        self.nodes, self.types = cluster.nodes, cluster.gpu_types or ("gpu",)
        self.slowdown, self.locality = slowdown(), locality

    def of(self, job: dict[str, Any], parts: tuple[Part, ...]) -> float:
        with_gpus = [(node, mask) for node, mask, _ in parts if mask]
        if not parts or not with_gpus:
            return 1.0 if parts else 0.0
        most = (job["max_gpus"] or job["gpus"]) if job["spare_gpus"] else math.inf  # spare GPUs make it no faster
        counts = list(accumulate(mask.bit_count() for _, mask in with_gpus))
        with_gpus = [part for part, before in zip(with_gpus, [0, *counts]) if before < most]
        count = min(counts[-1], most)
        slowest = min(gpu_types.speed(self.nodes[node].gpu_type) for node, _ in with_gpus)
        k, own = max(job["gpus"], 1.0), self.reference_type(job["gpu_type"])
        reference = k * gpu_types.speed(own) * self.at(self.reference_level(own, k), k)
        here = self.level(with_gpus)
        if not self.locality:  # as if consolidated
            here = self.reference_level(self.nodes[with_gpus[0][0]].gpu_type, count)
        return float(count * slowest * self.at(here, count) / reference)

    def at(self, level: int, count: float) -> float:
        return self.slowdown[level] if count > 1 else 1.0

    def reference_type(self, named: str | None) -> str:
        return next((t for t in self.types if named and t.lower() == named.lower()), self.types[0])

    def level(self, parts: list[tuple[int, int]]) -> int:
        if len(parts) > 1:
            return 2 if len({self.nodes[node].rack for node, _ in parts}) == 1 else 3
        node, mask = parts[0]
        first = 0
        for size in self.nodes[node].islands:
            if mask & ~(((1 << size) - 1) << first) == 0:
                return 0
            first += size
        return 1 if self.nodes[node].islands else 0

    def reference_level(self, gpu_type: str, k: float) -> int:
        own = [n for n in self.nodes if n.gpus and n.gpu_type == gpu_type]
        racks: dict[str, int] = defaultdict(int)
        for n in own:
            racks[n.rack] += n.gpus
        rooms = (
            max((max(n.islands, default=n.gpus) for n in own), default=0),
            max((n.gpus for n in own), default=0),
            max(racks.values(), default=0),
        )
        return next((level for level, room in enumerate(rooms) if k <= room), 3)


def near(a: float, b: float) -> bool:
    return abs(a - b) <= NEAR * max(1.0, abs(a), abs(b))


def audit(result: Result, trace: Trace, settings: Settings, cancels: Mapping[str, float] | None = None) -> list[str]:
    """Return everything in this result that cannot be true."""
    return Audit(result, trace, settings, cancels).run()


def books(engine: Engine) -> list[str]:
    """Return where the kernels' running totals differ from the sums of the placements.

    The log does not tell where parameter servers are; this does, so their CPUs and memory are checked here.
    """
    w, cluster, problems = engine.world, engine.cluster, []
    free = [[1000] * node.gpus for node in cluster.nodes]
    cpus = [node.cpus for node in cluster.nodes]
    memory = [node.memory_gib for node in cluster.nodes]
    held = [0.0] * len(engine.names.queues)
    active = int(w.si[L.ACTIVE])
    for row in range(active):
        gpus, units = w.jf[L.GPUS, row], 0
        parts = engine.parts_of(row)
        running = w.ji[L.STATE, row] == L.RUNNING
        if running != bool(parts):
            problems.append(f"slot {row}: state {w.ji[L.STATE, row]} with {parts}")
        for part in parts:
            for device in range(part.devices.bit_length()):
                free[part.node][device] -= part.milli * (part.devices >> device & 1)
            units = part.devices.bit_count() + part.servers if gpus >= 1 else 1
            cpus[part.node] -= units * w.jf[L.CPU_UNIT, row]
            memory[part.node] -= units * w.jf[L.MEM_UNIT, row]
            held[w.ji[L.QUEUE, row]] += part.devices.bit_count() * part.milli / 1000
        servers = sum(part.servers for part in parts)
        if running and gpus >= 1 and w.ji[L.PEER, row] < 0 and bool(servers) != bool(w.ji[L.WANT_PS_ASKED, row]):
            problems.append(f"slot {row}: asked for {w.ji[L.WANT_PS_ASKED, row]} servers and has {servers}")
    for n, node in enumerate(cluster.nodes):
        whole = sum(1 << d for d, left in enumerate(free[n]) if left == 1000)
        shared = sum(1 << d for d, left in enumerate(free[n]) if left < 1000)
        told = w.ni[L.DEVICE0 : L.DEVICE0 + node.gpus, n].tolist()
        if told != free[n] or min(told, default=0) < 0:
            problems.append(f"node {n}: devices have {told} free, should have {free[n]}")
        rows = w.ni[L.DEVICE0 + 3 * w.si[L.DEVICES] :, n].tolist()
        told_whole, told_shared = (
            sum(bits << 48 * word for word, bits in enumerate(some))
            for some in (rows[: w.si[L.WORDS]], rows[w.si[L.WORDS] :])
        )
        if told_whole != whole or w.ni[L.N_FREE, n] != whole.bit_count():
            problems.append(f"node {n}: {w.ni[L.N_FREE, n]} free ({told_whole:b}), should be {whole:b}")
        if told_shared & ~shared:
            problems.append(f"node {n}: {told_shared:b} are shared, should be among {shared:b}")
        for name, row, left in (("CPUs", L.CPU_FREE, cpus[n]), ("GiB", L.MEM_FREE, memory[n])):
            if abs(w.nf[row, n] - left) > 1e-5 or left < -1e-5:
                problems.append(f"node {n}: {w.nf[row, n]:g} {name} free, should be {left:g}")
    up = w.ni[L.N_STATE] == L.NODE_UP
    if w.si[L.FREE_GPUS] != w.ni[L.N_FREE][up].sum():
        problems.append(f"{w.si[L.FREE_GPUS]} GPUs free, the open nodes have {w.ni[L.N_FREE][up].sum()}")
    if any(abs(a - b) > NEAR for a, b in zip(held, w.qu[L.Q_HELD])):
        problems.append(f"queues hold {w.qu[L.Q_HELD].tolist()}, should be {held}")
    if w.si[L.RUNNING_N] != sum(w.ji[L.STATE, :active] == L.RUNNING):
        problems.append(f"{w.si[L.RUNNING_N]} jobs are counted as running")
    return [f"t={engine.now:g}: {problem}" for problem in problems]


def simulate(
    jobs: Iterable[Job],
    cluster: Cluster,
    policy: Policy | str,
    settings: Settings,
    cancels: Mapping[str, float] | None = None,
) -> Result:
    """A small run, audited: hand-computed examples must keep the invariants, too."""
    trace = Trace.of_jobs(jobs)
    chosen = create(policy) if isinstance(policy, str) else policy
    result = Engine(trace, cluster, chosen, settings, cancels=cancels).run()
    problems = audit(result, trace, settings, cancels)
    assert not problems, problems
    return result


def ends(result: Result) -> dict[str, float]:
    """Return when each job finished."""
    return dict(zip(result.jobs["job_id"].to_list(), result.jobs["finish_s"].to_list()))
