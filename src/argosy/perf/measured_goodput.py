"""Step times and statistical efficiency as the Pollux artifact measured them, for runs that have its tables.

Between measured local batches and numbers of GPUs, times lie on straight lines. A placement on several nodes is taken
to be on as few as it needs. Gradient statistics of a batch size between two measured ones are mixed linearly, epoch by
epoch, as in the artifact's simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from argosy.errors import InputError
from argosy.perf import gpus
from argosy.perf.base import Floats, Level, Links, Workers
from argosy.perf.batch_family import Efficiency, StepModel
from argosy.perf.catalogue import key_of
from argosy.slack import COUNT_SLACK

TYPES = {"aws": "t4", "azure": "v100", "dgx-ext": "a100", "quad": "rtx6000", "rtx": "2080ti", "dgx": "dgxa100"}
LARGEST_LOCAL = {("yolov3", "t4"): 8.0}  # the artifact's own limit, below what it measured
LEAST_SQUARE = 1e-9  # of the variance: some squared norms were measured as 0
Line = tuple[Floats, Floats, Floats]  # local batches, step s, sync s
Lines = Mapping[tuple[int, int], Line]  # by (nodes, GPUs)


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """The measured steps of one network, by GPU type."""

    lines: Mapping[str, Lines]
    node_gpus: Mapping[str, int]
    largest: Mapping[str, float]
    smallest: Mapping[str, float]
    _between: dict[tuple[str, int, bool], tuple[Line, Line, float]] = field(default_factory=dict, compare=False)
    _known: dict[tuple[str, int, bool, float], tuple[float, float]] = field(default_factory=dict, compare=False)

    def max_local_batch(self, gpu_type: str) -> float:
        return self.largest[gpus.nearest(gpu_type, self.lines)]

    def throughput(
        self,
        gpu_type: str,
        workers: Workers,
        level: int,
        batch_size: float | None = None,
        *,
        min_accumulation: int = 0,
    ) -> Floats:
        """Return samples per second; the batch is the total one and must be given."""
        rates = []
        for k in np.atleast_1d(np.asarray(workers)).tolist():
            if not k or batch_size is None:
                rates.append(0.0)
                continue
            local = max(np.ceil(batch_size / k - COUNT_SLACK), 1.0)
            passes = max(float(np.ceil(local / self.max_local_batch(gpu_type) - COUNT_SLACK)), 1.0 + min_accumulation)
            atomic = float(np.ceil(local / passes - COUNT_SLACK))
            step_s, pass_s = self.step_times(gpu_type, k, level, atomic)
            rates.append(k * atomic * passes / (step_s + (passes - 1) * pass_s))
        return np.array(rates).reshape(np.shape(workers))

    def step_times(self, gpu_type: str, workers: int, level: int, local_batch: float) -> tuple[float, float]:
        """Return the seconds of a step that synchronises, and of a pass that does not."""
        narrow = level <= Level.NODE
        key = (gpu_type, workers, narrow, local_batch)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._interpolated(gpu_type, workers, narrow, local_batch)
        return known

    def _interpolated(self, gpu_type: str, workers: int, narrow: bool, local_batch: float) -> tuple[float, float]:
        base = gpus.nearest(gpu_type, self.lines)
        ratio = 1.0 if base == gpus.canonical(gpu_type) else gpus.speed(gpu_type) / gpus.speed(base)
        low, high, weight = self._neighbours(base, workers, narrow)
        one, other = _at(low, local_batch), _at(high, local_batch)
        step_s = one[0] + weight * (other[0] - one[0])
        sync_s = one[1] + weight * (other[1] - one[1])
        pass_s = max(step_s - sync_s, 1e-6)
        return float((pass_s / ratio) + sync_s), float(pass_s / ratio)

    def _neighbours(self, base: str, workers: int, narrow: bool) -> tuple[Line, Line, float]:
        """Return the measured lines below and above a number of GPUs, and the weight of the one above."""
        key = (base, workers, narrow)
        known = self._between.get(key)
        if known is None:
            lines, in_node = self.lines[base], self.node_gpus[base]
            nodes = 1 if narrow and workers <= in_node else 0
            sizes = sorted((k, n) for n, k in lines if n == (nodes or max(-(-k // in_node), 2)))
            sizes = sizes or sorted((k, n) for n, k in lines)
            low = max((at for at in sizes if at[0] <= workers), default=sizes[0])
            high = min((at for at in sizes if at[0] >= workers), default=sizes[-1])
            weight = (workers - low[0]) / (high[0] - low[0]) if high[0] > low[0] else 0.0
            known = self._between[key] = lines[low[1], low[0]], lines[high[1], high[0]], weight
        return known


def _at(line: Line, local: float) -> tuple[float, float]:
    """Return step and sync times at a local batch; outside of what was measured, those of the nearest one."""
    batches, step_s, sync_s = line
    scale = 1.0 if local <= batches[-1] else local / batches[-1]
    return float(np.interp(local, batches, step_s)) * scale, float(np.interp(local, batches, sync_s)) * scale


@dataclass(frozen=True, slots=True)
class MeasuredEfficiency:
    """The measured gradient statistics of one network, by batch size and epoch."""

    batches: Floats  # that were measured
    square: Floats  # [batch, epoch] squared norm of the gradient
    variance: Floats
    upto: Floats  # progress at the end of each epoch, as a share of the training

    @property
    def m0(self) -> float:
        return float(self.batches[0])

    @property
    def mmax(self) -> float:
        return float(self.batches[-1])

    def parts(self, batches: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the end of each epoch, φ and the efficiency [epoch, batch]."""
        square = np.array([np.interp(batches, self.batches, of_epoch) for of_epoch in self.square.T])
        square = np.maximum(square, LEAST_SQUARE * np.array([of_epoch.max() for of_epoch in self.variance.T])[:, None])
        variance = np.array([np.interp(batches, self.batches, of_epoch) for of_epoch in self.variance.T])
        scale = batches / self.m0
        return self.upto, self.m0 * variance / square, (variance + square) / (variance / scale + square) / scale


@dataclass(frozen=True, slots=True)
class MeasuredGoodput:
    """What a folder of measurements knows."""

    own_names = False

    of_steps: Mapping[str, MeasuredSteps]
    of_efficiency: Mapping[str, MeasuredEfficiency]

    @classmethod
    def read(cls, folder: Path) -> MeasuredGoodput:
        frames = {}
        for name in ("placements", "scalability", "validation"):
            path = folder / f"pollux_{name}.csv.gz"
            if not path.is_file():
                hint = "give the folder that has pollux_placements.csv.gz, pollux_scalability.csv.gz and "
                raise InputError("this file is needed", where=str(path), hint=f"{hint}pollux_validation.csv.gz")
            text = {"placement": pl.String, "local_bsz": pl.Float64, "batch_size": pl.Float64}
            columns = pl.read_csv(path, n_rows=0).columns
            frames[name] = pl.read_csv(path, schema_overrides={c: t for c, t in text.items() if c in columns})
        placed = frames["placements"].with_columns(
            num_nodes=pl.col("placement").str.len_chars().cast(pl.Int64),
            num_replicas=pl.col("placement")
            .str.split("")
            .list.eval(pl.element().cast(pl.Int64, strict=False))
            .list.sum(),
        )
        keys = ["application", "cluster", "num_nodes", "num_replicas", "local_bsz"]
        times = ["step_time", "sync_time"]
        both = pl.concat(
            [placed.group_by(keys).agg(pl.col(times).mean()), frames["scalability"].select(*keys, *times)],
            how="vertical_relaxed",
        )
        merged = both.filter(pl.col("cluster").is_in(list(TYPES))).unique(keys, keep="first").sort(keys)
        steps, efficiency = {}, {}
        for (name,), part in merged.group_by("application", maintain_order=True):
            steps[key_of(str(name))] = _steps(str(name), part)
        for (name,), part in frames["validation"].group_by("application", maintain_order=True):
            efficiency[key_of(str(name))] = _efficiency(part)
        return cls(steps, efficiency)

    def efficiency(self, model: str) -> Efficiency | None:
        return self.of_efficiency.get(key_of(model)) if key_of(model) in self.of_steps else None

    def steps(self, model: str, links: Links) -> StepModel | None:
        return self.of_steps.get(key_of(model))


def _steps(name: str, part: pl.DataFrame) -> MeasuredSteps:
    lines: dict[str, dict[tuple[int, int], Line]] = {}
    largest, smallest, node_gpus = {}, {}, {}
    for (cluster,), rows in part.group_by("cluster", maintain_order=True):
        gpu_type = TYPES[str(cluster)]
        node_gpus[gpu_type] = 4 if cluster in ("aws", "quad") else 8
        largest[gpu_type] = LARGEST_LOCAL.get((name, gpu_type), float(rows["local_bsz"].to_numpy().max()))
        smallest[gpu_type] = float(rows["local_bsz"].to_numpy().min())
        lines[gpu_type] = {}
        for (nodes, k), line in rows.group_by("num_nodes", "num_replicas", maintain_order=True):
            local, step_s, sync_s = (line[c].to_numpy() for c in ("local_bsz", "step_time", "sync_time"))
            lines[gpu_type][int(str(nodes)), int(str(k))] = local, step_s, sync_s
    return MeasuredSteps(lines, node_gpus, largest, smallest)


def _efficiency(part: pl.DataFrame) -> MeasuredEfficiency:
    runs = [rows.sort("progress") for _, rows in part.sort("batch_size").group_by("batch_size", maintain_order=True)]
    epochs = min(len(rows) for rows in runs)
    end = np.min([rows["progress"].to_numpy()[:epochs] for rows in runs], axis=0)
    return MeasuredEfficiency(
        np.array([rows["batch_size"][0] for rows in runs]),
        np.array([rows["grad_sqr"].to_numpy()[:epochs] for rows in runs]),
        np.array([rows["grad_var"].to_numpy()[:epochs] for rows in runs]),
        end / end[-1],
    )
