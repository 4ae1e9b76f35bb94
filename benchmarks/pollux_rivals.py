"""Argosy beside the simulator of Pollux' authors: their rounds, delays and tables, and their readings of two rivals.

Rounds of 60 s, 16 nodes of 4 T4 GPUs, 30 s for every start or change, measured step times and gradient statistics, no
interference. `Tiresias` and `Optimus` are as the authors of Pollux define them, with tuned sizes and batches; they are
not policies of Argosy (see `tiresias` and `optimus`), because they leave GPUs idle between rounds. `TypeBlind` is
Pollux on several GPU types as the simulator of Sia's authors has it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from argosy.mechanism.plan import Plan
from argosy.policies.base import Policy, create
from argosy.policies.pollux.policy import Pollux
from argosy.policies.pollux.problem import Population, Problem, Row
from benchmarks.harness import Json, warm

if TYPE_CHECKING:
    from argosy.cluster.view import Context, View

ROUND_S, DELAY_S = 60.0, 30.0
SIA_DELAYS = {"cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0, "ncf": 15.0}
ROUND_CPU_S = 2.8  # of the authors' Pollux, by the remark in results.csv
NODES, NODE_GPUS = 16, 4
QUEUE_LIMIT_S = 16 * 3600.0  # GPU-seconds after which Tiresias moves a job to its second queue
WORKLOADS = ("workload-1.csv", "workload-6.csv")
PAIRS = (  # for which the authors' answer is known
    ("tiresias", WORKLOADS[0]),
    ("tiresias", WORKLOADS[1]),
    ("optimus", WORKLOADS[1]),
    ("pollux", WORKLOADS[0]),
    ("pollux", WORKLOADS[1]),
)
RIVALS = {"tiresias": "tuned sizes and batches", "optimus": "tuned batches", "pollux": ""}
CLOSE = 0.05


class Rounds(Policy):
    """A policy that decides in rounds and gives jobs the GPUs of the emptiest nodes."""

    preemptive = True
    uses = frozenset({"demand", "service", "placement", "nodes", "profile", "progress", "declared", "efficiency"})

    def reset(self, context: Context) -> None:
        self._next_s = -np.inf
        self._held: dict[int, dict[int, int]] = {}
        self.node_gpus = context.node_gpus

    def plan(self, view: View) -> Plan:
        plan = Plan.keep(view)
        if view.now < self._next_s - 1e-6:
            plan.wake_at = self._next_s
            return plan
        at_boundary = abs(view.now / ROUND_S - round(view.now / ROUND_S)) < 1e-9
        self._next_s = (np.floor(view.now / ROUND_S + 1e-9) + 1) * ROUND_S
        plan.wake_at = self._next_s if len(view.jobs) else None
        if not at_boundary:  # arrivals wait for the next round
            return plan
        order = np.argsort(view.jobs.index).tolist()
        sizes = self.sizes(view, order)
        free = self.node_gpus.copy()
        for row in order:
            now = self._where(view, row)
            if now and sum(now.values()) == sizes[row]:
                for node, gpus in now.items():
                    free[node] -= gpus
        for row in self.placing(order, sizes):
            now = self._where(view, row)
            if not sizes[row] and now:
                plan.stop(row)
            elif sizes[row] and sum(now.values()) != sizes[row]:
                plan.run(row, self._emptiest(free, sizes[row]))
        return plan

    def _where(self, view: View, row: int) -> dict[int, int]:
        found: dict[int, int] = {}
        if view.jobs.state[row] == 1:
            for part in view.placement(row):
                found[part.node] = found.get(part.node, 0) + part.devices.bit_count()
        return found

    def _emptiest(self, free: Any, gpus: int) -> dict[int, int]:
        place: dict[int, int] = {}
        while gpus:
            node = int(np.argmax(free))
            taken = min(int(free[node]), gpus)
            place[node] = place.get(node, 0) + taken
            free[node] -= taken
            gpus -= taken
        return place

    def placing(self, order: list[int], sizes: dict[int, int]) -> list[int]:
        """Return in which order jobs are given nodes."""
        return order

    def sizes(self, view: View, order: list[int]) -> dict[int, int]:
        raise NotImplementedError


class Tiresias(Rounds):
    """Two queues by GPU-time at the tuned size, each in order of arrival."""

    name = "pollux-tiresias"

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._queues: tuple[list[int], list[int]] = ([], [])
        self._order: list[int] = []

    def sizes(self, view: View, order: list[int]) -> dict[int, int]:
        rows = {int(view.jobs.index[row]): row for row in order}
        first, second = ([i for i in queue if i in rows] for queue in self._queues)
        first += [i for i in rows if i not in first and i not in second]
        for i in list(first):
            row = rows[i]
            if view.jobs.executed_s[row] * view.jobs.gpus[row] >= QUEUE_LIMIT_S:
                first.remove(i)
                second.append(i)
        self._queues = first, second
        free, sizes = int(self.node_gpus.sum()), dict.fromkeys(order, 0)
        self._order = [rows[i] for i in (*first, *second)]
        for row in self._order:
            asked = int(view.jobs.gpus[row])
            if asked <= free:
                sizes[row] = asked
                free -= asked
        return sizes

    def placing(self, order: list[int], sizes: dict[int, int]) -> list[int]:
        return self._order


class Optimus(Rounds):
    """One GPU to each job in order of arrival, then one at a time to the largest gain, at the tuned batch."""

    name = "pollux-optimus"

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._step_s: dict[tuple[int, float, int], float] = {}

    def sizes(self, view: View, order: list[int]) -> dict[int, int]:
        jobs = view.jobs
        free, sizes, gain, left, most = int(self.node_gpus.sum()), {}, {}, {}, {}
        for row in order:
            family = view.profile.families[int(jobs.family[row])]
            batch = float(jobs.batch[row])
            mean = float(family.efficiency[family.nearest(np.array([batch]))[0]])
            samples = float(jobs.declared_s[row] - jobs.done_s[row]) * float(jobs.reference_rate[row])
            left[row] = max(samples / (mean * batch), 1.0)
            most[row] = 1 if family.name == "ncf" else int(batch // SMALLEST_LOCAL[family.name])
            sizes[row] = 1 if free else 0
            free -= sizes[row]
        for row in order:
            gain[row] = self._gain(view, row, sizes[row], most[row], left[row]) if free and sizes[row] else 0.0
        while free > 0 and max(gain.values(), default=0.0) > 0:
            row = max(gain, key=lambda r: gain[r])
            sizes[row] += 1
            free -= 1
            gain[row] = self._gain(view, row, sizes[row], most[row], left[row]) if free else 0.0
        return sizes

    def placing(self, order: list[int], sizes: dict[int, int]) -> list[int]:
        return sorted(order, key=lambda row: sizes[row])

    def _gain(self, view: View, row: int, size: int, most: int, left: float) -> float:
        return (self._step(view, row, size) - self._step(view, row, size + 1)) * left if size + 1 <= most else 0.0

    def _step(self, view: View, row: int, k: int) -> float:
        number, batch = int(view.jobs.family[row]), float(view.jobs.batch[row])
        known = self._step_s.get((number, batch, k))
        if known is None:
            family = view.profile.families[number]
            local = np.ceil(batch / k - 1e-8)
            passes = max(float(np.ceil(local / family.largest_local[0] - 1e-8)), 2.0 if k == 1 else 1.0)
            step_s, pass_s = family.model.step_times(
                "t4", k, 1 if k <= NODE_GPUS else 2, float(np.ceil(local / passes))
            )
            known = self._step_s[number, batch, k] = step_s + (passes - 1) * pass_s
        return known


class TypeBlind(Pollux):
    """Pollux whose search mixes GPU types; of a mixed allocation a job keeps the type of which it has most GPUs."""

    name = "pollux-type-blind"

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._population = BlindPopulation(self.population)


class BlindPopulation(Population):
    def search(self, problem: Problem, *arguments: Any, **named: Any) -> list[Row]:
        blind = replace(problem, of_type=np.zeros_like(problem.of_type))
        return [of_one_type(row, problem.of_type) for row in super().search(blind, *arguments, **named)]


def of_one_type(row: Row, of_type: Any) -> Row:
    gpus = np.zeros(int(of_type.max()) + 1, np.int64)
    for node, count in row.items():
        gpus[of_type[node]] += count
    return {node: count for node, count in row.items() if of_type[node] == int(np.argmax(gpus))}


SMALLEST_LOCAL = {"bert": 4, "cifar10": 32, "deepspeech2": 10, "imagenet": 20, "ncf": 32, "yolov3": 4}
LARGEST = {"bert": 384, "cifar10": 4096, "deepspeech2": 640, "imagenet": 12800, "ncf": 32768, "yolov3": 512}


def policy_of(name: str) -> Policy:
    return {"tiresias": Tiresias, "optimus": Optimus}[name]() if name in RIVALS and name != "pollux" else create(name)


@contextmanager
def delays(of_model: Mapping[str, float]) -> Iterator[str]:
    """Give the name of a file of overheads: these seconds for each start or change, and 30 for all other models."""
    kinds = ("start", "resume", "migrate", "resize")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("model,kind,seconds\n,suspend,0\n")
        for model, seconds in {"": DELAY_S, **of_model}.items():
            file.write("".join(f"{model},{kind},{seconds:g}\n" for kind in kinds))
        file.flush()
        yield file.name


def run(data: Path, workload: str, name: str, seed: int = 0) -> Any:
    """Return the result of a workload under one of the rivals, or under a policy of Argosy."""
    import polars as pl

    from argosy.cluster.cluster import Cluster
    from argosy.sim.engine import Engine
    from argosy.sim.settings import Settings
    from argosy.workload.importers import get_importer
    from argosy.workload.trace import Trace

    trace = get_importer("pollux").run([data / "peers" / "pollux" / workload], on_error="fail").trace
    frame = trace.frame.with_columns(max_batch=pl.col("model").replace_strict(LARGEST, return_dtype=pl.Float64))
    cluster = Cluster.uniform(NODES, NODE_GPUS, "t4", cpus=0.0, memory_gib=0.0, nodes_per_rack=NODES)
    with delays({}) as overheads:
        settings = Settings(
            seed=seed,
            overheads=overheads,
            measurement_noise=0.0,
            min_run_s=0.0,
            goodput=str(data / "throughput"),
            hot_resize=True,
        )
        spec = "pollux:authors=true" if name == "pollux" else name
        return Engine(Trace.of(frame), cluster, policy_of(spec), settings).run()


def agreement(data: str, workload: str, name: str, seeds: list[int]) -> Json:
    """Return mean completion times beside those that the authors' simulator gives."""
    from benchmarks.agreement import compared, published

    warm()
    jct, cpu, rounds = [], [], 0
    for seed in seeds if name == "pollux" else seeds[:1]:
        began = time.process_time()
        jobs = run(Path(data), workload, name, seed).jobs
        cpu.append(time.process_time() - began)
        jct.append(float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean()))
        rounds = int(np.ceil((jobs["finish_s"].to_numpy().max() - jobs["submit_s"].to_numpy().min()) / ROUND_S))
    ours = "pollux:authors=true" if name == "pollux" else f"{name} as Pollux' authors define it"
    remark = "" if len(jct) == 1 else f"seeds: {', '.join(f'{value:.0f}' for value in jct)}"
    folder = Path(data) / "peers"
    row = compared(folder, "pollux", workload, name, ours, float(np.mean(jct)), "")
    theirs = published(folder, "pollux", workload, name)["cpu_s"]
    by_rounds = {"their_cpu_s": ROUND_CPU_S * rounds if theirs is None else theirs, "estimated": theirs is None}
    return row | {"remark": remark, "cpu_s": float(np.mean(cpu)), "rounds": rounds, **by_rounds}
