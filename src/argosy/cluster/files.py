"""Read cluster files: YAML files, the CSV node lists that come with traces, and the presets that are shipped.

A YAML file lists groups of equal nodes; docs/clusters.md has the format. Node names may be written as ranges
in Slurm's way, `gpu[001-016,020]`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator, model_validator

from argosy.atomic import writing
from argosy.cluster.agent_times import LEASE_S, MARGIN_S, SILENCE_S, check_times
from argosy.cluster.cluster import MAX_GPUS_PER_NODE, Cluster, Drain, Loan, Network, Node, Queue, Reservation
from argosy.cluster.limits import EVERYBODY, UserLimits
from argosy.config import Duration, FileModel, load_yaml, read_text
from argosy.errors import ClusterError, UnknownName

CPUS_PER_GPU = 8.0  # default; a node without GPUs gets as many CPUs as a node with one GPU
MEMORY_GIB_PER_GPU = 64.0
MAX_NODES = 200_000
PRESETS = Path(__file__).with_name("presets")

_EXAMPLE = "nodes: [{count: 4, gpu: v100, gpus: 8}]"
_NETWORK, _NODE = Network(), Node("")
_Name = Annotated[str, Field(min_length=1)]
_Size = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=1)]


class WattsSection(FileModel):
    """The power of a whole node with no GPU in use and with all of them."""

    idle: _Size | None = Field(None, description="watts of a node with no GPU in use")
    busy: _Size | None = Field(None, description="watts of a node with all GPUs in use")

    @model_validator(mode="after")
    def _idle_below_busy(self) -> WattsSection:
        if self.idle is not None and self.busy is not None and self.idle > self.busy:
            raise ValueError(f"idle ({self.idle:g}) is more than busy ({self.busy:g}); are they swapped?")
        return self


class NodeGroup(FileModel):
    """A group of equal nodes."""

    count: int | None = Field(None, ge=1, le=MAX_NODES, description="number of such nodes, 1 if not given")
    name: _Name | None = Field(None, description="one name, a prefix of names, or a range such as n[0-15]")
    gpu: _Name = Field(_NODE.gpu_type, description="the GPU type, such as v100")
    gpus: int = Field(ge=0, le=MAX_GPUS_PER_NODE, description="GPUs in one node; 0 for CPU nodes")
    cpus: _Size | None = Field(None, description="CPU cores of one node")
    memory_gib: _Size | None = Field(None, description="main memory of one node in GiB")
    gpu_memory_gib: float = Field(_NODE.gpu_memory_gib, gt=0, description="memory of one GPU in GiB")
    rack: _Name | None = Field(None, description="the rack, or with nodes_per_rack the prefix of rack names")
    nodes_per_rack: int | None = Field(None, ge=1, description="start a new rack after this many nodes")
    islands: list[_Count] = Field([], description="sizes of the fast-linked GPU groups, such as [4, 4]")
    price_per_hour: _Size | None = Field(None, description="price of one node for one hour")
    watts: WattsSection | None = Field(None, description="power of one node, such as {idle: 400, busy: 2400}")

    @model_validator(mode="after")
    def _islands_are_all_gpus(self) -> NodeGroup:
        if self.islands and sum(self.islands) != self.gpus:
            raise ValueError(f"islands {self.islands} do not add up to {self.gpus} GPUs; list every island")
        return self


class NetworkSection(FileModel):
    """The bandwidths by the widest boundary a job crosses."""

    intra_node_gbps: float = Field(default=_NETWORK.intra_node_gbps, gt=0)
    intra_rack_gbps: float = Field(default=_NETWORK.intra_rack_gbps, gt=0)
    cross_rack_gbps: float = Field(default=_NETWORK.cross_rack_gbps, gt=0)
    intra_island_gbps: float | None = Field(default=None, gt=0)


class QueueSection(FileModel):
    """A queue and its share of the cluster."""

    name: _Name = Field(description="the queue's name, as jobs give it")
    quota_gpus: float = Field(0.0, ge=0, description="GPUs the queue may always use")
    limit_gpus: float | None = Field(None, ge=0, description="GPUs it may use at most, with borrowed ones")
    weight: float = Field(1.0, gt=0, description="its share when queues compete")
    parent: _Name | None = Field(None, description="the queue whose share it has a part of")
    priority: float = Field(0.0, description="of queues that compete for more than their quota; higher first")

    @model_validator(mode="after")
    def _quota_within_limit(self) -> QueueSection:
        if self.limit_gpus is not None and self.limit_gpus < self.quota_gpus:
            what = f"limit_gpus ({self.limit_gpus:g}) is below quota_gpus ({self.quota_gpus:g})"
            raise ValueError(f"{what}; raise the limit or lower the quota")
        return self


class ReservationSection(FileModel):
    """A reservation: nodes that only one queue may use, for some time."""

    nodes: list[_Name] | None = Field(None, description="node names or ranges, such as [n0, n[4-7]]")
    count: int | None = Field(None, ge=1, description="number of nodes; the first that are not reserved at that time")
    queue: _Name = Field(description="the queue they are reserved for")
    start: Duration = Field(0.0, description="since the trace began, such as 2h")
    end: Duration = Field(description="since the trace began, such as 6h")

    @model_validator(mode="after")
    def _sensible(self) -> ReservationSection:
        if (self.nodes is None) == (self.count is None):
            given = "neither nodes nor count is" if self.nodes is None else "both nodes and count are"
            raise ValueError(f"{given} given; give one of them")
        if self.end <= self.start:
            raise ValueError(f"end ({self.end:g} s) must be after start ({self.start:g} s); swap them?")
        return self


class DrainSection(FileModel):
    """A drain: nodes on which no job starts, for some time."""

    nodes: list[_Name] = Field(description="node names or ranges, such as [n0, n[4-7]]")
    start: Duration = Field(0.0, description="since the trace began, such as 2h")
    end: Duration = Field(description="since the trace began, such as 6h")

    @model_validator(mode="after")
    def _sensible(self) -> DrainSection:
        if self.end <= self.start:
            raise ValueError(f"end ({self.end:g} s) must be after start ({self.start:g} s); swap them?")
        return self


class LoanSection(FileModel):
    """Nodes that another cluster lends, by the hour or another step."""

    nodes: list[_Name] = Field(description="node names or ranges, such as [n[16-31]]")
    queue: _Name = Field("inference", description="the queue that has them while they are not lent")
    lent: list[Annotated[int, Field(ge=0)]] = Field(
        min_length=1, description="how many are lent in each step; after the last step the first follows"
    )
    step: Duration = Field(3600.0, description="how long a step is, such as 1h")


class LimitSection(FileModel):
    """The limits of one user; a limit that is left out is the one for all users, and null removes it."""

    queued: int | None = Field(None, ge=0, description="jobs that may wait")
    running: int | None = Field(None, ge=0, description="jobs that may run at once")
    gpus: float | None = Field(None, ge=0, description="GPUs that may be held at once")
    priority: float | None = Field(None, ge=0, le=100, description="the highest priority that may be given")
    queues: list[_Name] | None = Field(None, description="queues that may be used, such as [research]")
    array: int | None = Field(None, ge=1, description="copies in one array")
    guaranteed: float | None = Field(None, ge=0, description="GPUs that are never taken (gpus: 2+6), over all jobs")
    types: dict[_Name, Annotated[float, Field(ge=0)] | None] | None = Field(
        None, description="GPUs of a type that may be held at once, such as {a100: 4}"
    )


class LimitsSection(FileModel):
    """The limits of all users, and those of single users."""

    default: LimitSection = Field(LimitSection.model_validate({}), description="for those who are not named")
    users: dict[_Name, LimitSection] = Field(default_factory=dict, description="by user")


class AgentsSection(FileModel):
    """How a daemon reaches the nodes of the file, if they are other hosts, each with an agent."""

    shared: _Name | None = Field(
        None, description="folder for checkpoints, at the same path on all hosts; without it, they travel to the head"
    )
    silence: Duration = Field(SILENCE_S, gt=0, description="a job goes on without a node that is silent for this long")
    lease: Duration = Field(LEASE_S, gt=0, description="an agent kills its workers after this time without the head")
    margin: Duration = Field(MARGIN_S, gt=0, description="until they are dead and the devices may be given to others")

    @field_validator("shared")
    @classmethod
    def _same_everywhere(cls, shared: str | None) -> str | None:
        if shared is not None and not Path(shared).is_absolute():
            raise ValueError(f"{shared!r} is a relative path, but all hosts must find the folder; begin it with /")
        return shared

    @model_validator(mode="after")
    def _fence_holds(self) -> AgentsSection:
        check_times(self.silence, self.lease, self.margin)
        return self


class ClusterFile(FileModel):
    """A whole cluster file."""

    name: _Name | None = None
    description: str | None = None
    nodes: list[NodeGroup] = Field(description=f"groups of equal nodes; write at least: {_EXAMPLE}")
    network: NetworkSection = NetworkSection()
    queues: list[QueueSection] = Field(default_factory=list)
    reservations: list[ReservationSection] = Field(default_factory=list)
    drains: list[DrainSection] = Field(default_factory=list)
    loans: list[LoanSection] = Field(default_factory=list)
    limits: LimitsSection = LimitsSection.model_validate({})
    agents: AgentsSection | None = Field(None, description="the nodes are other hosts, each with an agent")


def read_agents(source: str | Path) -> AgentsSection | None:
    """Return what a cluster file says about agents; None if its nodes are not other hosts."""
    path = Path(source)
    if str(source) in _preset_names() or not path.is_file() or path.suffix.lower() == ".csv":
        return None
    return load_yaml(path, ClusterFile, ClusterError).agents


def read_cluster(source: str | Path) -> Cluster:
    """Return the cluster in a YAML file (any suffix) or CSV node list (.csv), or the preset of that name."""
    path = Path(source)
    if str(source) in _preset_names():
        return build_cluster(load_yaml(PRESETS / f"{source}.yaml", ClusterFile, ClusterError), str(source))
    if not path.exists():
        near = UnknownName("cluster", str(source), _preset_names()).hint or ""
        guess = f"{near} " if near.startswith("did you mean") else ""
        raise ClusterError(
            f"no cluster file or preset is called {str(source)!r}",
            hint=f"{guess}Presets: {', '.join(_preset_names())}. Or write a YAML file, at least: {_EXAMPLE}",
        )
    if path.suffix.lower() == ".csv":
        return _read_csv(path)
    return build_cluster(load_yaml(path, ClusterFile, ClusterError), path.stem)


@cache
def presets() -> dict[str, str]:
    """Return name and one-line description of every preset."""
    files = {name: load_yaml(PRESETS / f"{name}.yaml", ClusterFile, ClusterError) for name in _preset_names()}
    return {name: file.description or "" for name, file in files.items()}


@cache
def _preset_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in PRESETS.glob("*.yaml")))


def build_cluster(file: ClusterFile, name: str) -> Cluster:
    """Return the cluster that a file describes; `name` is for one that has none."""
    if not file.nodes:
        hint = f"write at least: {_EXAMPLE}"
        raise ClusterError("the cluster has no nodes", where=file.where("nodes"), hint=hint)
    nodes = _nodes(file)
    return Cluster(
        tuple(nodes.values()),
        file.name or name,
        Network(**file.network.model_dump()),
        _queues(file, sum(node.gpus for node in nodes.values())),
        _reservations(file, nodes),
        _drains(file, nodes),
        _loans(file, nodes),
        _limits(file, (node.gpu_type for node in nodes.values())),
    )


def _nodes(file: ClusterFile) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    racks: dict[str, tuple[int, int]] = {}  # by beginning of name: the number being filled, its nodes
    for g, group in enumerate(file.nodes):
        where = file.where("nodes", g, "name")
        try:
            names = _group_names(group, len(nodes))
        except ClusterError as bad:
            raise _at(where, bad) from None
        if len(nodes) + len(names) > MAX_NODES:
            raise ClusterError(f"more than {MAX_NODES:,} nodes", where=where, hint="are the counts right?")
        like, prefix = _group_node(group), group.rack or "r"
        for name in names:
            if name in nodes:
                hint = "give each group its own `name`"
                raise ClusterError(f"two nodes are named {name!r}", where=where, hint=hint)
            rack = like.rack
            if group.nodes_per_rack:
                number, filled = racks.get(prefix, (0, 0))
                number, filled = (number + 1, 0) if filled >= group.nodes_per_rack else (number, filled)
                rack, racks[prefix] = f"{prefix}{number}", (number, filled + 1)
            nodes[name] = replace(like, name=name, rack=rack)
    return nodes


def _group_node(group: NodeGroup) -> Node:
    """Return one node of the group, still without its own name and rack number."""
    share = max(group.gpus, 1)
    return Node(
        name="",
        gpu_type=group.gpu,
        gpus=group.gpus,
        cpus=CPUS_PER_GPU * share if group.cpus is None else group.cpus,
        memory_gib=MEMORY_GIB_PER_GPU * share if group.memory_gib is None else group.memory_gib,
        rack=group.rack or _NODE.rack,
        islands=tuple(group.islands),
        price_per_hour=group.price_per_hour,
        watts_idle=group.watts.idle if group.watts else None,
        watts_busy=group.watts.busy if group.watts else None,
        gpu_memory_gib=group.gpu_memory_gib,
    )


def _group_names(group: NodeGroup, before: int) -> list[str]:
    """Name nodes n0, n1, … through the whole file where a group has no name of its own."""
    count = group.count or 1
    if group.name is None:
        return [f"n{before + i}" for i in range(count)]
    if "[" in group.name or "]" in group.name:
        names = expand(group.name)
        if group.count not in (None, len(names)):
            what = f"count is {group.count}, but {group.name} names {len(names)} nodes"
            raise ClusterError(what, hint="a range needs no count")
        return names
    return [group.name] if count == 1 else [f"{group.name}-{i}" for i in range(count)]


def _queues(file: ClusterFile, gpus: int) -> tuple[Queue, ...]:
    names: set[str] = set()
    for i, queue in enumerate(file.queues):
        if queue.name in names:
            where = file.where("queues", i, "name")
            raise ClusterError(f"the queue {queue.name!r} is listed twice", where=where, hint="remove one")
        names.add(queue.name)
    quota = sum(queue.quota_gpus for queue in file.queues)
    if quota > gpus:
        what = f"queue quotas add up to {quota:g} GPUs, the cluster has {gpus}"
        raise ClusterError(what, where=file.where("queues"), hint="lower quota_gpus of some queues")
    return tuple(Queue(**queue.model_dump()) for queue in file.queues)


def _reservations(file: ClusterFile, nodes: dict[str, Node]) -> tuple[Reservation, ...]:
    queues = [queue.name for queue in file.queues]
    made: list[Reservation] = []
    for i, section in enumerate(file.reservations):
        if queues and section.queue not in queues:
            unknown = UnknownName("queue", section.queue, queues)
            raise ClusterError(unknown.what, where=file.where("reservations", i, "queue"), hint=unknown.hint)
        taken = {n for r in made if r.start_s < section.end and section.start < r.end_s for n in r.nodes}
        try:
            names = _reserved(section, nodes, taken)
        except ClusterError as bad:
            key = "count" if section.nodes is None else "nodes"
            raise _at(file.where("reservations", i, key), bad) from None
        made.append(Reservation(names, section.queue, section.start, section.end))
    return tuple(made)


def _reserved(section: ReservationSection, nodes: dict[str, Node], taken: set[str]) -> tuple[str, ...]:
    if section.nodes is None:
        free = [name for name, node in nodes.items() if node.gpus and name not in taken]
        if len(free) < (section.count or 0):
            what = f"{section.count} nodes are to be reserved, {len(free)} with GPUs are free then"
            raise ClusterError(what, hint="lower count, or choose another time")
        return tuple(free[: section.count])
    names = _named(section.nodes, nodes)
    for name in names:
        if name in taken:
            raise ClusterError(f"{name} is already reserved at that time", hint="choose other nodes")
    return names


def _named(texts: list[str], nodes: dict[str, Node]) -> tuple[str, ...]:
    """Return nodes given by name or range."""
    names = [name for text in texts for name in (expand(text) if "[" in text else [text])]
    for name in names:
        if name not in nodes:
            unknown = UnknownName("node", name, nodes)
            raise ClusterError(unknown.what, hint=unknown.hint if len(nodes) <= 20 else None)
    return tuple(dict.fromkeys(names))


def _drains(file: ClusterFile, nodes: dict[str, Node]) -> tuple[Drain, ...]:
    made: list[Drain] = []
    for i, section in enumerate(file.drains):
        try:
            made.append(Drain(_named(section.nodes, nodes), section.start, section.end))
        except ClusterError as bad:
            raise _at(file.where("drains", i, "nodes"), bad) from None
    return tuple(made)


def _loans(file: ClusterFile, nodes: dict[str, Node]) -> tuple[Loan, ...]:
    made: list[Loan] = []
    for i, section in enumerate(file.loans):
        try:
            names = _named(section.nodes, nodes)
        except ClusterError as bad:
            raise _at(file.where("loans", i, "nodes"), bad) from None
        if max(section.lent) > len(names):
            where = file.where("loans", i, "lent")
            raise ClusterError(f"{max(section.lent)} nodes are to be lent, {len(names)} are named", where=where)
        made.append(Loan(names, section.queue, tuple(section.lent), section.step))
    return tuple(made)


def _limits(file: ClusterFile, types: Iterable[str]) -> tuple[UserLimits, ...]:
    queues, known = [queue.name for queue in file.queues], set(types)
    made: list[UserLimits] = []
    for owner, section in {EVERYBODY: file.limits.default, **file.limits.users}.items():
        keys = ("limits", "default") if owner == EVERYBODY else ("limits", "users", owner)
        for name in section.queues or ():
            if name not in (queues or ["default"]):
                unknown = UnknownName("queue", name, queues or ["default"])
                raise ClusterError(unknown.what, where=file.where(*keys, "queues"), hint=unknown.hint)
        for name in section.types or ():
            if name not in known:
                unknown = UnknownName("GPU type", name, known)
                raise ClusterError(unknown.what, where=file.where(*keys, "types"), hint=unknown.hint)
        given = section.model_dump(include=section.model_fields_set)
        if given.get("types"):
            given["types"] = tuple(sorted(given["types"].items()))
        if given:
            plain = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
            made.append(UserLimits(owner, tuple(sorted(plain.items()))))
    return tuple(made)


def _at(where: str | None, bad: ClusterError) -> ClusterError:
    return ClusterError(bad.what, where=where, hint=bad.hint)


_RANGE = re.compile(r"([^\[\]]*)\[([0-9,-]+)\]([^\[\]]*)")


def expand(text: str) -> list[str]:
    """Return the names in `gpu[001-003,7]-ib`: gpu001-ib, gpu002-ib, gpu003-ib, gpu7-ib."""
    match = _RANGE.fullmatch(text)
    if not match:
        raise ClusterError(f"not a range of names: {text!r}", hint="write n[0-15] or n[001-016,020]")
    head, ranges, tail = match.groups()
    numbers: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and int(first) <= int(last or first)):
            raise ClusterError(f"not a range of numbers: {part!r} in {text!r}", hint="write 0-15")
        if int(last or first) - int(first) >= MAX_NODES:
            raise ClusterError(f"{text!r} names more than {MAX_NODES:,} nodes", hint="is it right?")
        numbers += (f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1))
    return [f"{head}{number}{tail}" for number in numbers]


def collapse(names: Iterable[str]) -> list[str]:
    """Return the shortest ranges that `expand` to the same names in the same order; a lone name stays as it is."""
    ranges: list[tuple[str, list[list[str]]]] = []  # beginning of the name, runs of numbers
    for name in names:
        head, number = re.fullmatch(r"(.*?)(\d*)", name, re.ASCII | re.DOTALL).groups()  # type: ignore[union-attr]
        runs = ranges[-1][1] if ranges and ranges[-1][0] == head and number else None
        if runs is None or not runs[-1][-1]:
            ranges.append((head, [[number]]))
        elif f"{int(runs[-1][-1]) + 1:0{len(runs[-1][0])}d}" == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [_range(head, runs) for head, runs in ranges]


def _range(head: str, runs: list[list[str]]) -> str:
    if len(runs) == 1 and len(runs[0]) == 1:
        return head + runs[0][0]
    return f"{head}[{','.join(run[0] if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"


_COLUMNS = {
    "node": "name",
    "name": "name",
    "num_gpus": "gpus",
    "gpus": "gpus",
    "gpu_type": "gpu_type",
    "num_cpus": "cpus",
    "cpus": "cpus",
    "mem_gb": "memory_gib",
    "memory_gib": "memory_gib",
    "rack": "rack",
    "gpu_memory_gib": "gpu_memory_gib",
    "price_per_hour": "price_per_hour",
    "watts_idle": "watts_idle",
    "watts_busy": "watts_busy",
}
_TEXT = {"name", "gpu_type", "rack"}
_NODES_OF_SIZE = re.compile(r"nodes_(\d+)gpu")


def _read_csv(path: Path) -> Cluster:
    rows = _csv_rows(path)
    where, header = next(rows, (str(path), []))
    if not header:
        hint = "columns: node,gpus,gpu_type,cpus,memory_gib,rack"
        raise ClusterError("the file is empty", where=where, hint=hint)
    size = _NODES_OF_SIZE.fullmatch(header[-1])
    if header[0] == "vc" and len(header) == 2 and size:
        return _by_virtual_cluster(rows, int(size[1]), path)
    for column in header:
        if column not in _COLUMNS:
            unknown = UnknownName("column", column, _COLUMNS)
            raise ClusterError(unknown.what, where=where, hint=unknown.hint)
    fields = [_COLUMNS[column] for column in header]
    for needed in ("name", "gpus"):
        if fields.count(needed) != 1:
            what = f"there must be one column for {'node' if needed == 'name' else needed}"
            raise ClusterError(what, where=where, hint=f"the header is: {','.join(header)}")
    nodes: dict[str, Node] = {}
    for where, row in rows:
        node = _csv_node(dict(zip(fields, row)), where)
        if node.name in nodes:
            raise ClusterError(f"two nodes are named {node.name!r}", where=where, hint="remove one row")
        nodes[node.name] = node
    return _with_nodes(nodes.values(), (), path)


def _csv_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Return (file:line, values) of every row that is not blank; the first has the names of the columns."""
    reader = csv.reader(io.StringIO(read_text(path, ClusterError), newline=""), strict=True)
    columns = 0
    try:
        for row in reader:
            values, where = [value.strip() for value in row], f"{path}:{reader.line_num}"
            if not any(values):
                continue
            columns = columns or len(values)
            if len(values) != columns:
                raise ClusterError(f"{len(values)} values in a row of {columns} columns", where=where)
            yield where, values
    except csv.Error as problem:
        raise ClusterError(f"not a valid CSV row: {problem}", where=f"{path}:{reader.line_num}") from None


def _csv_node(row: dict[str, str], where: str) -> Node:
    if not row["name"]:
        raise ClusterError("the node has no name", where=where, hint="fill in its first column")
    values: dict[str, Any] = {k: v if k in _TEXT else _number(v, k, where) for k, v in row.items() if v}
    if "gpus" not in values or values["gpus"] % 1 or values["gpus"] > MAX_GPUS_PER_NODE:
        what = f"gpus must be a whole number 0..{MAX_GPUS_PER_NODE}, is {row['gpus']!r}"
        raise ClusterError(what, where=where, hint="0 stands for a node without GPUs")
    values["gpus"] = int(values["gpus"])
    share = max(values["gpus"], 1)
    defaults = {"cpus": CPUS_PER_GPU * share, "memory_gib": MEMORY_GIB_PER_GPU * share}
    return Node(**(defaults | values))


def _number(text: str, column: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ClusterError(f"{column} must be a number ≥ 0, is {text!r}", where=where)
    return number


def _by_virtual_cluster(rows: Iterator[tuple[str, list[str]]], gpus: int, path: Path) -> Cluster:
    """Read Helios' list: each virtual cluster is a queue that may always use as many GPUs as its nodes have."""
    nodes: list[Node] = []
    queues: dict[str, Queue] = {}
    for where, (vc, count) in rows:
        number = _number(count, "the number of nodes", where)
        if number % 1 or number > MAX_NODES:
            raise ClusterError(f"the number of nodes must be whole, is {count!r}", where=where)
        if not vc:
            raise ClusterError("the virtual cluster has no name", where=where, hint="fill it in")
        if vc in queues:
            raise ClusterError(f"the virtual cluster {vc!r} is listed twice", where=where, hint="add them up")
        queues[vc] = Queue(vc, quota_gpus=number * gpus)
        nodes += (
            Node(f"{vc}-{i}", gpus=gpus, cpus=CPUS_PER_GPU * gpus, memory_gib=MEMORY_GIB_PER_GPU * gpus)
            for i in range(int(number))
        )
    return _with_nodes(nodes, tuple(queues.values()), path)


def _with_nodes(nodes: Iterable[Node], queues: tuple[Queue, ...], path: Path) -> Cluster:
    try:
        return Cluster(tuple(nodes), path.stem, queues=queues)
    except ClusterError as bad:
        raise _at(str(path), bad) from None


def write_cluster(cluster: Cluster, path: str | Path) -> None:
    """Write the cluster as YAML that `read_cluster` reads back equal; consecutive equal nodes share a line."""
    document: dict[str, Any] = {"name": cluster.name, "nodes": []}
    for node in cluster.nodes:
        if "[" in node.name or "]" in node.name or not node.name:
            raise ClusterError(f"the node name {node.name!r} cannot be written", hint="[ ] stand for ranges")
    for _, alike in groupby(cluster.nodes, key=lambda node: replace(node, name="")):
        group = list(alike)
        document["nodes"] += [
            {"name": names, **_group_values(group[0])} for names in collapse(node.name for node in group)
        ]
    document["network"] = _plain(asdict(cluster.network))
    if cluster.queues:
        document["queues"] = [_plain(asdict(queue)) for queue in cluster.queues]
    if cluster.reservations:
        document["reservations"] = [
            {"nodes": collapse(r.nodes), "queue": r.queue, **_plain({"start": r.start_s, "end": r.end_s})}
            for r in cluster.reservations
        ]
    if cluster.drains:
        document["drains"] = [
            {"nodes": collapse(d.nodes), **_plain({"start": d.start_s, "end": d.end_s})} for d in cluster.drains
        ]
    if cluster.limits:
        written = {
            one.owner: {
                name: dict(v) if name == "types" and v else list(v) if isinstance(v, tuple) else v
                for name, v in one.given
            }
            for one in cluster.limits
        }
        everybody = {"default": written.pop(EVERYBODY)} if EVERYBODY in written else {}
        document["limits"] = everybody | ({"users": written} if written else {})
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    with writing(path) as temporary:
        temporary.write_text(text, "utf-8")


def _group_values(node: Node) -> dict[str, Any]:
    values = _plain(asdict(node))
    watts = {key: values.pop(f"watts_{key}") for key in ("idle", "busy") if f"watts_{key}" in values}
    values = {"gpu": values.pop("gpu_type"), **values, **({"watts": watts} if watts else {})}
    return {key: value for key, value in values.items() if key != "name" and value != ()}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Drop what is not known, write whole numbers without a point, and tuples as lists."""
    plain: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, tuple) and value:
            plain[key] = list(value)
        elif value is not None:
            plain[key] = int(value) if isinstance(value, float) and value.is_integer() else value
    return plain
