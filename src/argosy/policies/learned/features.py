"""The features of jobs that learned sizers see, the same for policies that decide and environments that train.

A job is a row of numbers. `type` is one-hot; times are in hundreds of time slots, and the work left is at the size that
the job asked for; the share of its dominant resource, its workers and its servers are as granted so far in this time
slot, J is the number of rows and `cap` the most workers, or servers, of a job:

    type | time it has run | work left | dominant share × J | workers / cap | servers / cap

With context columns, which DL2 does not have and which differ between clusters, a row continues:

    time since arrival | GPUs of the cluster per job present, up to 32, / 16 | CPUs per job, up to 128, / 64
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.perf.catalogue import key_of
from argosy.policies.base import Floats, Ints
from argosy.policies.learned.kernels.constants import SLOTS_PER_UNIT

Matrix: TypeAlias = NDArray[np.float32]

COLUMNS = 5
RAN, LEFT, SHARE, WORKERS, SERVERS = range(COLUMNS)  # columns after the types
TIMES = 2  # the first of these columns, which do not change within a time slot
CONTEXT = 3  # further columns, with context
SINCE, GPUS_EACH, CPUS_EACH = range(COLUMNS, COLUMNS + CONTEXT)
MOST = 1e6  # no feature is larger
MOST_GPUS, GPUS_UNIT = 32.0, 16.0  # of the cluster, per job present
MOST_CPUS, CPUS_UNIT = 128.0, 64.0


class JobTypes:
    """Finds the type of each job among the models that a network tells apart."""

    def __init__(self, context: Context, names: tuple[str, ...], of_trace: Ints | None = None) -> None:
        """Create a finder; `of_trace` are types known beforehand, by index of the job, -1 where unknown."""
        self.of_trace = of_trace
        known = {key_of(name): i for i, name in enumerate(names)}
        self._with_servers = np.array([known.get(key_of(name), -1) for name in context.ps_kinds] + [-1])
        self._without = np.array([known.get(key_of(name.partition("@")[0]), -1) for name in context.kinds])

    def of(self, view: View, rows: Ints) -> Ints:
        """Return the number of each job's model among the names; -1 if it is not among them."""
        ps_kind = view.jobs.ps_kind[rows]
        types = self._with_servers[ps_kind]
        if ps_kind.min(initial=0) < 0:
            types = np.where(ps_kind < 0, self._without[view.jobs.kind[rows]], types)
        if self.of_trace is not None:
            before = self.of_trace[view.jobs.index[rows]]
            types = np.where(before >= 0, before, types)
        return np.asarray(types)


@dataclass(frozen=True, eq=False)
class JobFeatures:
    """The features of some jobs that do not change within a time slot."""

    types: Ints  # numbers of the models that the network knows; -1: an unknown model
    times: Matrix  # [job, 3] in hundreds of time slots: time run, work left, time since arrival
    gpus_per_job: float
    cpus_per_job: float

    @classmethod
    def of(cls, view: View, rows: Ints, types: Ints, slot_s: float, there: Floats) -> JobFeatures:
        """Read the features from a view; `there` are the GPUs, CPUs and memory of the nodes that are up."""
        jobs, unit_s, count = view.jobs, SLOTS_PER_UNIT * slot_s, max(len(rows), 1)
        times = np.empty((len(rows), 3), np.float32)
        times[:, 0] = jobs.executed_s[rows] / unit_s
        times[:, 1] = np.minimum(jobs.expected_left_s[rows] / unit_s, MOST)
        times[:, 2] = (view.now - jobs.submitted[rows]) / unit_s
        gpus_each = min(float(there[0]) / count, MOST_GPUS) / GPUS_UNIT
        cpus_each = min(float(there[1]) / count, MOST_CPUS) / CPUS_UNIT
        return cls(types, times, gpus_each, cpus_each)

    def write(self, table: Matrix, types: int, here: slice) -> None:
        """Write the features of the jobs `here` into the first rows of a table with `types` columns for types."""
        n = len(self.types[here])
        show_types(table, self.types[here])
        table[:n, types + RAN : types + RAN + TIMES] = self.times[here, :TIMES]
        if table.shape[1] > types + COLUMNS:
            table[:n, types + SINCE] = self.times[here, TIMES]
            table[:n, types + GPUS_EACH] = self.gpus_per_job
            table[:n, types + CPUS_EACH] = self.cpus_per_job

    def fixed_columns(self, types: int) -> Matrix:
        """Return the types and times alone: [job, types + 2]."""
        table = np.zeros((len(self.types), types + TIMES), np.float32)
        show_types(table, self.types)
        table[:, types:] = self.times[:, :TIMES]
        return table


def show_types(table: Matrix, types: Ints) -> None:
    """Mark the types of jobs in the first rows and columns of a table, one-hot."""
    known = np.flatnonzero(types >= 0)
    table[known, types[known]] = 1.0
