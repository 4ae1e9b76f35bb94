"""The table model: measured throughputs, exact at measured points.

Between two measured numbers of GPUs, throughput is a straight line in logarithms; beyond the last one it
keeps the last slope, limited to 0 (never falling) … 1 (never better than linear), and likewise before the
first. A level that was not measured has the values of the next narrower one times the general slowdown, or
those of the next wider one. Inside the measured range a wider level is never faster than a narrower one.
Between two batch sizes, interpolation is also linear in logarithms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from argosy.errors import InputError
from argosy.perf import gpus
from argosy.perf.base import Floats, Level, Unit, Workers
from argosy.perf.rigid import default_slowdowns


class Point(NamedTuple):
    """One measurement: the throughput of the whole job."""

    gpu_type: str
    gpus: int
    level: int
    batch: float | None
    throughput: float


Curve = tuple[Floats, Floats]  # log GPUs, ascending; log throughput
Sheet = Mapping[int, Curve]  # by level


def interpolate(curve: Curve, log_k: Floats) -> Floats:
    """Return log throughput on a measured curve, extended at both ends."""
    x, y = curve
    if len(x) == 1:  # one point: linear below it, constant above
        return np.asarray(y[0] + np.minimum(log_k - x[0], 0.0))
    first, last = np.clip(((y[1] - y[0]) / (x[1] - x[0]), (y[-1] - y[-2]) / (x[-1] - x[-2])), 0.0, 1.0)
    inside = np.interp(log_k, x, y)
    return np.asarray(inside + first * np.minimum(log_k - x[0], 0.0) + last * np.maximum(log_k - x[-1], 0.0))


@dataclass(frozen=True, slots=True)
class TableModel:
    """A model that interpolates measured throughputs; it is built with `TableModel.of`."""

    name: str
    sheets: Mapping[str, Mapping[float | None, Sheet]]  # by type, then batch
    unit: Unit = "samples"
    per_gpu_batch: bool = False

    @classmethod
    def of(
        cls, name: str, points: Iterable[Point], *, unit: Unit = "samples", per_gpu_batch: bool = False
    ) -> TableModel:
        grouped: dict[str, dict[float | None, dict[int, dict[int, float]]]] = {}
        for point in points:
            if not point.throughput > 0 or point.gpus < 1:
                raise InputError(
                    f"table of {name!r}: a throughput of {point.throughput} on {point.gpus} GPUs is not valid",
                    hint="leave out runs that failed",
                )
            batches = grouped.setdefault(gpus.canonical(point.gpu_type), {})
            batches.setdefault(point.batch, {}).setdefault(int(point.level), {})[point.gpus] = point.throughput
        if not grouped:
            raise InputError(f"table of {name!r} has no measurements")
        return cls(
            name,
            {
                t: {b: {level: _curve(line) for level, line in levels.items()} for b, levels in batches.items()}
                for t, batches in grouped.items()
            },
            unit,
            per_gpu_batch,
        )

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(self.sheets)

    def max_local_batch(self, gpu_type: str) -> float:
        return float("inf")

    def throughput(self, gpu_type: str, workers: Workers, level: int, batch_size: float | None = None) -> Floats:
        base = gpus.nearest(gpu_type, self.gpu_types)
        ratio = 1.0 if base == gpus.canonical(gpu_type) else gpus.speed(gpu_type) / gpus.speed(base)
        k = np.asarray(workers, np.float64)
        log_k = np.log(np.maximum(k, 1.0))
        lower, upper, weight = _around(self.sheets[base], batch_size)
        rate = (1 - weight) * _levels(lower, log_k)[level]
        if weight > 0:
            rate = rate + weight * _levels(upper, log_k)[level]
        return np.where(k > 0, ratio * np.exp(rate), 0.0)


def _curve(line: Mapping[int, float]) -> Curve:
    sizes = sorted(line)
    return np.log(np.array(sizes, np.float64)), np.log(np.array([line[k] for k in sizes], np.float64))


def _around(batches: Mapping[float | None, Sheet], batch: float | None) -> tuple[Sheet, Sheet, float]:
    """Return the sheets below and above a batch size, and the upper one's weight; None means the middle batch."""
    known = sorted(b for b in batches if b is not None)
    if batch in batches or not known:
        sheet = batches[batch if batch in batches else None]
        return sheet, sheet, 0.0
    wanted = known[len(known) // 2] if batch is None else min(max(batch, known[0]), known[-1])
    high = next(b for b in known if b >= wanted)
    low = next(b for b in reversed(known) if b <= wanted)
    weight = 0.0 if low == high else float(np.log(wanted / low) / np.log(high / low))
    return batches[low], batches[high], weight


def _levels(sheet: Sheet, log_k: Floats) -> list[Floats]:
    """Return log throughput at each level, with missing levels filled in and the order of levels kept."""
    general = np.log(default_slowdowns())
    rows: list[Floats] = []
    for level in Level:
        if level in sheet:
            row = interpolate(sheet[level], log_k)
        elif rows:
            row = rows[-1] + np.where(log_k > 0, general[level] - general[level - 1], 0.0)
        else:
            row = interpolate(sheet[min(sheet)], log_k)  # no narrower level was measured
        if rows:
            row = _not_above(row, rows, sheet, level, log_k)
        rows.append(row)
    return rows


def _not_above(row: Floats, rows: list[Floats], sheet: Sheet, level: int, log_k: Floats) -> Floats:
    """Limit a level to the next narrower one where that was measured; elsewhere raise the narrower levels to it."""
    narrower = level - 1
    if level in sheet and narrower in sheet:
        beyond = (log_k < sheet[narrower][0][0] - 1e-9) | (log_k > sheet[narrower][0][-1] + 1e-9)
        for above in range(level):
            rows[above] = np.where(beyond, np.maximum(rows[above], row), rows[above])
    return np.minimum(row, rows[-1])
