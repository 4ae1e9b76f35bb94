"""Random clusters, jobs, faults and policies: the auditor finds no contradiction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from audit import audit, books
from hypothesis import HealthCheck, given, settings
from strategies import HORIZON_S, World, worlds

from argosy.cluster.view import Context, View
from argosy.mechanism.plan import Plan
from argosy.policies.base import POLICIES, Floats, Policy, Sizes, create
from argosy.seeding import stream
from argosy.sim.engine import Engine
from argosy.sim.result import Result

thorough = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


class RandomSizes(Policy):
    """A policy with random order and random legal sizes, asked again at random times."""

    name = "random sizes"
    uses = frozenset({"demand", "placement"})

    def __init__(self, preemptive: bool = True) -> None:
        self.preemptive = preemptive

    def reset(self, context: Context) -> None:
        self._random = stream(context.seed, "test.sizes")

    def rank(self, view: View) -> Floats:
        return self._random.random(len(view.jobs))

    def size(self, view: View) -> Sizes:
        jobs, random = view.jobs, self._random
        low, high = np.maximum(jobs.min_gpus, 1).astype(np.int64), np.maximum(jobs.max_gpus, 1).astype(np.int64)
        wanted = random.integers(low, high + 1)
        workers = np.where(random.random(len(jobs)) < 0.2, 0, wanted)
        servers = np.where(jobs.ps > 0, random.integers(1, np.maximum(jobs.ps, 1) + 1), 0)
        return Sizes(workers, servers)

    def wake_at(self, view: View) -> float | None:
        return view.now + float(self._random.integers(50, 1000))


class RandomPlan(Policy):
    """A policy with random legal plans; it keeps its own count of devices, CPUs and memory."""

    name = "random plan"
    uses = frozenset({"demand", "placement", "nodes", "service"})

    def __init__(self, limits: dict[str, float]) -> None:
        self._limit_of = limits

    def reset(self, context: Context) -> None:
        self._random = stream(context.seed, "test.plan")
        self._limits = [self._limit_of.get(name, np.inf) for name in context.queues]
        self._group_sizes: dict[int, int] = {}
        self._grouped: set[int] = set()  # indices of jobs that take turns
        self._packed: set[int] = set()
        self._groups = 0

    def chance(self, p: float) -> bool:
        return bool(self._random.random() < p)

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        keeps = self.chance(0.6)
        plan = Plan.keep(view) if keeps else Plan.fresh(view)
        alive = set(jobs.index.tolist())
        waiting = {int(i) for i in jobs.index[jobs.state == 0]}
        self._grouped = (self._grouped & alive) - waiting
        self._packed = (self._packed & alive) - waiting
        self._account(view)
        movers = []
        for row in range(len(jobs)):
            index, state = int(jobs.index[row]), int(jobs.state[row])
            free_agent = index not in self._grouped and index not in self._packed
            if state == 0:
                continue
            if self.chance(0.1) or (not keeps and not (state == 1 and free_agent)):
                if keeps:
                    plan.stop(row)
                if index not in self._packed:  # what one of a pair leaves behind goes to the other
                    self._release(view, row)
                self._grouped.discard(index)
                self._packed.discard(index)
            elif free_agent and self.chance(0.25):
                self._release(view, row)
                movers.append(row)
            elif not keeps:
                self._name_again(view, plan, row)
        for row in movers:
            if not self._place(view, plan, row) and not self._name_again(view, plan, row, take=True):
                plan.stop(row)
        for row in self._random.permutation(np.flatnonzero(jobs.state == 0)).tolist():
            choice = self._random.random()
            if choice < 0.6:
                self._place(view, plan, row)
            elif choice < 0.8:
                self._pack(view, plan, row)
        if self.chance(0.3) and self._groups < 6:
            self._slice(view, plan)
        plan.wake_at = view.now + float(self._random.integers(50, 1000))
        return plan

    def _account(self, view: View) -> None:
        nodes = view.nodes
        self._free = [[1000] * int(n) for n in nodes.gpus]
        self._cpus, self._memory = nodes.free_cpus.tolist(), nodes.free_memory_gib.tolist()
        self._queues = [0.0] * len(self._limits)  # whole devices, for a packed job may get the other half back
        for row in range(len(view.jobs)):
            self._queues[int(view.jobs.queue[row])] += self._counted(view, row)
            for part in view.placement(row):
                for d in range(part.devices.bit_length()):
                    self._free[part.node][d] -= part.milli * (part.devices >> d & 1)

    def _counted(self, view: View, row: int) -> float:
        """Return the GPUs that a job may come to hold."""
        index, asked = int(view.jobs.index[row]), float(view.jobs.gpus[row])
        if index in self._grouped:
            return float(self._group_sizes[index])
        held = sum(part.devices.bit_count() for part in view.placement(row))
        return min(asked, 1.0) * held if asked < 1 else float(held)

    def _within_limit(self, view: View, row: int, gpus: float) -> bool:
        queue = int(view.jobs.queue[row])
        return self._queues[queue] + gpus <= self._limits[queue]

    def _units(self, view: View, row: int, gpus: int, servers: int) -> tuple[float, float]:
        asked = float(view.jobs.gpus[row])
        units = (gpus + servers) / asked if asked >= 1 else 1.0
        return units * float(view.jobs.cpus[row]), units * float(view.jobs.memory_gib[row])

    def _release(self, view: View, row: int, sign: int = 1) -> None:
        self._queues[int(view.jobs.queue[row])] -= sign * self._counted(view, row)
        for part in view.placement(row):
            cpus, memory = self._units(view, row, part.devices.bit_count(), part.servers)
            self._cpus[part.node] += sign * cpus
            self._memory[part.node] += sign * memory
            for d in range(part.devices.bit_length()):
                self._free[part.node][d] += sign * part.milli * (part.devices >> d & 1)

    def _name_again(self, view: View, plan: Plan, row: int, *, take: bool = False) -> bool:
        """Name a running job in the plan again, on the same devices."""
        parts = view.placement(row)
        if take:
            held = [(p, d) for p in parts for d in range(p.devices.bit_length()) if p.devices >> d & 1]
            if any(self._free[p.node][d] < p.milli for p, d in held):
                return False
            self._release(view, row, -1)
            if any(min(self._cpus[p.node], self._memory[p.node]) < 0 for p in parts):
                self._release(view, row)
                return False
        gpus = {p.node: p.devices.bit_count() for p in parts}
        servers = {p.node: p.servers for p in parts if p.servers}
        plan.run(row, gpus, servers, devices={p.node: p.devices for p in parts if p.devices})
        return True

    def _open(self, view: View, row: int, node: int, gpus: bool) -> bool:
        nodes, jobs = view.nodes, view.jobs
        accepted = not gpus or int(jobs.types[row]) >> int(nodes.type[node]) & 1
        return bool(nodes.state[node] == 0 and accepted and nodes.owner[node] in (-1, jobs.queue[row]))

    def _fits(self, view: View, row: int, node: int, gpus: int, servers: int) -> bool:
        cpus, memory = self._units(view, row, gpus, servers)
        return bool(self._cpus[node] >= cpus and self._memory[node] >= memory)

    def _take(self, view: View, row: int, node: int, mask: int, milli: int, servers: int) -> None:
        cpus, memory = self._units(view, row, mask.bit_count(), servers)
        self._cpus[node] -= cpus
        self._memory[node] -= memory
        for d in range(mask.bit_length()):
            self._free[node][d] -= milli * (mask >> d & 1)

    def _place(self, view: View, plan: Plan, row: int) -> bool:
        """Put a job anywhere it fits, in any legal size."""
        jobs = view.jobs
        asked = float(jobs.gpus[row])
        milli = 1000 if asked >= 1 or asked == 0 else round(asked * 1000)
        rest = int(self._random.integers(int(jobs.min_gpus[row]), int(jobs.max_gpus[row]) + 1)) if asked >= 1 else 1
        if not self._within_limit(view, row, rest if asked >= 1 else asked):
            return False
        total, servers = rest, int(jobs.ps[row])
        chosen: dict[int, tuple[int, int]] = {}  # node: devices, servers
        for node in self._random.permutation(len(view.nodes)).tolist():
            if not self._open(view, row, node, asked > 0):
                continue
            if asked == 0:
                if self._fits(view, row, node, 0, 0):
                    chosen, rest = {node: (0, 0)}, 0
                    break
                continue
            devices = [d for d, left in enumerate(self._free[node]) if left >= milli][:rest]
            while devices and not self._fits(view, row, node, len(devices), 0):
                devices.pop()
            beside = 1 if servers and self._fits(view, row, node, len(devices), 1) else 0
            if devices or beside:
                chosen[node] = (sum(1 << d for d in devices), beside)
                rest, servers = rest - len(devices), servers - beside
            if rest == 0 and servers == 0:
                break
        if rest or (servers and asked >= 1):
            return False
        for node, (mask, beside) in chosen.items():
            self._take(view, row, node, mask, milli, beside)
        self._queues[int(jobs.queue[row])] += total if asked >= 1 else asked
        plan.run(
            row,
            {node: mask.bit_count() for node, (mask, _) in chosen.items()},
            {node: beside for node, (_, beside) in chosen.items() if beside},
            devices={node: mask for node, (mask, _) in chosen.items() if mask},
        )
        return True

    def _pack(self, view: View, plan: Plan, row: int) -> None:
        """Share the devices of a running job that this plan leaves alone."""
        jobs = view.jobs
        asked = float(jobs.gpus[row])
        if asked < 1 or jobs.ps[row] or not self._within_limit(view, row, asked):
            return
        for host in np.flatnonzero((jobs.state == 1) & (jobs.held == asked)).tolist():
            index, parts = int(jobs.index[host]), view.placement(host)
            busy = host in plan.stops or host in plan.placements or index in self._grouped | self._packed
            if busy or not plan.keeps or jobs.gpus[host] < 1 or jobs.ps[host]:
                continue
            if all(
                self._open(view, row, p.node, True) and self._fits(view, row, p.node, p.devices.bit_count(), 0)
                for p in parts
            ):
                for p in parts:
                    self._take(view, row, p.node, p.devices, 0, 0)
                self._queues[int(jobs.queue[row])] += asked
                plan.pack(row, host)
                self._packed |= {index, int(jobs.index[row])}
                return

    def _slice(self, view: View, plan: Plan) -> None:
        """Let some of those who wait take turns on the free devices of one node."""
        jobs = view.jobs
        node = int(self._random.integers(len(view.nodes)))
        free = [d for d, left in enumerate(self._free[node]) if left == 1000]
        group = []
        for row in np.flatnonzero(jobs.state == 0).tolist():
            size = int(jobs.gpus[row])
            taken = row in plan.placements or row in plan.packs or not 1 <= size <= len(free) or jobs.ps[row]
            if taken or not self._within_limit(view, row, size):
                continue
            if self._open(view, row, node, True) and self._fits(view, row, node, size, 0):
                devices = self._random.choice(free, size, replace=False).tolist()
                plan.run(row, {node: size}, devices={node: sum(1 << int(d) for d in devices)})
                self._queues[int(jobs.queue[row])] += size
                self._group_sizes[int(jobs.index[row])] = size
                group.append(row)
        if group:
            plan.slice(group, float(self._random.integers(10, 300)))
            self._grouped |= {int(jobs.index[row]) for row in group}
            self._groups += 1


def run(world: World, policy: Policy, *, watched: bool = False) -> Result:
    """Run and audit; a watched run also checks the kernels' totals after every decision."""
    found: list[str] = []
    watch = (lambda engine: found.extend(books(engine))) if watched else None
    engine = Engine(world.trace, world.cluster, policy, world.settings, cancels=world.cancels, watch=watch)
    result = engine.run()
    assert not found, found[:5]
    problems = audit(result, world.trace, world.settings, world.cancels)
    assert not problems, problems[:5]
    return result


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", list(POLICIES))
@settings(thorough, max_examples=30)
@given(world=worlds())
def test_registered_policies_keep_every_invariant(name: str, world: World) -> None:
    run(world, create(name))


@pytest.mark.slow(3)
@pytest.mark.parametrize("name", list(POLICIES))
@settings(thorough, max_examples=12)
@given(world=worlds())
def test_the_kernels_own_books_agree(name: str, world: World) -> None:
    run(world, create(name), watched=True)


@pytest.mark.slow(18)
@settings(thorough, max_examples=150)
@given(world=worlds(until_s=6000.0))
def test_random_sizes_keep_every_invariant(world: World) -> None:
    run(world, RandomSizes(), watched=True)


@pytest.mark.slow(23)
@settings(thorough, max_examples=200)
@given(world=worlds(until_s=6000.0))
def test_random_plans_keep_every_invariant(world: World) -> None:
    limits = {q.name: q.limit_gpus for q in world.cluster.queues if q.limit_gpus is not None}
    run(world, RandomPlan(limits), watched=True)


@pytest.mark.slow(3)
@pytest.mark.parametrize("name", list(POLICIES))
@settings(thorough, max_examples=25)
@given(world=worlds())
def test_a_calm_cluster_finishes_every_job(name: str, world: World) -> None:
    """Without faults and limits, every job that can run finishes, under every policy."""
    cluster = replace(world.cluster, queues=tuple(replace(q, limit_gpus=None) for q in world.cluster.queues))
    calm = replace(world.settings, node_mtbf_h=None, job_mtbf_h=None, drifting=False, until_s=HORIZON_S)
    result = run(World(world.trace, cluster, calm, world.cancels), create(name))
    assert "unfinished" not in result.jobs["status"].to_list()
