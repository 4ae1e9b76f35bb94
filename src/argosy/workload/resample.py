"""Draw other weeks from a trace: its days in another order, some twice and some not at all.

What a comparison says of one log depends on the few days that happened to be busy. Runs on resampled days show how much
(a block bootstrap: within a day, jobs stay as they came).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from argosy.errors import InputError
from argosy.seeding import stream
from argosy.workload.trace import TIMES, Trace

DAY_S = 86_400.0
FEWEST_BLOCKS = 5


@dataclass(frozen=True, slots=True, eq=False)
class ResampledDays:
    """A source of runs: the trace itself for its first seed, resampled days for others."""

    original: Trace
    first_seed: int = 0

    def trace(self, seed: int) -> Trace:
        return self.original if seed == self.first_seed else _resampled(self, seed)


@lru_cache(maxsize=2)  # policies of one seed follow each other
def _resampled(source: ResampledDays, seed: int) -> Trace:
    return resample_days(source.original, seed)


def block_length_s(trace: Trace) -> float:
    """Return the length of the blocks: a day, or less if the trace has only a few."""
    span = float(trace.frame["submit_s"][-1] - trace.frame["submit_s"][0])
    if not span > 0:
        what = f"all jobs of {trace.name!r} arrive at once, so its days cannot be resampled"
        raise InputError(what, hint="leave resampling out: --draws 0")
    return min(DAY_S, span / FEWEST_BLOCKS)


def resample_days(trace: Trace, seed: int) -> Trace:
    """Return a trace as long as this one from blocks drawn with replacement; jobs drawn again have other ids."""
    length, first = block_length_s(trace), float(trace.frame["submit_s"][0])
    frame = trace.frame.with_columns(((pl.col("submit_s") - first) // length).cast(pl.Int64).alias("__block"))
    blocks = frame.partition_by("__block", as_dict=True)
    count = int(frame["__block"].max()) + 1  # type: ignore[arg-type]  # a block may have no jobs
    drawn = stream(seed, "resampled days").integers(count, size=count).tolist()
    if not any((block,) in blocks for block in drawn):
        drawn[0] = next(iter(blocks))[0]
    parts = []
    for place, block in enumerate(drawn):
        part = blocks.get((block,))
        if part is None:
            continue
        shift = (place - block) * length
        parts.append(
            part.drop("__block").with_columns(
                pl.format("{}@{}", "job_id", pl.lit(place)).alias("job_id"),
                *(pl.col(time) + shift for time in TIMES),
            )
        )
    frame = pl.concat(parts)
    start = pl.min_horizontal(pl.col("submit_s").min(), 0.0)
    return Trace(frame.with_columns(pl.col(time) - start for time in TIMES).sort("submit_s"), trace.name)
