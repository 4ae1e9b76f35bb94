"""The part of an engine's state that a host may read without access to the matrices."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.devices import free_devices
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.supply import Demand, Holdings, Supply
from argosy.sim.jobs import JobTable

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Queues(NamedTuple):
    """GPUs that each queue holds, and how many it may hold at most; by the number of the queue."""

    held: Floats
    limit: Floats


class Rules(NamedTuple):
    """How the mechanism treats jobs in this run."""

    preemptive: bool  # running jobs may be preempted for better ranked ones
    backfill: bool  # a job may start although one before it does not fit
    elastic: bool  # the policy sizes jobs
    quotas: bool  # queues have guaranteed GPUs
    min_run_s: float  # a job is not preempted before it has run this long
    max_preemptions: int  # a job is not preempted more often than this


class Requested(NamedTuple):
    """What a job of the trace asks for, defaults filled in."""

    cpus: float
    memory_gib: float
    work_s: float  # its run time on its own demand, undisturbed


class EngineState:
    """The readable part of an engine; everything is as of now, and nothing may be written."""

    world: L.World

    def __init__(self) -> None:
        self.jobs = JobTable(cast("Engine", weakref.proxy(self)))

    @property
    def now(self) -> float:
        """The simulated time, in seconds."""
        return float(self.world.sf[L.NOW])

    @property
    def running(self) -> int:
        """How many jobs run."""
        return int(self.world.si[L.RUNNING_N])

    @property
    def finished(self) -> int:
        """How many jobs have ended."""
        return int(self.world.si[L.FINISHED])

    @property
    def submit_times(self) -> Floats:
        """When each job that has arrived was submitted, by index."""
        return self.world.tr[L.SUBMIT, : self.world.si[L.NEXT_JOB]]

    @property
    def finish_times(self) -> Floats:
        """When each job that has arrived ended, by index; NaN for those that have not."""
        return self.world.rs[L.R_FINISH, : self.world.si[L.NEXT_JOB]]

    @property
    def queues(self) -> Queues:
        """What the queues hold."""
        return Queues(self.world.qu[L.Q_HELD], self.world.qu[L.Q_LIMIT])

    @property
    def rules(self) -> Rules:
        """How the mechanism treats jobs."""
        sf, si = self.world.sf, self.world.si
        return Rules(
            bool(si[L.PREEMPTIVE]),
            bool(si[L.BACKFILL]),
            bool(si[L.ELASTIC]),
            bool(si[L.QUOTAS]),
            float(sf[L.MIN_RUN]),
            int(si[L.MAX_PREEMPTIONS]),
        )

    def requested(self, index: int) -> Requested:
        """Return what a job of the trace asks for."""
        tr = self.world.tr[:, index]
        return Requested(float(tr[L.CPUS]), float(tr[L.MEMORY]), float(tr[L.WORK]))

    def last_order(self) -> Ints:
        """Return the rows of the jobs in the order in which the last decision walked through them."""
        w = self.world
        return w.so[w.wk[L.W_ORDER, : int(w.si[L.ORDER_N])]]

    def demand(self, row: int) -> Demand:
        """Return what the job in this row must get to start."""
        return Demand.of(self.world, row)

    def supply(self) -> Supply:
        """Return what is free on each node."""
        return Supply.of(self.world)

    def free_devices(self) -> list[int]:
        """Return for each node the set (as bits) of the devices of which no job has any part."""
        return free_devices(self.world)

    def holdings(self) -> Holdings:
        """Return what the running jobs hold."""
        return Holdings.of(self.world)
