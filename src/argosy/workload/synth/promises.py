"""Define the statistics that profiles promise of their traces, and measure them.

A promise has a source: a published figure, or one counted in published data. What a profile had to choose, because
it was not published, is not promised. Promises hold for at least 50,000 jobs over at least eight weeks; smaller
traces vary more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from argosy.workload.synth.arrivals import DAY_S, HOUR_S
from argosy.workload.trace import STATUSES


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise that `statistic` (a key of STATISTICS) of a generated trace is `target` ± a relative `tolerance`."""

    statistic: str
    target: float
    tolerance: float
    source: str

    def measured(self, frame: pl.DataFrame) -> float:
        return STATISTICS[self.statistic](frame)

    def holds(self, frame: pl.DataFrame) -> bool:
        return abs(self.measured(frame) - self.target) <= self.tolerance * abs(self.target)


def _value(frame: pl.DataFrame, expression: pl.Expr) -> float:
    return float(frame.select(expression).item())


def _of(expression: pl.Expr) -> Callable[[pl.DataFrame], float]:
    return lambda frame: _value(frame, expression)


def hourly(frame: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return jobs submitted in each whole hour of the trace."""
    submit_s = frame["submit_s"].to_numpy()
    whole = int(submit_s.max() // HOUR_S)
    return np.bincount((submit_s // HOUR_S).astype(np.int64))[:whole].astype(np.float64)


def _peak_hour(frame: pl.DataFrame) -> float:
    counts = hourly(frame)
    return float(np.quantile(counts, 0.99) / counts.mean())


def _busiest_of_eight(frame: pl.DataFrame) -> float:
    counts = hourly(frame)
    return float(counts[: len(counts) // 8 * 8].reshape(-1, 8).mean(axis=0).max() / counts.mean())


def _night(frame: pl.DataFrame) -> float:
    counts = hourly(frame)
    hour = np.arange(len(counts)) % 24
    return float(counts[(hour >= 3) & (hour < 9)].mean() / counts.mean())


def _weekend(frame: pl.DataFrame) -> float:
    day = (frame["submit_s"].to_numpy() // DAY_S).astype(np.int64)
    weeks = (day.max() + 1) // 7
    per_weekday = np.bincount(day[day < weeks * 7] % 7, minlength=7)
    return float(per_weekday[5:].mean() / per_weekday[:5].mean())


def _ended(status: str) -> pl.Expr:
    return pl.col("status") == status


_DURATION, _GPUS = pl.col("duration_s"), pl.col("gpus")
_GPU_S = _DURATION * _GPUS
STATISTICS: dict[str, Callable[[pl.DataFrame], float]] = {
    "mean duration (s)": _of(_DURATION.mean()),
    "median duration (s)": _of(_DURATION.median()),
    "mean GPUs": _of(_GPUS.mean()),
    "median GPUs": _of(_GPUS.median()),
    "largest job (GPUs)": _of(_GPUS.max()),
    "share of 1-GPU jobs": _of((_GPUS == 1).mean()),
    "jobs per day": lambda frame: frame.height / (_value(frame, pl.col("submit_s").max()) / DAY_S),
    "busiest 1% of hours / mean hour": _peak_hour,
    "busiest hour of eight / mean hour": _busiest_of_eight,
    "hours 3–9 / mean hour": _night,
    "weekend day / weekday": _weekend,
    "job types (model, batch size)": _of(pl.struct("model", "batch_size").n_unique()),
    **{f"share {status}": _of(_ended(status).mean()) for status in STATUSES},
    **{f"GPU-time share {s}": _of(_GPU_S.filter(_ended(s)).sum() / _GPU_S.sum()) for s in STATUSES},
    **{
        f"completed p{q} duration (s)": _of(_DURATION.filter(_ended("completed")).quantile(q / 100))
        for q in (25, 50, 75, 90, 99)
    },
    "completed share of 1-GPU jobs": _of((_GPUS == 1).filter(_ended("completed")).mean()),
}
