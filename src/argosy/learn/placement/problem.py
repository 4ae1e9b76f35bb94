"""The placement of one gang's tasks on devices: the problem, its step-time oracle, and the enumerated optimum.

A task is a worker, a parameter server or a stage of a pipeline. It computes for some seconds on a device of speed 1,
needs memory, and exchanges data with other tasks in every step. All tasks of a step run at the same time, those of one
device one after the other, and a device sends and receives by itself, so the busiest device sets the pace:

    T(p) = max_d ( Σ_{t on d} c_t / v_d  +  Σ_{t on d} Σ_{u not on d} m_tu · s(d, p(u)) )

c: seconds of a task; v: speed of a device; m: traffic in units; s: seconds per unit between two devices, by the widest
boundary between them (island, node, rack, racks). A placement that needs more memory than a device has fails: its step
time is infinite. `of_gang` takes all figures from Argosy's performance models.

The oracle is deterministic, so nobody measures a placement twice: `Meter` counts different placements.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.perf import gpus as gpu_types
from argosy.perf.base import USUAL_LINKS, Level
from argosy.perf.catalogue import lookup
from argosy.perf.iteration import IterationModel, grad_time_s, sync_time_s
from argosy.seeding import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_ENUMERATED = 1_000_000  # placements; more would take minutes
MOST_SYMMETRIES = 720  # permutations of devices that are looked for; fewer than all only cost measurements
MOST_ALIKE = 32  # devices; among more, nobody looks for symmetries, because that would take seconds


class Gpu(NamedTuple):
    """A device of a cluster: its type, and where it is."""

    type: str = "v100"
    node: int = 0
    rack: int = 0
    memory_gib: float = 16.0


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Tasks and devices. Arrays are by task (t, u) and by device (d)."""

    compute_s: Floats  # [t] on a device of speed 1
    task_gib: Floats  # [t]
    traffic: Floats  # [t, u], symmetric, in units
    speed: Floats  # [d]
    device_gib: Floats  # [d]
    unit_s: Floats  # [d, d] seconds per unit of traffic; 0 on the diagonal

    def __post_init__(self) -> None:
        tasks, devices = len(self.compute_s), len(self.speed)
        shapes = {
            "task_gib": (self.task_gib, (tasks,)),
            "traffic": (self.traffic, (tasks, tasks)),
            "device_gib": (self.device_gib, (devices,)),
            "unit_s": (self.unit_s, (devices, devices)),
        }
        for name, (array, shape) in shapes.items():
            if array.shape != shape:
                raise InputError(f"{name} has the shape {array.shape}; {tasks} tasks on {devices} devices need {shape}")
        numbers = (self.compute_s, self.task_gib, self.traffic, self.device_gib, self.unit_s)
        if not tasks or not devices or not all(np.isfinite(a).all() and (a >= 0).all() for a in numbers):
            raise InputError("a placement problem needs tasks and devices, and numbers that are finite and ≥ 0")
        if not (self.speed > 0).all() or not np.allclose(self.traffic, self.traffic.T):
            raise InputError("speeds of devices must be > 0, and traffic must be the same in both directions")

    @property
    def tasks(self) -> int:
        return len(self.compute_s)

    @property
    def devices(self) -> int:
        return len(self.speed)

    @cached_property
    def symmetries(self) -> Ints:
        """Permutations [g, d] of devices that leave speeds, memory and distances as they are, the identity first."""
        if self.devices > MOST_ALIKE:
            return np.arange(self.devices)[None]
        same = (self.speed[:, None] == self.speed) & (self.device_gib[:, None] == self.device_gib)
        maps = np.zeros((1, 0), np.int64)  # of the devices before d
        for d in range(self.devices):
            fits = np.repeat(same[d][None], len(maps), axis=0)
            for e in range(d):
                to = maps[:, e]
                fits &= (self.unit_s[to] == self.unit_s[e, d]) & (self.unit_s[d, e] == self.unit_s[:, to].T)
                fits[np.arange(len(maps)), to] = False
            row, device = np.nonzero(fits)
            maps = np.concatenate([maps[row], device[:, None]], axis=1)[:MOST_SYMMETRIES]
        return maps

    def step_times_s(self, placements: Ints) -> Floats:
        """Return the step time of each placement [P, t] of devices by task; infinite where memory does not suffice."""
        on = placements[:, :, None] == np.arange(self.devices)  # [P, t, d]
        busy = np.einsum("ptd,t->pd", on, self.compute_s) / self.speed
        apart = self.unit_s[placements[:, :, None], placements[:, None, :]] * self.traffic  # [P, t, u]
        busy += np.einsum("ptd,pt->pd", on, apart.sum(axis=2))
        full = np.einsum("ptd,t->pd", on, self.task_gib) > self.device_gib + 1e-9
        return np.where(full.any(axis=1), np.inf, busy.max(axis=1))

    def step_time_s(self, placement: Sequence[int]) -> float:
        """Return the step time of one placement: the device of each task."""
        row = np.asarray(placement, np.int64)
        if row.shape != (self.tasks,) or not ((row >= 0) & (row < self.devices)).all():
            what = f"a placement names a device of 0..{self.devices - 1} for each of {self.tasks} tasks"
            raise InputError(f"{what}, this one is {list(placement)}")
        return float(self.step_times_s(row[None])[0])

    def optimum(self) -> tuple[tuple[int, ...], float]:
        """Return the best of all placements, by trying every one."""
        count = self.devices**self.tasks
        if count > MOST_ENUMERATED:
            hint = f"enumerate problems with at most {MOST_ENUMERATED:,} placements"
            raise InputError(f"{self.tasks} tasks on {self.devices} devices have {count:,} placements", hint=hint)
        every = np.array(list(itertools.product(range(self.devices), repeat=self.tasks)), np.int64)
        times = self.step_times_s(every)
        best = int(times.argmin())
        return tuple(every[best].tolist()), float(times[best])


@dataclass(slots=True)
class Meter:
    """Measures placements of one problem, and counts the different ones, because only those have to be run."""

    problem: PlacementProblem
    known: dict[tuple[int, ...], float] = field(default_factory=dict)
    best: tuple[int, ...] = ()
    best_s: float = np.inf
    curve: list[float] = field(default_factory=list)  # the best step time after each measured placement

    @property
    def measured(self) -> int:
        return len(self.known)

    def measure(self, placements: Ints) -> Floats:
        """Return step times, and remember the best."""
        times = self.problem.step_times_s(placements)
        for placement, time_s in zip(map(tuple, placements.tolist()), times.tolist()):
            if placement in self.known:
                continue
            self.known[placement] = time_s
            if time_s < self.best_s:
                self.best, self.best_s = placement, time_s
            self.curve.append(self.best_s)
        return times

    def measured_until(self, time_s: float) -> int | None:
        """Return how many placements were measured until one was as fast as this, or None if none was."""
        for number, best in enumerate(self.curve, 1):
            if best <= time_s * (1 + 1e-9):
                return number
        return None


def chain(
    compute_s: Sequence[float],
    traffic: Sequence[float],
    speed: Sequence[float] = (1.0, 1.0),
    unit_s: float = 1.0,
    task_gib: float = 1.0,
    device_gib: float = 16.0,
) -> PlacementProblem:
    """Return operations that follow each other, with traffic from each to the next, on devices that are equally far."""
    tasks, devices = len(compute_s), len(speed)
    if len(traffic) != tasks - 1:
        raise InputError(f"a chain of {tasks} operations has {tasks - 1} links, and traffic has {len(traffic)}")
    links = np.diag(np.asarray(traffic, np.float64), 1)
    return PlacementProblem(
        np.asarray(compute_s, np.float64),
        np.full(tasks, task_gib),
        links + links.T,
        np.asarray(speed, np.float64),
        np.full(devices, device_gib),
        unit_s * (1.0 - np.eye(devices)),
    )


def of_gang(
    model: str, devices: Sequence[Gpu], workers: int, servers: int = 0, local_batch: float | None = None
) -> PlacementProblem:
    """Return the workers (and parameter servers) of a training job on GPUs, with times of the iteration model.

    Without servers, workers exchange gradients in a ring: half of a synchronisation of two GPUs on each link. With
    servers, each worker exchanges its share with each server, which computes nothing to speak of.
    """
    found = lookup(model)
    if not isinstance(found, IterationModel):
        raise InputError(f"the model {model!r} has no iteration model", hint="name one such as resnet-50")
    if workers < 1 or servers < 0 or not devices:
        raise InputError(f"a gang has at least one worker and one device, not {workers} and {len(devices)}")
    base = devices[0].type
    params, batch = found.params_for(base), found.default_batch if local_batch is None else local_batch
    batch = min(batch, found.max_local_batch(base))
    compute = float(grad_time_s(params, batch))
    across = {  # seconds in which two GPUs synchronise
        level: float(sync_time_s(params, 2, level, USUAL_LINKS)) for level in (Level.NODE, Level.RACK, Level.CLUSTER)
    }
    tasks = workers + servers
    traffic = np.zeros((tasks, tasks))
    for worker in range(workers):
        peers = range(workers, tasks) if servers else [(worker + 1) % workers] if workers > 1 else []
        for peer in peers:
            traffic[worker, peer] += 1 / servers if servers else 0.5
    unit_s = np.array([[across[_level(a, b)] for b in devices] for a in devices])
    np.fill_diagonal(unit_s, 0.0)
    ratio = [float(grad_time_s(params, batch) / grad_time_s(found.params_for(gpu.type), batch)) for gpu in devices]
    return PlacementProblem(
        np.array([compute] * workers + [0.05 * compute] * servers),
        np.array([8.0] * workers + [2.0] * servers),
        traffic + traffic.T,
        np.array(ratio),
        np.array([gpu.memory_gib for gpu in devices]),
        unit_s,
    )


def _level(a: Gpu, b: Gpu) -> Level:
    if a.rack != b.rack:
        return Level.CLUSTER
    return Level.NODE if a.node == b.node else Level.RACK


def draw_problem(seed: int, tasks: int = 6, devices: int = 4) -> PlacementProblem:
    """Return a random problem: a pipeline, a ring, or workers with parameter servers, on GPUs of one or two racks."""
    rng = stream(seed, "placement.problem", tasks, devices)
    kind = int(rng.integers(3))
    types = rng.choice(["v100", "p100", "k80"], size=devices, p=[0.6, 0.25, 0.15])
    speed = np.array([gpu_types.speed(str(name)) for name in types])  # GPUs of one type are equally fast
    node = np.sort(rng.integers(max(devices // 2, 1), size=devices))
    rack = node // 2 if rng.random() < 0.5 else node
    apart = np.where(rack[:, None] != rack, 4.0, np.where(node[:, None] != node, 1.0, 1 / 3))
    links = np.zeros((tasks, tasks))
    if kind == 0:
        links[np.arange(tasks - 1), np.arange(1, tasks)] = rng.lognormal(0.0, 0.7, tasks - 1)
    elif kind == 1 or tasks < 3:
        links[np.arange(tasks), (np.arange(tasks) + 1) % tasks] = 1.0
    else:
        servers = max(tasks // 3, 1)
        links[: tasks - servers, tasks - servers :] = 1.0 / servers
    np.fill_diagonal(links, 0.0)
    compute = rng.lognormal(0.0, 0.6, tasks) if kind == 0 else np.ones(tasks) * rng.lognormal(0.0, 0.3)
    task_gib = rng.uniform(2.0, 7.0, tasks)
    room = max(task_gib.sum() / devices * rng.uniform(1.3, 2.5), _least_room(task_gib, devices))
    return PlacementProblem(
        compute,
        task_gib,
        links + links.T,
        speed / speed.max(),
        np.full(devices, room),
        apart * (1.0 - np.eye(devices)) * rng.uniform(0.1, 0.6),
    )


def _least_room(task_gib: Floats, devices: int) -> float:
    """Return memory per device with which the tasks fit: the largest first, each where most is left."""
    used = np.zeros(devices)
    for size in sorted(task_gib.tolist(), reverse=True):
        used[used.argmin()] += size
    return float(used.max())
