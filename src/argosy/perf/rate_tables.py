"""Compile performance models to arrays, so that the engine and policies only look numbers up.

A *class* is a distinct (model, batch_size) pair; class 0 is the rigid model, for jobs without a known
network. The batch is the job's total batch, except for models that were measured with a fixed batch per GPU
(Gavel's), whose traces count it per GPU. Everything is in the model's own unit, so only ratios to a job's own
`reference` can be compared between jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.errors import TraceError, UnknownName
from argosy.perf import batch_family as bf
from argosy.perf import catalogue
from argosy.perf.base import Floats, Level, Links, PerfModel
from argosy.perf.batch_family import BatchFamily
from argosy.perf.declared_batches import DeclaredSteps
from argosy.perf.goodput_source import GoodputSource, source_of
from argosy.perf.interference import pair_matrix
from argosy.perf.iteration import IterationModel
from argosy.perf.parameter_server import ServerModel
from argosy.perf.plan_model import Room
from argosy.perf.planned_jobs import PlannedClass, planned_class, planned_rows, refuse_if_too_large, rooms_of
from argosy.perf.rigid import RigidModel
from argosy.perf.server_speeds import Lookup, lookup_in

if TYPE_CHECKING:
    from argosy.cluster.cluster import Cluster, Node

Choice = Literal["auto", "rigid", "iteration", "table", "ps"]
Ints = NDArray[np.int64]
LEAST_PS = 16  # policies that size parameter servers try sizes up to DL2's cap, whatever the trace asks for
RIGID = RigidModel()


@dataclass(frozen=True, slots=True)
class PerfClass:
    """One row of `rate`: a model (None: rigid) at a batch (None: the model's default)."""

    model: str | None = None
    batch: float | None = None
    counts_efficiency: bool = False  # a row of a family: a sample counts as much as one at the smallest batch
    planned: PlannedClass | None = None  # its execution plan, where its jobs name one

    @property
    def name(self) -> str:
        if self.planned is not None:
            batch = "" if self.batch is None else f"@{self.batch:g}"
            return f"{self.model}{batch} {self.planned.label}"
        if self.model is None or self.batch is None:
            return self.model or "rigid"
        return f"{self.model}@{self.batch:g}{' effective' if self.counts_efficiency else ''}"


@dataclass(frozen=True, slots=True)
class RateTables:
    """Tables of throughput: a job's speed is rate[class, type, k, level] / reference; at 1.0 it lasts `work_s`."""

    rate: Floats  # [class, gpu_type, k, level], k = 0..kmax
    ps_rate: Floats  # [ps_class, p, w]; (0, 1, 1) without parameter-server jobs
    pair: Floats  # [class, class]: speed of the row sharing its GPUs with the column, relative to alone
    job_class: Ints  # per trace row
    ps_class: Ints  # per trace row, -1 for all-reduce jobs
    reference: Floats  # per trace row: throughput as requested, on its reference type, consolidated
    work_s: Floats  # per trace row: duration at that reference
    class_names: tuple[str, ...]
    classes: tuple[PerfClass, ...]
    gpu_types: tuple[str, ...]  # the order of rate's second axis
    pair_type: str  # the GPU type that `pair` was computed for
    links: Links
    ps_names: tuple[str, ...] = ()  # networks of ps_rate's first axis
    families: tuple[BatchFamily, ...] = ()  # networks whose batch size policies may choose
    job_family: Ints | None = None  # per trace row: the number of its family, -1: its batch is fixed; None: all are
    parts: Floats | None = None  # see argosy.perf.batch_family: rows of all families and schedules
    first_part: Ints | None = None  # per trace row: its first row in `parts`, -1: its speed does not change
    rooms: tuple[Room, ...] = ()  # by GPU type: what execution plans have to fit into

    def plan_of(self, kind: int, gpu_type: int, gpus: int, level: int) -> str:
        """Return the execution plan of a job of this class with these GPUs; nothing where it has none."""
        planned, size = self.classes[kind].planned, self.rate.shape[2] - 1
        if planned is None:
            return ""
        return planned.plan_on(self.gpu_types[gpu_type], gpus, level, size, self.rooms[gpu_type], self.links)


def compile_tables(
    trace_frame: pl.DataFrame,
    cluster: Cluster,
    *,
    model: Choice = "auto",
    reference_type: str | None = None,
    kmax: int = 256,
    locality: bool = True,
    ps_speeds: str = "fitted",
    goodput: str = "fitted",
    reconfigures: bool = False,
) -> RateTables:
    """Compile a validated trace frame for a cluster.

    `model`: "auto" takes the catalogue's model if the trace names a known network; "iteration" and "table" take only
    models of that kind; "rigid" takes none; "ps" treats every job as a parameter-server job (one server per worker if
    the trace gives none). Requested sizes are always covered; `kmax` limits how far elastic ranges are covered.
    Without `locality` every placement is as fast as a consolidated one. `ps_speeds`: see
    argosy.perf.server_speeds. `goodput`: see
    argosy.perf.goodput_source. If the policy `reconfigures`, jobs take the fastest of their execution plans.
    """
    types = cluster.gpu_types or ("gpu",)
    links = Links.of(cluster.network)
    gpus = trace_frame["gpus"].to_numpy().astype(np.float64)
    servers = _servers(trace_frame, gpus, model)
    job_class, classes = _classes(trace_frame, servers == 0, model)
    changing = ChangingBatches(types, links, source_of(goodput), cluster)
    job_class, classes = changing.classes(trace_frame, job_class, classes)
    rooms = rooms_of(cluster, types)
    job_class, chosen_class, classes = _planned(trace_frame, job_class, classes, types, rooms)
    ps_class, ps_models = _ps_classes(trace_frame, servers > 0, lookup_in(ps_speeds))
    size = _size(trace_frame, gpus, cluster, kmax)
    families = changing.families(size)
    known = {f.first_class + i: f.throughput[i] * f.efficiency[i] for f in families for i in range(len(f.batches))}
    rate = np.stack([known[i] if i in known else _rates(c, types, size, links, rooms) for i, c in enumerate(classes)])

    k = np.minimum(np.ceil(gpus), size).astype(np.int64)
    type_index = _type_index(trace_frame["gpu_type"], types, reference_type)
    narrowest = _consolidated(cluster.nodes, types, size)
    if not locality:
        rate = _at_narrowest(rate, narrowest)
    level = narrowest[type_index, k]
    if not locality:
        families = tuple(replace(f, throughput=_at_narrowest(f.throughput, narrowest)) for f in families)
    reference = rate[job_class, type_index, k, level] * np.where(gpus < 1, gpus, 1.0)
    changing.refer(reference, rate[:, type_index, k, level])
    ps_rate = np.zeros((0, 1, 1))
    if ps_models:
        most = max(LEAST_PS, int(servers.max()))
        grid_p, grid_w = np.arange(most + 1)[:, None], np.arange(size + 1)[None, :]
        ps_rate = np.stack([m.samples_per_s(grid_p, grid_w, batch) for m, batch in ps_models])
        rows = ps_class >= 0
        reference[rows] = ps_rate[ps_class[rows], servers[rows], k[rows]]
    reference[k == 0] = 1.0  # CPU-only jobs run at one speed
    pair_type = max(types, key=lambda t: sum(n.gpus for n in cluster.nodes if n.gpu_type == t))
    return RateTables(
        rate,
        ps_rate,
        _pairs(classes, pair_type),
        chosen_class if reconfigures else job_class,
        ps_class,
        reference,
        _work_s(trace_frame, reference, job_class, classes, ps_class, ps_models),
        tuple(c.name for c in classes),
        classes,
        types,
        pair_type,
        links,
        tuple(m.name for m, _ in ps_models),
        families,
        changing.job_family,
        changing.parts(families),
        changing.first_part,
        rooms,
    )


def _at_narrowest(rate: Floats, narrowest: Ints) -> Floats:
    """Return rates that are the same at all levels: those of a consolidated placement."""
    return np.repeat(np.take_along_axis(rate, narrowest[None, :, :, None], axis=3), rate.shape[3], axis=3)


def extend(tables: RateTables, model: str, batch: float | None) -> tuple[RateTables, int]:
    """Return the class of (model, batch), added if new, for policies that change the batch of a running job."""
    known = catalogue.lookup(model)
    if known is None:
        raise UnknownName("network", model, [d.name for d in catalogue.models() if d.kind != "ps"])
    new = PerfClass(known.name, batch)
    if new in tables.classes:
        return tables, tables.classes.index(new)
    classes = (*tables.classes, new)
    rate = np.concatenate([tables.rate, _rates(new, tables.gpu_types, tables.rate.shape[2] - 1, tables.links)[None]])
    pair = _pairs(classes, tables.pair_type)
    return replace(tables, rate=rate, pair=pair, classes=classes, class_names=(*tables.class_names, new.name)), len(
        classes
    ) - 1


class ChangingBatches:
    """The jobs of a trace whose batch size may change: families that policies choose from, and schedules of jobs."""

    def __init__(self, types: tuple[str, ...], links: Links, source: GoodputSource, cluster: Cluster) -> None:
        self._types, self._links, self._source, self._cluster = types, links, source, cluster
        self._families: list[tuple[str, Floats, int]] = []  # network, batches, first class
        self._schedules: dict[str, tuple[Floats, Ints]] = {}  # text → shares from which its classes apply, classes
        self.job_family: Ints | None = None
        self.first_part: Ints | None = None
        self._of_schedule: dict[str, Ints] = {}

    def classes(
        self, frame: pl.DataFrame, job_class: Ints, classes: tuple[PerfClass, ...]
    ) -> tuple[Ints, tuple[PerfClass, ...]]:
        """Add the classes of families and schedules; return the class of each job as requested, and all classes."""
        adaptive = frame["max_batch"].is_not_null().to_numpy() & ((job_class > 0) | self._source.own_names)
        scheduled = frame["batches"].is_not_null().to_numpy() & (job_class > 0)
        if not adaptive.any() and not scheduled.any():
            return job_class, classes
        job_class, grown = job_class.copy(), list(classes)
        self.job_family = np.full(len(job_class), -1, np.int64)
        model_of = np.array([c.model for c in classes], object)[job_class]
        if self._source.own_names:
            model_of[adaptive] = frame["model"].to_numpy()[adaptive]
        for name in sorted(set(model_of[adaptive].tolist())):
            known = self._source.efficiency(name)
            if known is None:
                continue
            rows = np.flatnonzero(adaptive & (model_of == name))
            asked = frame["batch_size"].fill_null(known.m0).to_numpy()[rows]
            limits = frame["max_batch"].to_numpy()[rows]
            batches = bf.grid(known.m0, min(known.mmax, float(limits.max())), np.maximum(asked, known.m0))
            self._families.append((name, batches, len(grown)))
            job_class[rows] = len(grown) + np.searchsorted(batches, np.maximum(asked, known.m0))
            self.job_family[rows] = len(self._families) - 1
            grown += [PerfClass(name, float(batch), True) for batch in batches]
        for (_, text), part in (
            frame.with_row_index("row").filter(pl.Series(scheduled)).group_by("model", "batches", maintain_order=True)
        ):
            rows = part["row"].to_numpy()
            steps = bf.read_schedule(str(text), str(part["job_id"][0]))
            name = str(model_of[rows[0]])
            wanted = [PerfClass(name, batch) for batch, _ in steps]
            for one in wanted:
                if one not in grown:
                    grown.append(one)
            found = np.array([grown.index(one) for one in wanted], np.int64)
            self._schedules[f"{name}|{text}"] = (np.array([since for _, since in steps]), found)
            earlier = self._of_schedule.get(
                f"{name}|{text}", np.zeros(0, np.int64)
            )  # under another name of the network
            self._of_schedule[f"{name}|{text}"] = np.append(earlier, rows).astype(np.int64)
            job_class[rows] = found[0]
        return job_class, tuple(grown)

    def families(self, size: int) -> tuple[BatchFamily, ...]:
        """Return the families, with their speeds up to this number of GPUs."""
        made = []
        for name, batches, first in self._families:
            known, model = self._source.efficiency(name), self._source.steps(name, self._links)
            assert known is not None and model is not None
            upto, _, of_batch = known.parts(batches)
            speeds = [bf.throughput(model, self._types, size, len(Level), float(b), known.m0) for b in batches]
            largest = tuple(model.max_local_batch(t) for t in self._types)
            mean = bf.mean_efficiency(upto, of_batch)
            profiled = not isinstance(model, DeclaredSteps) or model.known is not None
            made.append(BatchFamily(name, known.m0, batches, np.stack(speeds), mean, first, model, largest, profiled))
        return tuple(made)

    def refer(self, reference: Floats, rates: Floats) -> None:
        """Set the reference speeds of jobs that change their batch themselves: the mean over their work.

        `rates` are those of all classes at each job's requested size.
        """
        for text, (since, classes) in self._schedules.items():
            rows = self._of_schedule[text]
            share = np.diff(np.append(since, 1.0))
            reference[rows] = 1.0 / (share[:, None] / rates[classes][:, rows]).sum(axis=0)

    def parts(self, families: tuple[BatchFamily, ...]) -> Floats | None:
        """Return the table of parts, and note where each job's begin."""
        if self.job_family is None:
            return None
        width = max([len(f.batches) for f in families], default=1)
        tables, at = [], 0
        self.first_part = np.full(len(self.job_family), -1, np.int64)
        for number, family in enumerate(families):
            known = self._source.efficiency(family.name)
            assert known is not None
            tables.append(bf.rows_of_parts(*known.parts(family.batches), family.first_class, width))
            self.first_part[self.job_family == number] = at
            at += len(tables[-1])
        for text, (since, classes) in self._schedules.items():
            tables.append(bf.rows_of_schedule(since, classes, width))
            self.first_part[self._of_schedule[text]] = at
            at += len(tables[-1])
        return np.vstack(tables)


def _model_of(perf_class: PerfClass) -> PerfModel:
    known = catalogue.lookup(perf_class.model) if perf_class.model is not None else None
    return RIGID if known is None else known


def _planned(
    frame: pl.DataFrame,
    job_class: Ints,
    classes: tuple[PerfClass, ...],
    types: tuple[str, ...],
    rooms: tuple[Room, ...],
) -> tuple[Ints, Ints, tuple[PerfClass, ...]]:
    """Add the classes of execution plans; return each job's class with its user's plan, and with the best plan."""
    found = planned_rows(frame, job_class)
    if not found:
        return job_class, job_class, classes
    own, best, grown = job_class.copy(), job_class.copy(), list(classes)
    for (model, batch, text), rows in found.items():
        first = str(frame["job_id"][int(rows[0])])
        planned = planned_class(model, batch, text, first)
        for classes_of, plans in ((own, planned.plans[:1]), (best, planned.plans)):
            one = PerfClass(planned.model.name, batch, planned=replace(planned, plans=plans))
            if one not in grown:
                grown.append(one)
            classes_of[rows] = grown.index(one)
        for row in rows.tolist():
            named = [t.strip().lower() for t in (frame["gpu_type"][row] or "").split("|") if t.strip()]
            accepted = [not named or t.lower() in named for t in types]
            gpus = int(frame["gpus"][row])
            refuse_if_too_large(str(frame["job_id"][row]), planned, gpus, types, rooms, accepted)
    return own, best, tuple(grown)


def _rates(
    perf_class: PerfClass, types: tuple[str, ...], size: int, links: Links, rooms: tuple[Room, ...] = ()
) -> Floats:
    """Return the rates [gpu_type, k, level]; a wider boundary never speeds a job up."""
    if perf_class.planned is not None:
        return perf_class.planned.rates(types, size, rooms, links)
    model = _model_of(perf_class)
    if isinstance(model, IterationModel):
        model = replace(model, links=links)
    k = np.arange(size + 1)
    rates = np.array([[model.throughput(t, k, level, perf_class.batch) for level in Level] for t in types])
    return np.ascontiguousarray(np.minimum.accumulate(rates, axis=1).transpose(0, 2, 1))


def _pairs(classes: tuple[PerfClass, ...], gpu_type: str) -> Floats:
    """Return the speeds of all pairs of packed classes; batches count only if they are known per GPU."""
    return pair_matrix([(c.model, c.batch if _model_of(c).per_gpu_batch else None) for c in classes], gpu_type)


def _servers(frame: pl.DataFrame, gpus: Floats, model: Choice) -> Ints:
    """Return parameter servers per row; 0 means all-reduce."""
    if model not in ("auto", "ps"):
        return np.zeros(frame.height, np.int64)
    asked = frame["ps"].fill_null(0).to_numpy().astype(np.int64)
    if model == "ps":
        asked = np.where(asked > 0, asked, np.maximum(np.ceil(gpus), 1).astype(np.int64))
    return np.where(gpus > 0, asked, 0)


def _classes(frame: pl.DataFrame, rows: NDArray[np.bool_], model: Choice) -> tuple[Ints, tuple[PerfClass, ...]]:
    """Return the class of each row, and the classes in order of first appearance after the rigid one."""
    rigid = PerfClass()
    job_class = np.zeros(frame.height, np.int64)
    known: dict[str, PerfModel] = {}
    if model in ("auto", "iteration", "table") and frame["model"].null_count() < frame.height:
        for name in frame["model"].drop_nulls().unique().to_list():
            found = catalogue.lookup(name)
            if found is not None and (model == "auto" or catalogue.kind_of(found) == model):
                known[name] = found
    if not known:
        return job_class, (rigid,)
    named = {name: found.name for name, found in known.items()}
    keys = frame.select(
        pl.col("model").replace_strict(named, default=None, return_dtype=pl.String).alias("name"),
        pl.col("batch_size").fill_null(-1.0).alias("batch"),
        pl.Series("use", rows & (frame["gpus"].to_numpy() > 0)),
    )
    used = keys.with_row_index("row").filter(pl.col("use") & pl.col("name").is_not_null())
    distinct = used.select("name", "batch").unique(maintain_order=True).with_row_index("class", offset=1)
    found_rows = used.join(distinct, on=["name", "batch"], how="inner")
    job_class[found_rows["row"].to_numpy()] = found_rows["class"].to_numpy()
    classes = (PerfClass(name, None if batch <= 0 else batch) for _, name, batch in distinct.iter_rows())
    return job_class, (rigid, *classes)


def _ps_classes(
    frame: pl.DataFrame, rows: NDArray[np.bool_], lookup: Lookup
) -> tuple[Ints, list[tuple[ServerModel, float | None]]]:
    """Return the parameter-server class of each row; jobs of unknown networks share the generic shape."""
    ps_class = np.full(frame.height, -1, np.int64)
    order: dict[tuple[ServerModel, float | None], int] = {}
    where = np.flatnonzero(rows)
    asked = frame[where].select("model", "batch_size")
    for index, (name, batch) in zip(where, asked.iter_rows()):
        found = lookup(name) if name is not None else None
        key = (catalogue.generic_ps(), None) if found is None else (found, batch or None)
        ps_class[index] = order.setdefault(key, len(order))
    return ps_class, list(order)


def _size(frame: pl.DataFrame, gpus: Floats, cluster: Cluster, kmax: int) -> int:
    """Return the largest k that can be looked up: what the trace requests, and its elastic ranges up to kmax."""
    requested = float(gpus.max(initial=1.0))
    ranges = frame["max_gpus"].max()
    elastic = min(float(kmax), float(ranges)) if isinstance(ranges, int | float) else 0.0
    return max(1, min(cluster.total_gpus, int(np.ceil(max(requested, elastic)))))


def _type_index(column: pl.Series, types: tuple[str, ...], reference_type: str | None) -> Ints:
    """Return the reference type of each row: the only one it names, if that exists; else the given or first one."""
    by_name = {t.lower(): i for i, t in reversed(list(enumerate(types)))}
    if reference_type is not None and reference_type.lower() not in by_name:
        raise UnknownName("GPU type", reference_type, types)
    usual = 0 if reference_type is None else by_name[reference_type.lower()]
    if column.null_count() == len(column):
        return np.full(len(column), usual, np.int64)
    own = {name: by_name.get(name.lower(), usual) for name in column.drop_nulls().unique().to_list()}
    return column.replace_strict(own, default=usual, return_dtype=pl.Int64).to_numpy()


def _consolidated(nodes: tuple[Node, ...], types: tuple[str, ...], size: int) -> Ints:
    """Return [gpu_type, k], the narrowest level at which k GPUs of a type exist in the cluster."""
    level = np.full((len(types), size + 1), Level.CLUSTER, np.int64)
    for i, gpu_type in enumerate(types):
        own = [n for n in nodes if n.gpu_type == gpu_type and n.gpus]
        racks: dict[str, int] = {}
        for node in own:
            racks[node.rack] = racks.get(node.rack, 0) + node.gpus
        level[i, : 1 + max(racks.values(), default=size)] = Level.RACK
        level[i, : 1 + max((n.gpus for n in own), default=size)] = Level.NODE
        level[i, : 1 + max((max(n.islands, default=n.gpus) for n in own), default=size)] = Level.ISLAND
    return level


def _work_s(
    frame: pl.DataFrame,
    reference: Floats,
    job_class: Ints,
    classes: tuple[PerfClass, ...],
    ps_class: Ints,
    ps_models: list[tuple[ServerModel, float | None]],
) -> Floats:
    """Return durations; for jobs with only work, work over reference, if the model has absolute speeds."""
    duration = frame["duration_s"]
    if duration.null_count() == 0:
        return duration.to_numpy().astype(np.float64)
    absolute = np.array([_model_of(c).unit != "relative" for c in classes])[job_class]
    if ps_models:
        known = np.array([m.name != catalogue.generic_ps().name for m, _ in ps_models])
        absolute = np.where(ps_class >= 0, known[ps_class], absolute)
    blind = np.flatnonzero(duration.is_null().to_numpy() & ~absolute)
    if len(blind):
        row = int(blind[0])
        more = f" (and {len(blind) - 1} more such jobs)" if len(blind) > 1 else ""
        raise TraceError(
            f"job {frame['job_id'][row]!r} gives work but no duration_s, and no speed is known for model "
            f"{frame['model'][row]!r}{more}",
            hint="give duration_s, or name a network of the performance catalogue "
            "(argosy.perf.catalogue.models()), or register one with argosy.perf.catalogue.register",
        )
    work = frame["work"].fill_null(0.0).to_numpy()
    return np.where(duration.is_null().to_numpy(), work / reference, duration.fill_null(0.0).to_numpy())
