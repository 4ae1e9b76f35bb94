"""Build the state matrices from a trace, a cluster and the tables of the performance model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.errors import TraceError
from argosy.mechanism.devices import count_words, words
from argosy.mechanism.kernels import layout as L
from argosy.perf import quality
from argosy.perf.overhead import Overheads
from argosy.perf.rate_tables import RateTables

PLACERS = {
    "consolidate": L.CONSOLIDATE,
    "spread": L.SPREAD,
    "first-fit": L.FIRST_FIT,
    "random": L.RANDOM,
    "rack-aware": L.RACK_AWARE,
}
ENDINGS = {
    "completed": L.ENDED_COMPLETED,
    "failed": L.ENDED_FAILED,
    "killed": L.ENDED_KILLED,
    "cancelled": L.ENDED_CANCELLED,
}
OVERHEADS = {  # columns of `World.ov`
    "start": L.O_START,
    "suspend": L.O_SUSPEND,
    "resume": L.O_RESUME,
    "migrate": L.O_MIGRATE,
    "slice": L.O_SLICE,
    "resize-cold": L.O_RESIZE_COLD,
    "resize-hot": L.O_RESIZE_HOT,
}
NEVER = 1e300
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Names:
    """What the numbers in the matrices stand for."""

    queues: tuple[str, ...]
    users: tuple[str, ...]
    apps: tuple[str, ...]


def build(
    frame: pl.DataFrame,
    cluster: Cluster,
    tables: RateTables,
    expected_s: Floats,
    overheads: Overheads,
    *,
    seed: int,
    strict: bool,
) -> tuple[L.World, Names]:
    """Build a world in which no job has arrived yet."""
    types = cluster.gpu_types or ("gpu",)
    trace, names = trace_rows(frame, cluster, tables, expected_s, types)
    jobs, nodes, devices = frame.height, len(cluster.nodes), max(max(n.gpus for n in cluster.nodes), 1)
    nf, ni, islands = node_rows(cluster, types, devices)
    bk = np.zeros((devices + 1, nodes // 32 + 2), np.int64)
    for node in range(nodes):
        bk[ni[L.N_FREE, node], node >> 5] |= 1 << (node & 31)
        bk[ni[L.N_FREE, node], -1] += 1
    slots = spread_out(min(jobs, 1024) + 2)
    most_parts = sum(max(count_words(node.gpus), 1) for node in cluster.nodes)
    most_servers = int(trace[L.STATIC_F + L.WANT_PS_ASKED].max(initial=0))
    sf, si = np.zeros(L.SF_SIZE), np.zeros(L.SI_SIZE, np.int64)
    sf[L.WAKE] = sf[L.UNTIL] = np.inf
    sf[L.CHECKPOINT_EVERY] = np.inf
    sf[L.MIN_CPU_UNIT] = trace[L.CPU_UNIT].min(initial=0.0)
    sf[L.MIN_MEM_UNIT] = trace[L.MEM_UNIT].min(initial=0.0)
    si[L.JOBS], si[L.NODES], si[L.TYPES_N] = jobs, nodes, len(types)
    si[L.FREE_GPUS] = si[L.TOTAL_GPUS] = cluster.total_gpus
    si[L.MAX_NODE_GPUS] = si[L.DEVICES] = devices
    si[L.WORDS] = count_words(devices)
    si[L.ISLANDS], si[L.STRICT] = islands, strict
    si[L.KMAX] = tables.rate.shape[2] - 1
    si[L.MAX_PREEMPTIONS] = si[L.MAX_CRASHES] = 1 << 40
    si[L.SEED] = seed
    si[L.SHARES] = bool(((trace[L.GPUS] > 0) & (trace[L.GPUS] < 1)).any())  # a share may be all that holds a device
    si[L.RNG] = (seed * 0x9E3779B97F4A7C1 + 0x2545F4914F6CDD1D) & 0x7FFFFFFFFFFFFFFF
    rs = np.zeros((L.RS_ROWS, jobs))
    rs[L.R_FIRST_START] = rs[L.R_FINISH] = np.nan
    rs[L.R_STATUS] = L.UNFINISHED
    queues = np.zeros((L.QU_ROWS, len(names.queues)))
    queues[L.Q_LIMIT] = np.inf
    for q in cluster.queues:
        i = names.queues.index(q.name)
        queues[L.Q_QUOTA, i] = q.quota_gpus
        queues[L.Q_LIMIT, i] = np.inf if q.limit_gpus is None else q.limit_gpus
    si[L.QUOTAS] = any(q.quota_gpus > 0 for q in cluster.queues)
    si[L.RESERVED] = bool(cluster.reservations or cluster.loans)
    costs = np.zeros((len(tables.class_names), L.OV_FIELDS))
    costs[:, : L.O_SLICE] = overheads.for_models([c.model for c in tables.classes])
    costs[:, L.O_SLICE] = costs[:, L.O_SUSPEND] * SLICE_SHARE
    world = L.World(
        jf=np.zeros((L.JF_ROWS, slots)),
        ji=np.zeros((L.JI_ROWS, slots), np.int64),
        nf=nf,
        ni=ni,
        bk=bk,
        en=entry_pool(2 * (cluster.total_gpus + (2 + most_servers) * slots)),  # twice: what is held, and was until now
        hp=np.zeros((8 * slots + 4 * cluster.total_gpus + 256, L.HP_FIELDS)),
        lg=np.zeros((4 * jobs + 8 * slots + 4 * cluster.total_gpus + 1024, L.LG_FIELDS)),
        sf=sf,
        si=si,
        tr=trace,
        so=np.full(jobs, -1, np.int64),
        rs=rs,
        rt=np.ascontiguousarray(tables.rate),
        ps=np.ascontiguousarray(tables.ps_rate),
        pr=np.ascontiguousarray(tables.pair),
        ov=costs,
        cb=np.array([np.nan if c.batch is None else c.batch for c in tables.classes]),
        pt=np.zeros((0, L.PT_FACTORS)) if tables.parts is None else np.ascontiguousarray(tables.parts),
        wk=np.zeros((L.WK_ROWS, max(slots, devices, most_parts) + 2), np.int64),
        sk=np.zeros((L.SK_ROWS, max(slots, nodes, 256) + 2)),
        wq=np.zeros((L.WQ_ROWS, 0), np.int32),
        ex=np.zeros((4, 0)),
        qu=queues,
        gp=np.zeros((0, L.GP_FIELDS), np.int64),
        gq=np.zeros((0, L.GQ_FIELDS)),
    )
    return world, names


SLICE_SHARE = 0.02  # ending a turn keeps the job in memory, so it costs 0.1 s where a suspend takes 5 s


def spread_out(slots: int) -> int:
    """Round slots up to an odd number of cache lines, so that a job's rows lie in different cache sets."""
    lines = -(-slots // 8)
    return 8 * (lines | 1)


def entry_pool(size: int) -> Ints:
    """Make unused entries, linked into a free list."""
    en = np.zeros((size, L.EN_FIELDS), np.int64)
    en[:, L.E_NEXT] = np.arange(1, size + 1)
    en[-1, L.E_NEXT] = -1
    return en


def node_rows(cluster: Cluster, types: tuple[str, ...], devices: int) -> tuple[Floats, Ints, int]:
    nodes = cluster.nodes
    nf = np.zeros((L.NF_ROWS, len(nodes)))
    ni = np.zeros((L.DEVICE0 + 3 * devices + 2 * count_words(devices), len(nodes)), np.int64)
    racks = {name: i for i, name in enumerate(cluster.racks)}
    nf[L.CPU_FREE] = nf[L.CPU_TOTAL] = [n.cpus for n in nodes]
    nf[L.MEM_FREE] = nf[L.MEM_TOTAL] = [n.memory_gib for n in nodes]
    nf[L.SPEED] = nf[L.SPEED_SEEN] = 1.0
    nf[L.SPEED_SEEN_AT] = -np.inf
    ni[L.N_GPUS] = ni[L.N_FREE] = [n.gpus for n in nodes]
    ni[L.N_TYPE] = [types.index(n.gpu_type) if n.gpus else 0 for n in nodes]
    ni[L.N_RACK] = [racks[n.rack] for n in nodes]
    ni[L.N_OWNER] = ni[L.N_HEAD] = -1
    for i, node in enumerate(nodes):
        ni[L.DEVICE0 : L.DEVICE0 + node.gpus, i] = L.WHOLE
        for word, bits in words((1 << node.gpus) - 1):
            ni[L.DEVICE0 + 3 * devices + word, i] = bits
        island_of = np.repeat(np.arange(len(node.islands)), node.islands) if node.islands else 0
        ni[L.DEVICE0 + devices : L.DEVICE0 + devices + node.gpus, i] = island_of
    return nf, ni, int(any(len(n.islands) > 1 for n in nodes))


def codes(column: pl.Series, known: tuple[str, ...] = (), default: str = "") -> tuple[Ints, tuple[str, ...]]:
    """Number names in order of first appearance, after the known ones."""
    filled = column.fill_null(default)
    names = list(dict.fromkeys([*known, *filled.unique(maintain_order=True).to_list()]))
    numbers = filled.replace_strict(names, list(range(len(names))), return_dtype=pl.Int64)
    return numbers.to_numpy(), tuple(names)


def trace_rows(
    frame: pl.DataFrame, cluster: Cluster, tables: RateTables, expected_s: Floats, types: tuple[str, ...]
) -> tuple[Floats, Names]:
    """Return the trace as the matrix that arrivals are copied from, defaults filled in."""
    asked = {name: _numbers(frame[name]) for name in ASKED}
    rows = demand_rows(asked, type_sets(frame, types), cluster, tables, expected_s)
    reserving = [r.queue for r in cluster.reservations] + [loan.queue for loan in cluster.loans]
    known = (*(q.name for q in cluster.queues), *reserving)
    queue, queues = codes(frame["queue"], known, "default")
    user, users = codes(frame["user"])
    app, apps = codes(frame["app"])
    if frame["app"].null_count():  # a job that belongs to no search counts as its own application
        app = np.where(frame["app"].is_null().to_numpy(), len(apps) + np.arange(frame.height), app)
    static = rows[L.STATIC_F :]
    static[L.QUEUE], static[L.USER], static[L.APP] = queue, user, app
    set_quality(rows, quality_numbers(frame["quality"]))
    static[L.ENDING] = frame["status"].replace_strict(ENDINGS, return_dtype=pl.Int64).to_numpy()
    return rows, Names(queues, users, apps)


def _numbers(column: pl.Series) -> Floats:
    """Return a column as numbers, with a number for each of its words; NaN: not given."""
    if column.name in L.WORDS_OF:
        column = column.replace_strict(L.WORDS_OF[column.name], default=None, return_dtype=pl.Float64)
    return column.cast(pl.Float64).to_numpy()


def number_of(column: str, value: str | float | None) -> float | None:
    """Return a value of a trace's column as the kernels have it: words such as `none` have numbers."""
    return L.WORDS_OF[column].get(value) if isinstance(value, str) else value


def quality_numbers(column: pl.Series) -> Ints:
    """Return the numbers of these jobs' quality curves; -1 where none is named."""
    numbers = {name: i for i, name in enumerate(quality.names())}
    return column.replace_strict(numbers, default=-1, return_dtype=pl.Int64).to_numpy()


ASKED = ("submit_s", "gpus", "cpus", "memory_gib", "min_gpus", "max_gpus", "ps", "work", *L.FROM_TRACE)


def demand_rows(
    asked: Mapping[str, Floats], accepted: Ints, cluster: Cluster, tables: RateTables, expected_s: Floats
) -> Floats:
    """Return what jobs ask for (NaN: not given) and their speeds, as rows; queue, user, app and ending stay 0."""
    gpus = asked["gpus"]
    rows = np.zeros((L.TR_ROWS, len(gpus)))

    def column(name: str, default: float | Floats) -> Floats:
        return np.where(np.isnan(asked[name]), default, asked[name])

    with_gpus = [n for n in cluster.nodes if n.gpus]
    cpus_per_gpu = min((n.cpus / n.gpus for n in with_gpus), default=0.0)
    memory_per_gpu = min((n.memory_gib / n.gpus for n in with_gpus), default=0.0)
    rows[L.SUBMIT] = asked["submit_s"]
    rows[L.GPUS] = gpus
    rows[L.CPUS] = column("cpus", gpus * cpus_per_gpu)
    rows[L.MEMORY] = column("memory_gib", gpus * memory_per_gpu)
    units = np.maximum(gpus, 1.0)
    rows[L.CPU_UNIT], rows[L.MEM_UNIT] = rows[L.CPUS] / units, rows[L.MEMORY] / units
    rows[L.MIN_GPUS] = column("min_gpus", gpus)
    rows[L.MAX_GPUS] = column("max_gpus", gpus)
    for name, (row, default) in L.FROM_TRACE.items():
        rows[row] = column(name, default)
    rows[L.WORK] = tables.work_s
    rows[L.DECLARED] = np.where(np.isnan(asked["work"]), np.nan, tables.work_s)
    rows[L.EXPECTED] = expected_s
    rows[L.REFERENCE] = tables.reference
    static = rows[L.STATIC_F :]
    static[L.CLASS], static[L.PS_CLASS] = tables.job_class, tables.ps_class
    static[L.TYPES] = accepted
    static[L.WANT_PS_ASKED] = np.where(tables.ps_class >= 0, np.maximum(column("ps", 1.0), 1.0), 0.0)
    static[L.WANT_PLACE] = -1
    static[L.QUALITY] = -1
    static[L.FAMILY] = -1 if tables.job_family is None else tables.job_family
    static[L.FIRST_PART] = -1 if tables.first_part is None else tables.first_part
    drop_useless_types(rows, tables)
    raise_least_sizes(rows, tables)
    return rows


def set_owners(
    rows: Floats,
    *,
    queue: Sequence[int] | None = None,
    user: Sequence[int] | None = None,
    app: Sequence[int] | None = None,
) -> None:
    """Write the numbers of queues, users or applications into rows that `demand_rows` has made."""
    static = rows[L.STATIC_F :]
    for row, numbers in ((L.QUEUE, queue), (L.USER, user), (L.APP, app)):
        if numbers is not None:
            static[row] = numbers


def set_quality(rows: Floats, numbers: Ints) -> None:
    """Write the numbers of quality curves into rows; a job with a curve has a time budget, which is its work."""
    rows[L.STATIC_F + L.QUALITY] = numbers
    rows[L.DECLARED] = np.where(numbers >= 0, rows[L.WORK], rows[L.DECLARED])


def type_sets(frame: pl.DataFrame, types: tuple[str, ...]) -> Ints:
    """Return bit sets of the GPU types each job accepts."""
    everything = (1 << len(types)) - 1
    sets: dict[str, int] = {}
    for text in frame["gpu_type"].drop_nulls().unique().to_list():
        named = [t.strip().lower() for t in text.split("|") if t.strip()]
        mask = sum(1 << i for i, t in enumerate(types) if t.lower() in named)
        if not named:
            mask = everything
        elif not mask:
            row = frame["gpu_type"].eq(text).fill_null(False).arg_true()[0]
            raise TraceError(
                f"job {frame['job_id'][row]!r}: the cluster has no GPU of type {text!r}",
                hint=f"the cluster has {', '.join(types)}; change gpu_type or the cluster",
            )
        sets[text] = mask
    if not sets:
        return np.full(frame.height, everything)
    return frame["gpu_type"].replace_strict(sets, default=everything, return_dtype=pl.Int64).to_numpy()


def raise_least_sizes(rows: Floats, tables: RateTables) -> None:
    """Raise the least size of jobs whose execution plan does not fit fewer GPUs of some type that they accept."""
    if all(one.planned is None for one in tables.classes):
        return
    runs = tables.rate[:, :, :, 0] > 0
    least = np.where(runs.any(axis=2), runs.argmax(axis=2), 0)  # [class, type]
    of_job = least[tables.job_class]
    accepted = rows[L.STATIC_F + L.TYPES].astype(np.int64)[:, None] >> np.arange(of_job.shape[1]) & 1 == 1
    needed = np.where(accepted, of_job, 0).max(axis=1)
    planned = np.array([one.planned is not None for one in tables.classes])[tables.job_class]
    rows[L.MIN_GPUS] = np.where(
        planned, np.minimum(np.maximum(rows[L.MIN_GPUS], needed), rows[L.GPUS]), rows[L.MIN_GPUS]
    )


def drop_useless_types(rows: Floats, tables: RateTables) -> None:
    """Remove from each job's accepted GPU types those on which it makes no progress."""
    kmax = tables.rate.shape[2] - 1
    k = np.clip(rows[L.GPUS], 1, kmax).astype(np.int64)
    cls = tables.job_class
    mask = rows[L.STATIC_F + L.TYPES].astype(np.int64)
    for t in range(tables.rate.shape[1]):
        useless = (tables.rate[cls, t, k, 0] <= 0.0) & (tables.ps_class < 0) & (rows[L.GPUS] > 0)
        mask[useless] &= ~(1 << t)
    rows[L.STATIC_F + L.TYPES] = mask
