"""How good the jobs of a run became: what their quality curves say of the spare GPUs that they held, and when.

A job's accuracy at its end is that of its curve, left alone, and what each stretch with spare GPUs gained: by the share
of the training at which it began and ended, and by luck that belongs to the job. Policies expect the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.perf.quality import QualityCurve, Use, curves
from argosy.seeding import stream
from argosy.sim.result import CLOSING, OPENING, EventKind
from argosy.slack import COUNT_SLACK, GPU_SLACK

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Stretch(NamedTuple):
    """A part of a training with the same use of spare GPUs; `begin` and `end` are shares of the training."""

    use: Use
    begin: float
    end: float
    extra: float  # GPUs
    gpu_s: float


class Quality(NamedTuple):
    """What the jobs of a run reached; NaN for jobs without a curve, and for those that have not completed."""

    final: Floats
    gain: Floats  # over leaving the network alone
    spare_gpu_s: Floats
    wasted_gpu_s: Floats  # those of spare_gpu_s that did not improve the final network


def quality_of(events: pl.DataFrame, kind: Ints, size: Floats, completed: NDArray[np.bool_], seed: int) -> Quality:
    """Return how good jobs became.

    `kind`: the numbers of their curves, `size`: the GPUs beyond which those that a job holds are spare.
    """
    count = len(kind)
    found = Quality(*np.full((2, count), np.nan), *np.zeros((2, count)))
    chosen = np.flatnonzero(kind >= 0)
    if not len(chosen):
        return found
    luck = stream(seed, "quality").standard_normal((count, 2))
    changes = [int(k) for k in OPENING + CLOSING]
    rows = events.filter(pl.col("kind").is_in(changes) & pl.col("job").is_in(chosen))
    held = pl.col("devices").map_batches(lambda d: pl.Series(np.bitwise_count(d.to_numpy())), return_dtype=pl.UInt8)
    gangs = (
        rows.group_by("job", "seq", maintain_order=True)
        .agg(
            pl.col("t").first(),
            pl.col("kind").first(),
            pl.col("info").first(),
            held.cast(pl.Float64).sum().alias("gpus"),
        )
        .sort("job", "seq")
    )
    for (job,), part in gangs.group_by("job", maintain_order=True):
        i = int(job)
        curve = curves()[kind[i]]
        stretches = stretches_of(part, float(size[i]))
        gain = 0.0
        for stretch in stretches:
            gained = _gained(curve, stretch, float(size[i]), luck[i])
            gain += gained
            found.spare_gpu_s[i] += stretch.gpu_s
            lost = 1.0 if gained <= 0 else 1.0 - curve.kept if stretch.use == "growth" and stretch.end < 1.0 else 0.0
            found.wasted_gpu_s[i] += lost * stretch.gpu_s
        if completed[i]:
            found.final[i] = min(max(curve.final + gain, 0.0), 1.0)
            found.gain[i] = found.final[i] - curve.final
    return found


def stretches_of(gangs: pl.DataFrame, size: float) -> list[Stretch]:
    """Return the parts of one training with spare GPUs, from the events of its placements in order."""
    kinds, times = gangs["kind"].to_numpy(), gangs["t"].to_numpy()
    opens = np.isin(kinds, [int(k) for k in OPENING])
    end = np.append(times[1:], times[-1])
    idle = np.where(opens, np.minimum(gangs["info"].to_numpy(), end - times), 0.0)
    worked = np.where(opens, end - times - idle, 0.0)
    done = np.cumsum(worked)
    total = done[-1] if len(done) and done[-1] > 0 else 1.0
    held = gangs["gpus"].to_numpy()
    found: list[Stretch] = []
    for i in np.flatnonzero(opens & (held > size + GPU_SLACK)).tolist():
        use: Use = "growth" if kinds[i] == EventKind.GROW else "replicas"
        begin, last = float((done[i] - worked[i]) / total), float(done[i] / total)
        new = Stretch(use, begin, last, float(held[i] - size), float((held[i] - size) * (end[i] - times[i])))
        before = found[-1] if found else None
        if before is not None and before.use == use and before.end == begin and before.extra == new.extra:
            new = new._replace(begin=before.begin, gpu_s=before.gpu_s + new.gpu_s)
            found.pop()
        found.append(new)
    return found


def _gained(curve: QualityCurve, stretch: Stretch, size: float, luck: Sequence[float] | Floats) -> float:
    wanted = max(math.ceil(size * (curve.gains(stretch.use).gpus - 1.0) - COUNT_SLACK), 1)
    share = min(stretch.extra / wanted, 1.0)
    return share * curve.gained(stretch.use, stretch.begin, stretch.end, float(luck[int(stretch.use == "growth")]))
