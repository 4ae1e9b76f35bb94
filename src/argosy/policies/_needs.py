"""What the jobs of a view need and may have: the same arithmetic for every sizer, learned or learning.

The unit of a job is one worker (a GPU with its CPUs and memory), or one parameter server (the same without the GPU).
Its first grant is its smallest number of workers. Resources are rows (GPUs, CPUs, memory), jobs are columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argosy.cluster.view import Context, View
from argosy.policies._filling import SLACK
from argosy.policies._marginal import Sites
from argosy.policies.base import Floats, Ints
from argosy.policies.drf import NO_GPU


@dataclass(frozen=True, slots=True)
class Needs:
    """One row a job, in two tables; what the columns are is said by the properties."""

    rows: Ints  # of the view
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
        """Most parameter servers that can be granted one by one; 0: it has none, or a fixed number."""
        return self.counts[:, 2]

    @property
    def fixed(self) -> Ints:
        """Parameter servers that come with its workers."""
        return self.counts[:, 3]

    @property
    def first(self) -> Floats:
        """[resource, job]: what its smallest number of workers takes."""
        return self.amounts[:, :3].T

    @property
    def worker(self) -> Floats:
        """[resource, job]: what one more takes."""
        return self.amounts[:, 3:6].T

    @property
    def server(self) -> Floats:
        return self.amounts[:, 6:].T


class Surveyor:
    """Reads needs off a view. `cap`: most workers, and most servers, of a job.

    A job's needs are worked out when it is first seen, and anew when nodes come or go.
    """

    def __init__(self, context: Context, cap: int) -> None:
        self.capacity = np.array([context.total_gpus, context.total_cpus, context.total_memory_gib])
        self.per_share = np.divide(1.0, self.capacity, out=np.zeros(3), where=self.capacity > 0)
        self._cap = cap
        self._sites = Sites(len(context.gpu_types), context.node_gpus, context.node_types)
        self._nodes = b""
        self._forget()

    def _forget(self) -> None:
        self._counts = np.zeros((64, 4), np.int64)  # by index; a job that is not known has 0 workers at least
        self._amounts = np.zeros((64, 9))

    def _look_at_nodes(self, view: View) -> None:
        nodes = view.nodes
        seen = nodes.state.tobytes()
        if seen != self._nodes:
            up = nodes.state == 0
            amounts = np.array([nodes.gpus @ up, nodes.cpus @ up, nodes.memory_gib @ up])
            self._nodes, self._there = seen, amounts + SLACK * self.capacity
            self._forget()

    def needs(self, view: View, rows: Ints) -> Needs:
        """Of the jobs in these rows; sizes that no empty nodes of one GPU type would hold are left out."""
        self._look_at_nodes(view)
        index = view.jobs.index[rows]
        if len(index) and (last := int(index.max())) >= len(self._counts):
            more = 2 * last - len(self._counts)
            self._counts = np.pad(self._counts, ((0, more), (0, 0)))
            self._amounts = np.pad(self._amounts, ((0, more), (0, 0)))
        counts = self._counts[index]
        if not counts[:, 0].all():
            self._survey(view)
            counts = self._counts[index]
        return Needs(rows, counts, self._amounts[index])

    def _survey(self, view: View) -> None:
        jobs = view.jobs
        gpus, ps = jobs.gpus, jobs.ps
        whole = gpus >= 1
        units = np.maximum(gpus, 1)
        worker = np.stack([np.ones(len(jobs)), jobs.cpus / units, jobs.memory_gib / units])
        server = worker * NO_GPU
        low = np.where(whole, np.maximum(np.ceil(jobs.min_gpus), 1), 1).astype(np.int64)
        high = np.where(whole, np.floor(jobs.max_gpus), 1).astype(np.int64)
        elastic = high > low
        high = np.maximum(np.minimum(np.minimum(high, self._cap), self._sites.largest_gang(view, worker)), low)
        both = elastic & (jobs.ps_kind >= 0)
        fixed = np.where(both, 0, ps)
        first = worker * low + server * fixed
        first[0] = np.where(whole, low, gpus)
        here = jobs.index < len(self._counts)
        index = jobs.index[here]
        self._counts[index] = np.stack([low, high, np.where(both, self._cap, 0), fixed], axis=1)[here]
        self._amounts[index] = np.concatenate([first, worker, server]).T[here]

    def there(self, view: View) -> Floats:
        """GPUs, CPUs and memory of the nodes that are up."""
        self._look_at_nodes(view)
        return self._there

    def free(self, view: View) -> Floats:
        """What of that nobody holds now."""
        nodes = view.nodes
        up = nodes.state == 0
        return np.array([nodes.free @ up, nodes.free_cpus @ up, nodes.free_memory_gib @ up]) + SLACK * self.capacity
