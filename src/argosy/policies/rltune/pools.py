"""Which nodes a job may use, how many of them it needs, and what of them is usable now.

Jobs that ask for the same are of one *kind of demand*; everything about a kind that depends only on which nodes are up
and for whom they are reserved is computed once. RLTune's jobs are each bound to a pool of equal nodes. Here the nodes
of each GPU type that a job accepts are a pool, a job that accepts several types may go to any of them but is never
split between two, and nodes of a type may differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import WHOLE, Context, View
from argosy.mechanism.compose import Walk
from argosy.policies.base import Floats, Ints
from argosy.policies.rltune.ways import MOST_RELAXED
from argosy.slack import RESOURCE_SLACK

UNKNOWN = -1
Demand = tuple[int, int, float, float, float, float, int]  # types, queue, GPUs, smallest size, CPUs, memory, servers


@dataclass
class Kinds:
    """The kinds of demand that have been seen, one row each; `Pools` fills the tables."""

    gpus: Ints = field(default_factory=lambda: np.zeros(16, np.int64))  # 1: a share of a GPU; 0: CPUs alone
    milli: Ints = field(default_factory=lambda: np.zeros(16, np.int64))
    units: Floats = field(default_factory=lambda: np.zeros((16, 2)))
    pool: Ints = field(default_factory=lambda: np.zeros(16, np.int64))
    fewest: Ints = field(default_factory=lambda: np.zeros((16, 1), np.int64))
    can_run: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(16, bool))  # if all nodes were empty

    def grow(self) -> None:
        for name, column in list(vars(self).items()):
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))


class Pools:
    """Reads demands from views and remembers them by the index of the job."""

    def __init__(self, context: Context) -> None:
        self._types = max(len(context.gpu_types), 1)
        self._nodes = b""
        self._kind_of: Ints = np.zeros(0, np.int64)

    def kinds_of(self, view: View, rows: Ints) -> Ints:
        """Return the kind of demand of the jobs in these rows."""
        nodes = view.nodes
        seen = nodes.state.tobytes() + nodes.owner.tobytes()
        if seen != self._nodes:
            self._nodes = seen
            self._forget(view)
        index = view.jobs.index[rows]
        if len(index) and (last := int(index.max())) >= len(self._kind_of):
            self._kind_of = np.concatenate([self._kind_of, np.full(last + 64, UNKNOWN, np.int64)])
        for i in np.flatnonzero(self._kind_of[index] == UNKNOWN):
            self._kind_of[index[i]] = self._kind(view, int(rows[i]))
        return np.asarray(self._kind_of[index])

    def _forget(self, view: View) -> None:
        nodes = view.nodes
        self._kind_of[:] = UNKNOWN
        self._known: dict[Demand, int] = {}
        self._pools: dict[tuple[int, int], int] = {}
        self._reserved = bool((nodes.owner >= 0).any())
        self.kinds = Kinds(fewest=np.zeros((16, self._types), np.int64))
        self.is_open = np.zeros((0, len(nodes)), bool)

    def _kind(self, view: View, row: int) -> int:
        jobs = view.jobs
        gpus, ps = float(jobs.gpus[row]), int(jobs.ps[row])
        types = int(jobs.types[row]) if gpus > 0 else -1
        queue = int(jobs.queue[row]) if self._reserved else -1
        demand = (types, queue, gpus, float(jobs.min_gpus[row]), float(jobs.cpus[row]), float(jobs.memory_gib[row]), ps)
        known = self._known.get(demand)
        if known is None:
            known = self._known[demand] = self._add(view, demand)
        return known

    def _add(self, view: View, demand: Demand) -> int:
        types, queue, gpus, smallest, cpus, memory_gib, ps = demand
        kind, kinds, nodes = len(self._known), self.kinds, view.nodes
        if kind >= len(kinds.gpus):
            kinds.grow()
        pool = self._pools.get((types, queue))
        if pool is None:
            pool = self._pools[types, queue] = len(self.is_open)
            is_open = (nodes.state == 0) & ((nodes.owner < 0) | (nodes.owner == queue))
            if types >= 0:
                is_open &= (types >> nodes.type & 1 == 1) & (nodes.gpus > 0)
            self.is_open = np.concatenate([self.is_open, is_open[None]])
        size = int(np.ceil(gpus))
        servers = 1.0 + ps / size if gpus >= 1 else 1.0  # units for each GPU: parameter servers run beside the workers
        kinds.pool[kind], kinds.gpus[kind] = pool, size
        kinds.milli[kind] = round(gpus * WHOLE) if 0 < gpus < 1 else WHOLE
        kinds.units[kind] = np.array([cpus, memory_gib]) / max(gpus, 1.0) * servers
        resources = np.stack([nodes.cpus, nodes.memory_gib], axis=1)
        empty = self.usable(kind, nodes.gpus, resources)
        if ps and np.maximum(empty, 0).sum() < size:  # servers may run on other nodes than workers
            kinds.units[kind] /= servers
            empty = self.usable(kind, nodes.gpus, resources)
        if size == 0:
            kinds.can_run[kind] = (empty >= 0).any()
            return kind
        room = [np.cumsum(np.sort(np.maximum(empty[nodes.type == t], 0))[::-1]) for t in range(self._types)]
        most = max((int(r[-1]) for r in room if len(r)), default=0)
        if most < size and gpus >= 1:  # an elastic job that is too large takes the largest size that there is
            kinds.gpus[kind] = size = max(most, min(size, int(np.ceil(smallest))))
        for t, r in enumerate(room):
            kinds.fewest[kind, t] = int(np.searchsorted(r, size)) + 1 if len(r) and r[-1] >= size else 0
        kinds.can_run[kind] = kinds.fewest[kind].any()
        return kind

    def usable(self, kind: int, free: Ints, spare: Floats, shared: Ints | None = None) -> Ints:
        """Return the GPUs of each node that a job of this kind can use; -1 where it cannot be."""
        kinds = self.kinds
        usable = free.astype(np.int64)
        if shared is not None and kinds.milli[kind] < WHOLE:
            usable = np.where(shared >= kinds.milli[kind], np.maximum(usable, 1), usable)
        for amount, unit in zip(spare.T, kinds.units[kind]):
            if unit > 0 and kinds.gpus[kind] == 0:
                usable = np.where(amount + RESOURCE_SLACK >= unit, usable, -1)
            elif unit > 0:
                usable = np.minimum(usable, ((amount + RESOURCE_SLACK) / unit).astype(np.int64))
        return np.asarray(np.where(self.is_open[kinds.pool[kind]], usable, -1))


class Room(Walk):
    """The tally of what is free while jobs are started one by one, and the ways that each kind of demand has."""

    def __init__(self, view: View, pools: Pools) -> None:
        super().__init__(view, self._as_chosen, None)
        self.pools = pools
        self.way: dict[int, int] = {}
        self.node_type = view.nodes.type.astype(np.int64)
        self.node_gpus = view.nodes.gpus.astype(np.int64)

    def _as_chosen(self, view: View, row: int, gpus: int, free: Ints) -> dict[int, int]:
        return self.way

    def put(self, row: int, kind: int, way: dict[int, int]) -> bool:
        """Start a job where `way` says; False: a node lacks something after all, and the reason is noted."""
        self.way = way
        self._wanted[row] = self.pools.kinds.gpus[kind]
        return self.start(row)

    @property
    def spare(self) -> Floats:
        """CPUs and memory that are free on each node."""
        return np.stack([self.free.cpus, self.free.memory_gib], axis=1)

    @property
    def shared(self) -> Ints:
        """Thousandths left on the device of each node that is shared and has most room."""
        left = np.zeros(len(self.node_gpus), np.int64)
        for (node, _), milli in self._shared.items():
            left[node] = max(left[node], milli)
        return left

    def usable(self, kind: int) -> Ints:
        return self.pools.usable(kind, self.free.gpus, self.spare, self.shared)

    def count_ways(self, kinds: Ints) -> Ints:
        """Return for these kinds of demand the ways of tier 1 (2: several) and of tier 2 (1: there are some)."""
        from argosy.policies.rltune.kernels.tiers import count_ways  # imports Numba: late

        table, found = self.pools.kinds, np.zeros((len(kinds), 2), np.int64)
        count_ways(
            table.gpus[kinds],
            table.milli[kinds],
            table.units[kinds],
            table.pool[kinds],
            table.fewest[kinds],
            self.pools.is_open,
            self.node_type,
            self.node_gpus,
            self.free.gpus,
            self.shared,
            self.spare,
            RESOURCE_SLACK,
            MOST_RELAXED,
            found,
        )
        return found
