"""Compute what jobs demand, with the same arithmetic for all policies that size jobs, hand-written or learned.

The unit of a job is one worker (a GPU with its CPUs and memory) or one parameter server (the same without the GPU).
A job's first grant is its smallest number of workers. Resources are rows (GPUs, CPUs, memory), jobs are columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.policies.base import Floats, Ints
from argosy.policies.common.node_shapes import NodeShapes
from argosy.slack import GPU_SLACK

NO_GPU = np.array([[0.0], [1.0], [1.0]])  # turns what a worker takes into what a parameter server takes


def cluster_totals(context: Context) -> Floats:
    """Return the GPUs, CPUs and memory of all nodes, whether they are up or not."""
    return np.array([context.total_gpus, context.total_cpus, context.total_memory_gib])


def installed(view: View) -> Floats:
    """Return the GPUs, CPUs and memory of the nodes that are up."""
    nodes = view.nodes
    up = nodes.state == 0
    return np.array([nodes.gpus @ up, nodes.cpus @ up, nodes.memory_gib @ up])


def free(view: View) -> Floats:
    """Return the GPUs, CPUs and memory that no job holds, of the nodes that are up."""
    nodes = view.nodes
    up = nodes.state == 0
    return np.array([nodes.free @ up, nodes.free_cpus @ up, nodes.free_memory_gib @ up])


def size_range(view: View) -> tuple[Ints, Ints]:
    """Return the smallest and the largest number of workers of each job; both are 1 for a share and a CPU-only job."""
    jobs = view.jobs
    whole = jobs.gpus >= 1
    low = np.where(whole, np.maximum(np.ceil(jobs.min_gpus), 1), 1).astype(np.int64)
    high = np.where(whole, np.floor(jobs.max_gpus), 1).astype(np.int64)
    return low, high


@dataclass(frozen=True, slots=True)
class Units:
    """What one worker and one parameter server of each job take, as arrays [resource, job]."""

    gpus: Floats  # GPUs that each job asks for
    worker: Floats
    server: Floats

    @classmethod
    def of(cls, view: View) -> Units:
        jobs = view.jobs
        count = np.maximum(jobs.gpus, 1)
        worker = np.stack([np.ones(len(jobs)), jobs.cpus / count, jobs.memory_gib / count])
        return cls(jobs.gpus, worker, worker * NO_GPU)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Which jobs ask for whole GPUs."""
        return self.gpus >= 1

    def amounts(self, workers: Ints, servers: Ints) -> Floats:
        """Return what these numbers of workers and servers take; one worker may be a share of a GPU, or no GPU."""
        taken = self.worker * workers + self.server * servers
        taken[0] = np.where(self.whole, workers, self.gpus)
        return taken


@dataclass(frozen=True, slots=True)
class Demands:
    """The demands of some jobs, in two tables with a row for each job; the properties name the columns."""

    rows: Ints  # rows of the view
    counts: Ints  # [job, 4]
    amounts: Floats  # [job, 9]

    @property
    def low(self) -> Ints:
        """Smallest number of workers; 1 stands for a share of a device, or for CPUs alone."""
        return self.counts[:, 0]

    @property
    def high(self) -> Ints:
        """Largest number of workers."""
        return self.counts[:, 1]

    @property
    def servers(self) -> Ints:
        """Most parameter servers that can be granted one by one; 0 if the job has none, or a fixed number."""
        return self.counts[:, 2]

    @property
    def fixed(self) -> Ints:
        """Parameter servers that come with the job's workers, if their number is fixed."""
        return self.counts[:, 3]

    @property
    def first(self) -> Floats:
        """What the smallest number of workers takes: [resource, job]."""
        return self.amounts[:, :3].T

    @property
    def worker(self) -> Floats:
        """What one more worker takes: [resource, job]."""
        return self.amounts[:, 3:6].T

    @property
    def server(self) -> Floats:
        """What one more parameter server takes: [resource, job]."""
        return self.amounts[:, 6:].T


class DemandReader:
    """Reads the demands of jobs from views; `cap` is the largest number of workers, and of servers, of a job.

    A job's demands are computed when it is first seen, and again when nodes come or go.
    """

    _counts: Ints  # the tables of `Demands`, by the index of the job
    _amounts: Floats

    def __init__(self, context: Context, cap: int) -> None:
        self.capacity = cluster_totals(context)
        self.per_share = np.divide(1.0, self.capacity, out=np.zeros(3), where=self.capacity > 0)
        self._cap = cap
        self._shapes = NodeShapes(len(context.gpu_types))
        self._nodes = b""
        self._forget()

    def read(self, view: View, rows: Ints) -> Demands:
        """Return the demands of the jobs in these rows; sizes that no empty nodes of one GPU type hold are left out."""
        self._look_at_nodes(view)
        index = view.jobs.index[rows]
        if len(index) and (last := int(index.max())) >= len(self._counts):
            more = 2 * last - len(self._counts)
            self._counts = np.pad(self._counts, ((0, more), (0, 0)))
            self._amounts = np.pad(self._amounts, ((0, more), (0, 0)))
        counts = self._counts[index]
        if not counts[:, 0].all():
            self._compute(view)
            counts = self._counts[index]
        return Demands(rows, counts, self._amounts[index])

    def there(self, view: View) -> Floats:
        """Return the GPUs, CPUs and memory of the nodes that are up, with some slack for rounding."""
        self._look_at_nodes(view)
        return self._there

    def free(self, view: View) -> Floats:
        """Return what of the nodes that are up no job holds, with some slack for rounding."""
        return free(view) + GPU_SLACK * self.capacity

    def _forget(self) -> None:
        self._counts = np.zeros((64, 4), np.int64)  # 0 as the smallest number of workers marks an unknown job
        self._amounts = np.zeros((64, 9))

    def _look_at_nodes(self, view: View) -> None:
        seen = view.nodes.state.tobytes()
        if seen != self._nodes:
            self._nodes, self._there = seen, installed(view) + GPU_SLACK * self.capacity
            self._forget()

    def _compute(self, view: View) -> None:
        jobs, units = view.jobs, Units.of(view)
        low, high = size_range(view)
        elastic = high > low
        high = np.maximum(np.minimum(np.minimum(high, self._cap), self._shapes.largest_gang(view, units.worker)), low)
        both = elastic & (jobs.ps_kind >= 0)
        fixed = np.where(both, 0, jobs.ps)
        known = jobs.index < len(self._counts)
        index = jobs.index[known]
        self._counts[index] = np.stack([low, high, np.where(both, self._cap, 0), fixed], axis=1)[known]
        amounts = np.concatenate([units.amounts(low, fixed), units.worker, units.server])
        self._amounts[index] = amounts.T[known]
