"""Define what a cluster is made of: nodes with GPUs, CPUs and memory, the queues that share it, and reservations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from argosy.cluster.limits import UserLimits
from argosy.errors import ClusterError

MAX_GPUS_PER_NODE = 100_000  # far more than any node has, so that a typing error does not use up all memory
MAX_PLACES = 20_000_000  # nodes × GPUs of the largest one: the simulator keeps a table of that size


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the cluster.

    `islands` are the sizes of GPU groups with a faster link among themselves (socket, PCIe switch, NVLink group), in
    device order; empty means that all GPUs of the node are one island.
    """

    name: str
    gpu_type: str = "gpu"
    gpus: int = 8
    cpus: float = 64.0
    memory_gib: float = 256.0
    rack: str = "rack0"
    islands: tuple[int, ...] = ()
    price_per_hour: float | None = None
    watts_idle: float | None = None
    watts_busy: float | None = None
    gpu_memory_gib: float = 16.0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of jobs: it may always use `quota_gpus`, and borrow idle GPUs up to `limit_gpus` (None: all).

    `parent` and `priority` are for policies that share the cluster between a tree of queues.
    """

    name: str
    quota_gpus: float = 0.0
    limit_gpus: float | None = None
    weight: float = 1.0
    parent: str | None = None
    priority: float = 0.0  # higher first


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that only one queue may use from `start_s` until `end_s`."""

    nodes: tuple[str, ...]
    queue: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Drain:
    """Nodes on which no job starts from `start_s` until `end_s`; jobs that run there go on."""

    nodes: tuple[str, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Loan:
    """Nodes that another cluster lends.

    In step i, of `step_s` seconds, counts[i] of them are lent; after the last step the list begins again.
    """

    nodes: tuple[str, ...]
    queue: str  # to which they belong while they are not lent
    counts: tuple[int, ...]
    step_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidths by the widest boundary that a job crosses; `intra_island_gbps` None means the same as in a node."""

    intra_node_gbps: float = 300.0
    intra_rack_gbps: float = 100.0
    cross_rack_gbps: float = 25.0
    intra_island_gbps: float | None = None


@dataclass(frozen=True)
class Cluster:
    """A cluster: nodes in a fixed order, queues and reservations; a node's position is its index everywhere."""

    nodes: tuple[Node, ...]
    name: str = "cluster"
    network: Network = field(default_factory=Network)
    queues: tuple[Queue, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    drains: tuple[Drain, ...] = ()
    loans: tuple[Loan, ...] = ()
    limits: tuple[UserLimits, ...] = ()  # for people who submit to a daemon; a simulation has none

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def uniform(
        cls,
        nodes: int,
        gpus: int = 8,
        gpu_type: str = "gpu",
        *,
        cpus: float = 64.0,
        memory_gib: float = 256.0,
        nodes_per_rack: int = 20,
        name: str = "",
    ) -> Cluster:
        """Make a cluster of `nodes` equal machines, as tests and examples mostly need."""
        return cls(
            tuple(
                Node(f"n{i}", gpu_type, gpus, cpus, memory_gib, rack=f"r{i // nodes_per_rack}") for i in range(nodes)
            ),
            name or f"{nodes}x{gpus}",
        )

    @classmethod
    def read(cls, source: str | Path) -> Cluster:
        """Read a YAML or CSV file, or the preset of this name."""
        from argosy.cluster.files import read_cluster

        return read_cluster(source)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """Return the GPU types present, in order of first appearance; nodes without GPUs do not count."""
        return tuple(dict.fromkeys(n.gpu_type for n in self.nodes if n.gpus))

    @cached_property
    def racks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.rack for n in self.nodes))

    @cached_property
    def kinds(self) -> tuple[tuple[Node, int], ...]:
        """Return one node of each kind (the same GPUs, CPUs and memory), and how many there are of it."""
        found: dict[tuple[str, int, float, float], list[Node]] = {}
        for node in self.nodes:
            found.setdefault((node.gpu_type, node.gpus, node.cpus, node.memory_gib), []).append(node)
        return tuple((nodes[0], len(nodes)) for nodes in found.values())

    @cached_property
    def total_gpus(self) -> int:
        return sum(n.gpus for n in self.nodes)


def check(cluster: Cluster) -> None:
    """Raise InputError for a cluster that cannot exist."""
    if not cluster.nodes:
        raise ClusterError("the cluster has no nodes", hint="list at least one under `nodes:`")
    names: set[str] = set()
    for node in cluster.nodes:
        if node.name in names:
            raise ClusterError(f"two nodes are named {node.name!r}")
        names.add(node.name)
        if not 0 <= node.gpus <= MAX_GPUS_PER_NODE:
            raise ClusterError(f"node {node.name!r}: gpus must be 0..{MAX_GPUS_PER_NODE}, is {node.gpus}")
        if not node.cpus >= 0 or not node.memory_gib >= 0:
            had = f"{node.cpus}, {node.memory_gib}"
            raise ClusterError(f"node {node.name!r}: cpus and memory_gib must be ≥ 0, are {had}")
        if node.islands and sum(node.islands) != node.gpus:
            raise ClusterError(f"node {node.name!r}: islands {list(node.islands)} do not add up to {node.gpus} GPUs")
    largest = max(cluster.nodes, key=lambda node: node.gpus)
    if len(cluster.nodes) * largest.gpus > MAX_PLACES:
        raise ClusterError(
            f"{len(cluster.nodes):,} nodes of which {largest.name!r} has {largest.gpus:,} GPUs are too many",
            hint=f"nodes times GPUs of the largest one may be {MAX_PLACES:,}; use fewer or smaller nodes",
        )
    queue_names = [q.name for q in cluster.queues]
    if len(set(queue_names)) != len(queue_names):
        raise ClusterError(f"a queue is listed twice: {', '.join(queue_names)}")
    check_parents(cluster.queues)
    quota = sum(q.quota_gpus for q in cluster.queues if q.parent is None)
    if quota > cluster.total_gpus:
        raise ClusterError(f"queue quotas add up to {quota:g} GPUs, the cluster has {cluster.total_gpus}")
    check_spans("reservation", cluster.reservations, names)
    check_spans("drain", cluster.drains, names)
    check_loans(cluster, names)


def check_parents(queues: Sequence[Queue]) -> None:
    """Raise ClusterError for a parent that does not exist, and for a queue that is below itself."""
    parents = {queue.name: queue.parent for queue in queues}
    for queue in queues:
        above, seen = queue.parent, {queue.name}
        while above is not None:
            if above not in parents:
                raise ClusterError(
                    f"queue {queue.name!r}: there is no parent {above!r}", hint="list it under `queues:`"
                )
            if above in seen:
                raise ClusterError(f"queue {queue.name!r} is below itself", hint="give one of its parents another one")
            seen.add(above)
            above = parents[above]


def check_spans(what: str, spans: Sequence[Reservation | Drain], names: set[str]) -> None:
    """Raise InputError for reservations that name unknown nodes, end before they begin, or overlap on a node."""
    for i, span in enumerate(spans):
        if not 0 <= span.start_s < span.end_s:
            raise ClusterError(f"{what}: end_s must be after start_s ≥ 0, is {span.end_s:g} after {span.start_s:g}")
        for name in span.nodes:
            if name not in names:
                raise ClusterError(f"{what}: no node is named {name!r}")
            for other in spans[:i]:
                if name in other.nodes and other.start_s < span.end_s and span.start_s < other.end_s:
                    raise ClusterError(
                        f"{what}: node {name!r} has two at the same time, from {other.start_s:g} s"
                        f" and from {span.start_s:g} s",
                        hint="let one end before the other begins",
                    )


def check_loans(cluster: Cluster, names: set[str]) -> None:
    """Raise ClusterError for loans of unknown nodes, of nodes of two loans, and of more nodes than there are."""
    seen = {name for reservation in cluster.reservations for name in reservation.nodes}
    for loan in cluster.loans:
        for name in loan.nodes:
            if name not in names:
                raise ClusterError(f"loan: no node is named {name!r}")
            if name in seen:
                raise ClusterError(f"loan: node {name!r} is reserved, or in two loans", hint="name it once")
            seen.add(name)
        if not loan.counts or not all(0 <= count <= len(loan.nodes) for count in loan.counts):
            raise ClusterError(f"loan: counts must be 0..{len(loan.nodes)} nodes, are {list(loan.counts)}")
        if not loan.step_s >= 1:
            raise ClusterError(f"loan: a step must last at least 1 s, is {loan.step_s:g}")
