"""Harmony: place jobs beside others whose types disturb them least, by a learned model of interference.

Decision: jobs that wait get their place one by one: GPUs of their own, or the GPUs of a running job of the same size,
which both then share. A network scores every (job, place) of the jobs that have waited longest, and the option to
place nobody now. The highest score is carried out, and the network is asked again until it prefers to wait, or there
is no room. It may not wait while a job could have free GPUs. Running jobs are never moved or stopped. What it knows of
interference comes from a second network, the reward model, which predicts a job's speed from its type and the types
beside it; a job of a type that the reward model does not know shares with nobody. Jobs without a choice (shares of a
GPU, CPU-only jobs, jobs with parameter servers) go where they leave the least room.
What interferes here: in Argosy's engine a job is slowed by another only if both are packed on the very same GPUs, two
at most. Jobs on other GPUs of the same machine do not slow each other, and neither do shares of one GPU. So a *server*
of the paper is here a set of GPUs that one job or a pair holds.
State used: demands, placements, free resources, waiting times; types of jobs, and the GPU memory and the speed that a
job shows when it runs alone (to know which pairs fit, and which GPU type suits).
Parameters: `weights`, a file or the name of shipped ones; `rule`: `learned`, or one of the rules that it is compared
with: `load-balance` (the least loaded place), `bin-pack` (the fullest), `tetris` (the best aligned with the free
resources), `least-interference` (the smallest loss of speed that the reward model predicts); `least_gain`: a pair is
only made if its predicted speeds add up to more than this; `batch`, how many waiting jobs are considered at once;
`patience_s`, how long a job may wait before no other may overtake it.
Differences from the paper: a job is placed as a whole, because two jobs can only share GPUs as a whole; one network
scores every (job, place) instead of one output for each, so that any cluster fits; to wait is an action; demands are
columns of the score. There is no published code: networks and constants are our reconstruction.
References: Bao, Peng and Wu, Deep learning-based job placement in distributed machine learning clusters, INFOCOM'19.

    speed(j | beside) = exp(−softplus(W2 relu(W1 [type of j, counts of types beside it] + b1) + b2)),  1 if alone
    score(j, place)   = V2 tanh(V1 [shared, speed(j), loss of the other, …] + c1) + c2,  chosen: the highest
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.compose import Walk
from argosy.mechanism.free_nodes import Claim
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.perf.footprint import gpu_memory_gib
from argosy.policies.base import Ints, Policy, register
from argosy.policies.harmony.network import FEATURES, HarmonyNetwork
from argosy.slack import GPU_SLACK, RESOURCE_SLACK
from argosy.zoo import find

RULES = ("learned", "load-balance", "bin-pack", "tetris", "least-interference")
Key = Callable[["Option"], tuple[float, ...]]  # of a hand-written rule: the smallest goes first


class Option(NamedTuple):
    """A place for a waiting job: free GPUs by node, or the GPUs of a running job (`host`), by node too."""

    row: int
    host: int  # -1: free GPUs
    gpus: dict[int, int]


@register("harmony", "learned placement of jobs beside those that disturb them least", "Bao et al., INFOCOM'19")
class Harmony(Policy):
    uses = frozenset({"demand", "service", "placement", "nodes", "profile"})

    def __init__(
        self,
        weights: str | HarmonyNetwork = "harmony",
        rule: str = "learned",
        least_gain: float = 0.0,
        batch: int = 8,
        patience_s: float = 14400.0,
    ) -> None:
        if rule not in RULES:
            raise InputError(f"harmony: rule must be one of {', '.join(RULES)}, is {rule!r}")
        if batch < 1 or not patience_s >= 0 or not 0 <= least_gain <= 2:
            what = f"batch {batch}, patience_s {patience_s}, least_gain {least_gain}"
            raise InputError(f"harmony: {what}", hint="batch must be ≥ 1, patience_s ≥ 0, and least_gain in 0..2")
        self.rule, self.least_gain, self.batch, self.patience_s = rule, least_gain, batch, patience_s
        self.network = HarmonyNetwork.of(find(weights)) if isinstance(weights, str) else weights

    def reset(self, context: Context) -> None:
        self._context = context
        types = np.array([self.network.type_of(kind) for kind in context.kinds], np.int64)
        self._beside = self.network.pair_speeds(types)  # by kinds of this run
        self._gpu_gib = np.array([gpu_memory_gib(name) for name in context.gpu_types])

    def plan(self, view: View) -> Plan:
        self._look(view)
        walk = self._walk
        jobs = view.jobs
        waiting = [int(row) for row in np.argsort(jobs.index, kind="stable") if jobs.state[row] == 0]
        plain = []
        barred = self._barred(waiting)
        for row in waiting:
            if barred >= 0 and row != barred and jobs.gpus[row] > 0:
                behind = int(jobs.index[barred])
                walk.plan.reasons[row] = Reason(Why.BEHIND, f"job {behind} has waited too long", behind=(behind,))
            elif self._plain[row]:
                plain.append(row)
            else:
                walk.start(row)
        refused: set[tuple[float, ...]] = set()  # demands for which there is no place at all
        while plain:
            batch, options = self._options(plain, refused)
            chosen = self._choose(options, len(plain))
            for row in batch:
                walk.plan.reasons[row] = Reason(Why.POLICY, f"{len(options)} places are worse than to wait")
            if chosen is None:
                break
            plain.remove(chosen.row)
            if not self._carry_out(chosen):
                refused.add(self._demand(chosen.row))
        for row in plain:
            why = Reason(Why.NO_GPUS, "neither free GPUs nor a running job to share GPUs with")
            walk.plan.reasons.setdefault(row, why)
        return walk.plan

    # what is there

    def _look(self, view: View) -> None:
        """Read the view once: demands, who could be a host, what is free."""
        jobs, nodes = view.jobs, view.nodes
        self._view = view
        self._walk = Walk(view, self._place, limits=self._context.queue_limits, fitting=True)
        self._target: dict[int, int] | None = None
        self._plain = (jobs.gpus >= 1) & (jobs.ps == 0)
        units = np.maximum(jobs.gpus, 1)
        self._cpus, self._memory = jobs.cpus / units, jobs.memory_gib / units
        running = (jobs.state == 1) & self._plain
        alone = running & (jobs.held == jobs.gpus)  # a packed job holds half of its GPUs
        self._paired = int(running.sum() - alone.sum())
        self._held: dict[int, dict[int, int]] = {}  # hosts → GPUs by node
        for row in np.flatnonzero(alone).tolist():
            held: dict[int, int] = {}
            for part in view.placement(row):
                held[part.node] = held.get(part.node, 0) + part.devices.bit_count()
            self._held[row] = held
        self._gib = view.profile.footprint.memory_gib[jobs.kind]
        self._total = max(int(self._context.node_gpus.sum()), 1)
        self._waiting_gpus = float(jobs.gpus[jobs.state == 0].sum())
        self._node_load = np.bincount(
            [node for held in self._held.values() for node in held] or [0], minlength=len(nodes.gpus)
        ) / np.maximum(nodes.gpus, 1)
        self._used = np.bincount(jobs.queue, jobs.held, len(self._context.queue_limits))

    def _barred(self, waiting: list[int]) -> int:
        """Return the job that no other may overtake, because it has waited too long; -1 if there is none."""
        jobs, nodes = self._view.jobs, self._view.nodes
        for row in waiting:
            if jobs.gpus[row] < 1 or jobs.waiting_s[row] <= self.patience_s:
                continue
            queue = int(jobs.queue[row])
            mine = (nodes.state == 0) & ((nodes.owner < 0) | (nodes.owner == queue))
            there = nodes.gpus[mine & (jobs.types[row] >> nodes.type & 1 == 1)].sum()
            if there >= jobs.gpus[row] and self._used[queue] + jobs.gpus[row] <= self._context.queue_limits[queue]:
                return row
        return -1

    def _demand(self, row: int) -> tuple[float, ...]:
        jobs = self._view.jobs
        columns = (jobs.gpus, jobs.cpus, jobs.memory_gib, jobs.types, jobs.queue, jobs.kind)
        return tuple(float(column[row]) for column in columns)

    def _options(self, plain: list[int], refused: set[tuple[float, ...]]) -> tuple[list[int], list[Option]]:
        """Return the places of the first jobs that have any, and these jobs; the others must wait."""
        batch: list[int] = []
        options: list[Option] = []
        for row in plain:
            demand = self._demand(row)
            if demand in refused:
                continue
            found = self._free_places(row) + self._shared_places(row)
            if not found:
                refused.add(demand)
                continue
            options += found
            batch.append(row)
            if len(batch) >= (self.batch if self.rule == "learned" else 1):
                break
        return batch, options

    def _open(self, row: int) -> NDArray[np.bool_]:
        jobs, nodes = self._view.jobs, self._view.nodes
        mine = (nodes.owner < 0) | (nodes.owner == jobs.queue[row])
        return np.asarray((nodes.state == 0) & mine & (jobs.types[row] >> nodes.type & 1 == 1) & (nodes.gpus > 0))

    def _room(self, row: int) -> Ints:
        """Return for how many GPUs of the job each node has CPUs and memory."""
        free = self._walk.free
        room = np.full(len(free.gpus), 1 << 30, np.int64)
        for amount, unit in ((free.cpus, self._cpus[row]), (free.memory_gib, self._memory[row])):
            if unit > 0:
                room = np.minimum(room, ((amount + RESOURCE_SLACK) / unit).astype(np.int64))
        return room

    def _may_hold(self, row: int) -> bool:
        queue = int(self._view.jobs.queue[row])
        limit = self._context.queue_limits[queue] + GPU_SLACK
        return bool(self._used[queue] + self._view.jobs.gpus[row] <= limit)

    def _free_places(self, row: int) -> list[Option]:
        """Return one node for each GPU type and number of free GPUs, or several nodes if no single one suffices."""
        if not self._may_hold(row):
            return []
        gpus, nodes = int(self._view.jobs.gpus[row]), self._view.nodes
        free = np.where(self._open(row), np.minimum(self._walk.free.gpus, self._room(row)), 0)
        found: list[Option] = []
        for gpu_type in np.unique(nodes.type[free > 0]).tolist():
            here = np.where(nodes.type == gpu_type, free, 0)
            single = np.flatnonzero(here >= gpus)
            if len(single):
                _, first = np.unique(self._walk.free.gpus[single], return_index=True)
                found += [Option(row, -1, {node: gpus}) for node in single[first].tolist()]
            elif here.sum() >= gpus:
                found.append(Option(row, -1, spread_over(here, gpus)))
        return found

    def _shared_places(self, row: int) -> list[Option]:
        """Return running jobs whose GPUs the job could share: one of each kind, or all for rules that need them."""
        jobs, nodes = self._view.jobs, self._view.nodes
        gpus, kind = int(jobs.gpus[row]), int(jobs.kind[row])
        if not self._may_hold(row):
            return []
        is_open, room = self._open(row), self._room(row)
        found: dict[tuple[int, int], Option] = {}
        for host, held in self._held.items():
            if sum(held.values()) != gpus or not all(is_open[n] and room[n] >= held[n] for n in held):
                continue
            gpu_type = int(nodes.type[next(iter(held))])
            if self._gib[row] + self._gib[host] > self._gpu_gib[gpu_type]:
                continue
            both = self._beside[kind, jobs.kind[host]] + self._beside[jobs.kind[host], kind]
            if both <= self.least_gain:  # 0 if one of the types is unknown
                continue
            same = (int(jobs.kind[host]), gpu_type) if self.rule == "learned" else (host, 0)
            found.setdefault(same, Option(row, host, held))
        return list(found.values())

    # which to choose

    def features(self, options: list[Option], waiting: int) -> NDArray[np.float32]:
        """Return a row of numbers for each option, and a last one for the option to wait."""
        view, walk = self._view, self._walk
        jobs, nodes = view.jobs, view.nodes
        table = np.zeros((len(options) + 1, FEATURES), np.float32)
        position = {row: i for i, row in enumerate(dict.fromkeys(option.row for option in options))}
        for i, (row, host, gpus) in enumerate(options):
            kind, node = int(jobs.kind[row]), next(iter(gpus))
            level = 1 if len(gpus) == 1 else 3
            size = int(jobs.gpus[row])
            alone = view.profile.rate(kind, int(nodes.type[node]), size, level) / max(jobs.reference_rate[row], 1e-12)
            speed, loss = 1.0, 0.0
            if host >= 0:
                speed = self._beside[kind, jobs.kind[host]]
                loss = 1.0 - self._beside[jobs.kind[host], kind]
            left = 0.0 if host >= 0 else (walk.free.gpus[node] - gpus[node]) / max(nodes.gpus[node], 1)
            wait = np.log1p(jobs.waiting_s[row] / 600.0) / 3
            turn = position[row] / self.batch
            table[i, :7] = (host >= 0, speed * min(alone, 2.0), loss, turn, size / 8, left, wait)
        table[-1, 7] = 1.0
        table[:, 8] = min(self._waiting_gpus / self._total, 2.0)
        table[:, 9] = self._paired / self._total + waiting / (waiting + 10.0)
        return table

    def _choose(self, options: list[Option], waiting: int) -> Option | None:
        """Return the option that is carried out next, or None to wait."""
        if not options:
            return None
        if self.rule != "learned":
            return min(options, key=self.key_of(self.rule))
        features = self.features(options, waiting)
        may_wait = all(option.host >= 0 for option in options)  # no GPU stays idle that a waiting job could use
        best = self._pick(options, features if may_wait else features[:-1])
        return options[best] if best < len(options) else None

    def _pick(self, options: list[Option], features: NDArray[np.float32]) -> int:
        """Return the row of the features that is chosen; the trainer draws one instead."""
        return int(self.network.scores(features).argmax())

    def key_of(self, rule: str) -> Key:
        """Return the key of a hand-written rule: the smallest goes first."""
        jobs, nodes, free = self._view.jobs, self._view.nodes, self._walk.free

        def tie(option: Option) -> tuple[int, int]:
            return next(iter(option.gpus)), option.host

        def load_balance(option: Option) -> tuple[float, ...]:
            node = next(iter(option.gpus))
            busy = 1.0 - free.gpus[node] / max(nodes.gpus[node], 1)
            return (option.host >= 0, busy + self._node_load[node], *tie(option))

        def bin_pack(option: Option) -> tuple[float, ...]:
            node = next(iter(option.gpus))
            return (option.host < 0, free.gpus[node], *tie(option))

        def tetris(option: Option) -> tuple[float, ...]:
            node = next(iter(option.gpus))
            row = option.row
            size = (max(nodes.gpus[node], 1), max(nodes.cpus[node], 1e-9), max(nodes.memory_gib[node], 1e-9))
            there = (free.gpus[node], free.cpus[node], free.memory_gib[node])
            need = (jobs.gpus[row], jobs.cpus[row], jobs.memory_gib[row])
            return (
                option.host >= 0,
                -sum((a / whole) * (b / whole) for a, b, whole in zip(there, need, size)),
                *tie(option),
            )

        def least_interference(option: Option) -> tuple[float, ...]:
            if option.host < 0:
                return (0.0, float(free.gpus[next(iter(option.gpus))]), *tie(option))
            mine, theirs = int(jobs.kind[option.row]), int(jobs.kind[option.host])
            return (2.0 - self._beside[mine, theirs] - self._beside[theirs, mine], 0.0, *tie(option))

        return {
            "load-balance": load_balance,
            "bin-pack": bin_pack,
            "tetris": tetris,
            "least-interference": least_interference,
        }[rule]

    # carrying it out

    def _carry_out(self, option: Option) -> bool:
        walk, row = self._walk, option.row
        jobs = self._view.jobs
        if option.host < 0:
            self._target = option.gpus
            done = walk.start(row)
            self._target = None
            if done:
                self._held[row] = dict(option.gpus)
        else:
            done = True
            walk.plan.pack(row, option.host)
            walk.plan.reasons.pop(row, None)
            walk.free.take([Claim(n, 0, k * self._cpus[row], k * self._memory[row]) for n, k in option.gpus.items()])
            del self._held[option.host]
            self._paired += 2
        if done:
            self._used[jobs.queue[row]] += jobs.gpus[row]
            self._waiting_gpus -= float(jobs.gpus[row])
        return done

    def _place(self, view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
        """Answer the walk: the place that was chosen, or for jobs without a choice the node with the least room."""
        if self._target is not None:
            return self._target
        room = self._room(row)
        servers = int(view.jobs.ps[row]) if view.jobs.gpus[row] >= 1 else 0
        fits = np.flatnonzero((free >= gpus) & (room >= gpus + servers))
        if len(fits):
            return {int(fits[free[fits].argmin()]): gpus}
        for gpu_type in np.unique(view.nodes.type[free > 0]).tolist():
            here = np.where(view.nodes.type == gpu_type, np.minimum(free, room), 0)
            if here.sum() >= gpus and view.jobs.gpus[row] >= 1:
                return spread_over(here, gpus)
        return None


def spread_over(free: Ints, gpus: int) -> dict[int, int]:
    """Return GPUs by node: nodes with most free GPUs first, as few as possible."""
    chosen: dict[int, int] = {}
    for node in np.argsort(-free, kind="stable").tolist():
        take = min(int(free[node]), gpus)
        if take:
            chosen[node] = take
            gpus -= take
        if not gpus:
            break
    return chosen
