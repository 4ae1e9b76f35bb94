"""An explicit plan: which jobs run where, which share devices or take turns, and why the others wait.

A plan starts from what runs now (`Plan.keep(view)`) or from nothing (`Plan.fresh(view)`: jobs not named do not run).
Jobs are given by their row in the view. GPUs on a node are given as a number; the mechanism picks the devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from argosy.cluster.view import View


class Why(Enum):
    """Why a job does not run."""

    NO_GPUS = "not enough free GPUs"
    FRAGMENTED = "enough free GPUs, but not together"
    NO_CPUS = "not enough free CPUs on the nodes with free GPUs"
    NO_MEMORY = "not enough free memory on the nodes with free GPUs"
    GPU_TYPE = "no free GPU of an accepted type"
    BEHIND = "a job ahead of it does not fit, and the policy does not back-fill"
    OUTRANKED = "better ranked jobs hold the GPUs"
    OUTBID = "other jobs bid more for the GPUs"
    QUOTA = "its queue has reached its limit"
    RESERVED = "free nodes are reserved for another queue"
    NODES_DOWN = "nodes are down or draining"
    POLICY = "the policy gives it nothing now"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one job waits: the category, what was observed, and the smallest change that would start it."""

    why: Why
    evidence: str
    remedy: str = ""
    behind: tuple[int, ...] = ()  # indices of jobs that hold what it needs, or come before it

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.why.value} ({self.evidence}){remedy}"


@dataclass(slots=True)
class Placement:
    """GPUs per node (1 for a share of a device, 0 for a CPU-only job), parameter servers per node."""

    gpus: dict[int, int] = field(default_factory=dict)
    servers: dict[int, int] = field(default_factory=dict)
    devices: dict[int, int] = field(default_factory=dict)  # bit sets, where the policy cares which


@dataclass(slots=True)
class Plan:
    """The changes to what runs now, by row of the view."""

    keeps: bool
    placements: dict[int, Placement] = field(default_factory=dict)
    stops: set[int] = field(default_factory=set)
    packs: dict[int, int] = field(default_factory=dict)  # guest → host
    slices: list[tuple[tuple[int, ...], float]] = field(default_factory=list)  # rows, quantum
    leases: dict[int, float] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)
    wake_at: float | None = None
    batches: dict[int, float] = field(default_factory=dict)  # total batch of jobs with `family` >= 0
    grows: set[int] = field(default_factory=set)  # rows whose GPUs beyond `max_gpus` are for a larger network

    @classmethod
    def keep(cls, view: View) -> Plan:
        """Begin a plan in which everything goes on as it is, except for what the plan changes."""
        return cls(keeps=True)

    @classmethod
    def fresh(cls, view: View) -> Plan:
        """Begin a plan in which only the jobs that it names run."""
        return cls(keeps=False)

    def run(
        self,
        row: int,
        gpus: Mapping[int, int],
        servers: Mapping[int, int] | None = None,
        devices: Mapping[int, int] | None = None,
    ) -> None:
        """Run (or resize, or migrate) a job on these nodes, with the given number of GPUs on each."""
        self.placements[row] = Placement(dict(gpus), dict(servers or {}), dict(devices or {}))
        self.stops.discard(row)

    def stop(self, row: int) -> None:
        self.stops.add(row)
        self.placements.pop(row, None)

    def pack(self, row: int, host: int) -> None:
        """Run a job on the devices of a running one; both slow down as measured for this pair of models."""
        self.packs[row] = host

    def slice(self, rows: Sequence[int], quantum_s: float) -> None:
        """Let jobs with overlapping placements (given by `run` with devices) take turns."""
        self.slices.append((tuple(rows), quantum_s))
