"""The part of an engine's state that a host may read without access to the matrices."""

from __future__ import annotations

import weakref
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.devices import free_devices
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.supply import Demand, Holdings, Supply
from argosy.sim.jobs import JobTable
from argosy.sim.views import job_rows

if TYPE_CHECKING:
    from argosy.cluster.view import Columns, View
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


class FullColumns:
    """The columns of a `JobTable` at full length, as read-only attributes; `len()` says how many entries count.

    They are for compiled code: to slice a column at each decision takes longer than such code looks at it.
    """

    def __init__(self, world: L.World) -> None:
        self._of, self._scalars = world.jf, world.si
        for name, row in job_rows(world).items():
            column = row.view()
            column.flags.writeable = False
            setattr(self, name, column)

    def __len__(self) -> int:
        return int(self._scalars[L.ACTIVE])

    def __getattr__(self, name: str) -> NDArray[Any]:
        raise AttributeError(f"there is no column {name!r}")

    def is_of(self, world: L.World) -> bool:
        """Return whether they are those of this world; they move when more jobs are active than there is room for."""
        return world.jf is self._of


class EngineState:
    """The readable part of an engine; everything is as of now, and nothing may be written."""

    world: L.World
    view: View

    def __init__(self) -> None:
        self.jobs = JobTable(cast("Engine", weakref.proxy(self)))
        self._full_columns, self._full_view = FullColumns(self.world), cast("View | None", None)

    @property
    def full_columns(self) -> FullColumns:
        """The columns of `jobs` at full length, for compiled code of a host."""
        if not self._full_columns.is_of(self.world):
            self._full_columns = FullColumns(self.world)
        return self._full_columns

    @property
    def full_view(self) -> View:
        """The view, with every column of the jobs at full length."""
        jobs, view = cast("Columns", self.full_columns), self._full_view
        if view is None or view.jobs is not jobs:
            view = self._full_view = copy(self.view)
            view.jobs = jobs
        view.now = self.view.now
        return view

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

    def ended_since(self, row: int) -> tuple[Floats, Floats, int]:
        """Return work and requested GPUs of the jobs that finished, failed or were killed since this row of the log.

        The third result is the row to ask for next time; the first is 0.
        """
        w = self.world
        upto = int(w.si[L.LOG_N])
        kind = w.lg[row:upto, L.L_KIND]
        ended = (kind >= L.K_FINISH) & (kind <= L.K_KILL)
        jobs = w.lg[row:upto, L.L_JOB][ended].astype(np.int64)
        return w.rs[L.R_DONE, jobs], w.tr[L.GPUS, jobs], upto

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
