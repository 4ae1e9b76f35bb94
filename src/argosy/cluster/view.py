"""The view that a policy gets: read-only columns of the active jobs and the nodes, at one instant.

Nothing is copied: a column is a read-only slice of the host's own arrays. Every column belongs to a kind of
information, and a policy sees only the kinds that it declares in `uses`; reading another raises an error. So a table of
results can say which policies saw the future.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.errors import UndeclaredInformation
from argosy.perf.batch_family import BatchFamily

WHOLE = 1000  # thousandths of a device: `Part.milli` of a job that has the device alone


class JobState(IntEnum):
    """Whether a job runs, waits or is paused: the values of the column `state` of the jobs."""

    WAITING = 0
    RUNNING = 1
    PAUSED = 2  # it has a place in a time-sliced group, but it is another job's turn


class NodeState(IntEnum):
    """Whether a node accepts jobs: the values of the column `state` of the nodes."""

    UP = 0
    DRAINING = 1  # running jobs go on, no job starts
    DOWN = 2


class Overhead(IntEnum):
    """What costs a job time: the columns of `Context.overheads`."""

    START = 0
    SUSPEND = 1  # paid when it resumes
    RESUME = 2
    MIGRATE = 3
    RESIZE = 4  # cold or hot, as the run has it


INFORMATION: dict[str, str] = {
    "demand": "what was asked for: GPUs, CPUs, memory, range, queue, user, weight, priority, deadline",
    "service": "what each job got so far: GPU-seconds, run and waiting time, preemptions",
    "placement": "where each job runs",
    "progress": "the work that each job has done so far, in seconds at the requested size",
    "declared": "the whole work, where the user declared it: a number of steps or epochs",
    "rate": "measured work per second, with noise; speeds of machines as measured through their jobs",
    "estimate": "expected duration and what is left of it, from the run's estimator",
    "duration": "the true duration: the future",
    "profile": "throughput by GPU type, size and locality",
    "nodes": "the nodes: free devices, types, racks, state",
    "efficiency": "what jobs report of their steps: batch size, gradient noise scale, times",
    "quality": "what networks like a job's reach: left alone, with more replicas, or grown",
    "loss": "the training losses that a job has reported so far",
    "history": "what became of the jobs that have ended",
    "overhead": "what starting, suspending, resuming, moving and resizing a job costs",
    "speed": "the true speed of every machine, which only a simulation knows",
}

JOB_COLUMNS: dict[str, tuple[str, str]] = {  # name: (information, meaning)
    "index": ("demand", "the job's row in the trace: its name for the whole run"),
    "submitted": ("demand", "submit time, s"),
    "gpus": ("demand", "GPUs requested (below 1: a share of one device; 0: CPU only)"),
    "cpus": ("demand", "CPUs at the requested size"),
    "memory_gib": ("demand", "memory at the requested size"),
    "min_gpus": ("demand", "smallest size it can run at"),
    "max_gpus": ("demand", "largest size it can run at"),
    "ps": ("demand", "parameter servers requested"),
    "queue": ("demand", "queue number; names in context.queues"),
    "user": ("demand", "user number"),
    "app": ("demand", "application number; jobs of one search share it"),
    "weight": ("demand", "share weight"),
    "priority": ("demand", "0..100, higher first"),
    "deadline": ("demand", "absolute time, inf if none"),
    "types": ("demand", "bit set of GPU types it accepts; names in context.gpu_types"),
    "saves": (
        "demand",
        "what survives a stop: 0 all (it saves when asked to stop), 1 what it saved last, 2 nothing",
    ),
    "kind": ("demand", "job class: same model, same batch"),
    "ps_kind": ("demand", "the same for parameter-server jobs, -1 for others"),
    "attained": ("service", "GPU-seconds held"),
    "executed_s": ("service", "seconds holding resources"),
    "waiting_s": ("service", "length of the current wait"),
    "started": ("service", "begin of the current run"),
    "preemptions": ("service", "times it was preempted"),
    "state": ("placement", "0 waiting, 1 running, 2 paused"),
    "held": ("placement", "GPUs held now"),
    "servers": ("placement", "parameter servers held now"),
    "level": ("placement", "widest boundary its placement crosses: 0 island, 1 node, 2 rack, 3 cluster"),
    "held_type": ("placement", "GPU type number of its devices, -1 while it holds none"),
    "peer": ("placement", "index of the job that it is packed with, -1 if none"),
    "done_s": ("progress", "work done so far, in seconds at the requested size"),
    "declared_s": ("declared", "the whole work in the same unit, as its user declared it; NaN where nobody did"),
    "reference_rate": ("profile", "throughput as requested, on its reference type: there it does 1 s of work per s"),
    "measured_rate": ("rate", "seconds of reference work per second, as measured over some minutes"),
    "family": ("demand", "its number in profile.families: a policy may choose its batch size; -1: it is fixed"),
    "max_batch": ("demand", "largest total batch that a policy may choose, NaN where the batch is fixed"),
    "spare_gpus": ("demand", "GPUs beyond max_gpus that it takes while they are spare; it gets better, not faster"),
    "quality": ("quality", "its curve in argosy.perf.quality, -1: not known"),
    "batch": ("efficiency", "total batch size now, NaN where it is not known"),
    "noise_scale": ("efficiency", "gradient noise scale in samples at this batch, NaN until it has been measured"),
    "expected_s": ("estimate", "expected duration at the requested size"),
    "expected_left_s": ("estimate", "what is left of it"),
    "duration_s": ("duration", "true duration at the requested size"),
    "remaining_s": ("duration", "what is left of it"),
}

NODE_COLUMNS: dict[str, tuple[str, str]] = {
    "gpus": ("nodes", "devices"),
    "free": ("nodes", "whole devices free"),
    "type": ("nodes", "GPU type number"),
    "rack": ("nodes", "rack number"),
    "state": ("nodes", "0 up, 1 draining, 2 down"),
    "owner": ("nodes", "queue that reserved it, -1 if none"),
    "free_cpus": ("nodes", ""),
    "free_memory_gib": ("nodes", ""),
    "cpus": ("nodes", ""),
    "memory_gib": ("nodes", ""),
    "speed": ("rate", "speed relative to nominal, as last measured through its jobs; 1 where none has shown it"),
    "speed_measured_at": ("rate", "when a job last showed it; -inf: never"),
    "true_speed": ("speed", "the same without noise and at once"),
}


class Columns:
    """Columns as attributes; each is sliced on its first use at an instant."""

    __slots__ = ("__dict__", "_count", "_meanings", "_policy", "_rows", "_uses")

    def __init__(
        self,
        rows: Mapping[str, NDArray[Any]],
        meanings: Mapping[str, tuple[str, str]],
        uses: frozenset[str],
        policy: str,
    ) -> None:
        self._meanings, self._uses, self._policy = meanings, uses, policy
        self._count = 0
        self.bind(rows)

    def bind(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Use these full-length rows, because the host's arrays have been replaced."""
        allowed = {}
        for name, (information, _) in self._meanings.items():
            if information in self._uses and name in rows:
                allowed[name] = rows[name].view()
                allowed[name].flags.writeable = False
        self._rows = allowed
        self.__dict__.clear()

    def refresh(self, count: int) -> None:
        self._count = count
        self.__dict__.clear()

    def replaced(self, **columns: NDArray[Any]) -> Columns:
        """Return the same columns at this instant, with some of them replaced."""
        rows = {name: columns.get(name, row[: self._count]) for name, row in self._rows.items()}
        found = Columns(rows, self._meanings, self._uses, self._policy)
        found.refresh(self._count)
        return found

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> NDArray[Any]:
        row = self._rows.get(name)
        if row is None:
            raise self._refusal(name)
        column = row[: self._count]
        self.__dict__[name] = column
        return column

    def _refusal(self, name: str) -> AttributeError:
        if name in self._meanings:
            information = self._meanings[name][0]
            return UndeclaredInformation(
                f"policy {self._policy!r} read {name!r} but does not declare {information!r} in `uses`"
                f" (it declares: {', '.join(sorted(self._uses)) or 'nothing'})"
            )
        return AttributeError(f"there is no column {name!r}; the columns are {', '.join(self._meanings)}")


class Part(NamedTuple):
    """What a job holds on one node."""

    node: int
    devices: int  # bit set
    milli: int  # thousandths of each of those devices
    servers: int  # parameter servers


class Losses(NamedTuple):
    """What a job has reported about its training so far, and when it will count as converged."""

    epochs: NDArray[np.float64]  # 1, 2, …: the completed epochs
    losses: NDArray[np.float64]  # after each of them
    threshold: float  # it ends when the loss fell by less than this over the last `window` epochs
    window: int
    seconds_per_epoch: float  # at the reference configuration


class BatchMode(NamedTuple):
    """One of the batch sizes that a job will have, as its user declares them."""

    batch: float
    kind: int  # its job class, whose speeds the profile knows


class StepReport(NamedTuple):
    """What a job has reported of its last training steps."""

    nodes: int
    gpus: int
    local_batch: float  # samples of a GPU in one pass
    accumulation: int  # passes before the one that synchronises
    step_s: float  # a pass that synchronises, and the update
    pass_s: float  # a pass that does not


@dataclass(frozen=True, slots=True)
class Context:
    """What does not change during a run; policies get it once, in `reset`."""

    gpu_types: tuple[str, ...]
    queues: tuple[str, ...]
    queue_weights: NDArray[np.float64]
    queue_limits: NDArray[np.float64]  # GPUs a queue may hold in all
    node_gpus: NDArray[np.int64]
    node_types: NDArray[np.int64]
    total_cpus: float
    total_memory_gib: float
    seed: int
    kinds: tuple[str, ...] = ()  # networks, by jobs.kind
    ps_kinds: tuple[str, ...] = ()  # networks, by jobs.ps_kind
    gpu_prices: tuple[float, ...] = ()  # per GPU and hour, by type; empty where the cluster file gives no prices
    queue_quotas: NDArray[np.float64] | None = None  # GPUs a queue may always use
    queue_parents: NDArray[np.int64] | None = None  # number of the queue above, -1: none
    queue_priorities: NDArray[np.float64] | None = None
    lent: NDArray[np.bool_] | None = None  # nodes that another cluster lends now and then; None: none are
    overheads: NDArray[np.float64] | None = None  # seconds by [kind, `Overhead`]; None unless the policy declares them

    @property
    def total_gpus(self) -> int:
        return int(self.node_gpus.sum())

    def costs(self) -> NDArray[np.float64]:
        """Return the overheads; raise if the policy does not declare them."""
        if self.overheads is None:
            raise UndeclaredInformation("a policy read the overheads but does not declare 'overhead' in `uses`")
        return self.overheads


@dataclass(frozen=True, slots=True)
class Footprint:
    """The utilisation and memory that a GPU shows for each job class that runs alone on it."""

    utilisation: NDArray[np.float64]  # per kind, 0..1
    memory_gib: NDArray[np.float64]


class Profile:
    """Throughput estimates as a real scheduler could have them, in samples (or steps) per second.

    Divided by `jobs.reference_rate` they are seconds of reference work per second. Arguments may be arrays.
    """

    __slots__ = ("_pair", "_ps", "_rate", "families", "footprint", "plan_of")

    def __init__(
        self,
        rate: NDArray[np.float64],
        ps: NDArray[np.float64],
        pair: NDArray[np.float64],
        footprint: Footprint,
        families: tuple[BatchFamily, ...] = (),
        plan_of: Callable[[int, int, int, int], str] = lambda kind, gpu_type, gpus, level: "",
    ) -> None:
        self.plan_of = plan_of  # (kind, GPU type, GPUs, level) → the execution plan of such a job, or nothing
        self._rate, self._ps, self._pair, self.footprint = rate, ps, pair, footprint
        self.families = families  # networks whose batch size a policy may choose, by jobs.family

    @property
    def largest(self) -> int:
        """The largest size in the tables; beyond it rates grow in proportion."""
        return int(self._rate.shape[2]) - 1

    @property
    def most_servers(self) -> int:
        """The largest number of parameter servers in the tables."""
        return int(self._ps.shape[1]) - 1

    def rate(self, kind: Any, gpu_type: Any, gpus: Any, level: Any = 1) -> Any:
        """Return the samples (or steps) per second of an all-reduce job."""
        k = np.minimum(gpus, self.largest)
        return self._rate[kind, gpu_type, k, level] * (np.maximum(gpus, 1) / np.maximum(k, 1))

    def table(self, level: int = 1) -> NDArray[np.float64]:
        """Return the rates of all-reduce jobs as one read-only array: [kind, GPU type, GPUs]."""
        rates = self._rate[:, :, :, level].view()
        rates.flags.writeable = False
        return rates

    def ps_table(self) -> NDArray[np.float64]:
        """Return the rates of parameter-server jobs as one read-only array: [ps_kind, servers, workers]."""
        rates = self._ps.view()
        rates.flags.writeable = False
        return rates

    def ps_rate(self, ps_kind: Any, servers: Any, workers: Any) -> Any:
        """Return the samples per second of a parameter-server job; sizes beyond the table count as its largest."""
        table = self._ps
        return table[ps_kind, np.minimum(servers, table.shape[1] - 1), np.minimum(workers, table.shape[2] - 1)]

    def beside(self, kind: Any, other: Any) -> Any:
        """Return the speed of a job of one kind packed with one of the other, relative to running alone."""
        return self._pair[kind, other]


class View:
    """The state of the cluster at `now`, as far as a policy may see it."""

    __slots__ = (
        "_losses",
        "_modes",
        "_parts",
        "_profile",
        "_steps",
        "_uses",
        "free_gpus",
        "jobs",
        "nodes",
        "now",
        "running",
        "waiting",
    )

    def __init__(
        self,
        jobs: Columns,
        nodes: Columns,
        uses: frozenset[str],
        profile: Profile | None,
        parts: Callable[[int], list[Part]],
        losses: Callable[[int], Losses],
        steps: Callable[[int], StepReport | None] = lambda row: None,
        modes: Callable[[int], tuple[BatchMode, ...]] = lambda row: (),
    ) -> None:
        self.jobs, self.nodes = jobs, nodes
        self._uses, self._profile, self._parts, self._losses = uses, profile, parts, losses
        self._steps, self._modes = steps, modes
        self.now = 0.0
        self.waiting = 0  # jobs that hold nothing
        self.running = 0
        self.free_gpus = 0

    def replaced(self, jobs: Columns, nodes: Columns, parts: Callable[[int], list[Part]], free_gpus: int) -> View:
        """Return the same instant with other columns and placements, for a policy inside another."""
        found = View(jobs, nodes, self._uses, self._profile, parts, self._losses, self._steps, self._modes)
        found.now, found.waiting, found.running, found.free_gpus = self.now, self.waiting, self.running, free_gpus
        return found

    @property
    def profile(self) -> Profile:
        if self._profile is None:
            raise UndeclaredInformation("a policy read view.profile but does not declare 'profile' in `uses`")
        return self._profile

    def placement(self, row: int) -> list[Part]:
        """Return where the job in this row runs."""
        if "placement" not in self._uses:
            raise UndeclaredInformation("a policy read a placement but does not declare 'placement' in `uses`")
        return self._parts(row)

    def losses(self, row: int) -> Losses:
        """Return what the job in this row has reported about its training."""
        if "loss" not in self._uses:
            raise UndeclaredInformation("a policy read losses but does not declare 'loss' in `uses`")
        return self._losses(row)

    def steps(self, row: int) -> StepReport | None:
        """Return what the job in this row reports of its steps; None if it does not run, or its batch is fixed."""
        if "efficiency" not in self._uses:
            raise UndeclaredInformation("a policy read step times but does not declare 'efficiency' in `uses`")
        return self._steps(row)

    def modes(self, row: int) -> tuple[BatchMode, ...]:
        """Return the batch sizes that the job in this row takes by a rule of its own; when is not known."""
        if "efficiency" not in self._uses:
            raise UndeclaredInformation("a policy read batch sizes but does not declare 'efficiency' in `uses`")
        return self._modes(row)
