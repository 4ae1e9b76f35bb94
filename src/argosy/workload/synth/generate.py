"""Generate a synthetic trace with a given number of jobs, span or load."""

from __future__ import annotations

import math
import os

import polars as pl

from argosy.errors import InputError, UnknownName
from argosy.workload.synth.arrivals import DAY_S
from argosy.workload.synth.papers import DL2_PROFILE, GAVEL, POLLUX
from argosy.workload.synth.production import ACME, HELIOS, PAI, PHILLY
from argosy.workload.synth.profile import Profile
from argosy.workload.trace import Trace

PROFILES: dict[str, Profile] = {p.name: p for p in (PHILLY, HELIOS, PAI, ACME, GAVEL, POLLUX, DL2_PROFILE)}


MAX_SPAN_DAYS = 36_525  # a hundred years; rates are drawn hour by hour
BYTES_PER_JOB = 400  # approximate memory at the peak


def _check_memory(jobs: int) -> None:
    """Raise InputError if the jobs do not fit this machine's memory."""
    need, have = jobs * BYTES_PER_JOB, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        what = f"{jobs:,} jobs need about {need // 2**30:,} GiB of memory, this machine has {have / 2**30:.0f}"
        raise InputError(what, hint=f"ask for at most {have // BYTES_PER_JOB:,} jobs")


def generate(
    like: str,
    jobs: int,
    seed: int,
    *,
    days: float | None = None,
    gpus: float | None = None,
    load: float | None = None,
) -> Trace:
    """Return a trace with the statistics of the named workload; the same arguments always give the same trace.

    The span is the source's own pace, or `days`, or what makes the jobs offer `load` to `gpus` GPUs. With
    `gpus` no job asks for more than the cluster has. The clock starts on a Monday at midnight.
    """
    if like not in PROFILES:
        raise UnknownName("profile", like, PROFILES)
    if jobs < 1:
        raise InputError(f"the number of jobs must be at least 1, is {jobs}")
    if seed < 0:
        raise InputError(f"the seed must be at least 0, is {seed}")
    for what, value in (("days", days), ("gpus", gpus), ("load", load)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{what} must be a number above 0, is {value}")
    if load is not None and gpus is None:
        raise InputError(f"load {load:g} of which cluster?", hint="say how many GPUs it has (gpus)")
    if load is not None and days is not None:
        raise InputError(f"days = {days:g} and load = {load:g} both set the span", hint="give one of them")

    _check_memory(jobs)

    profile = PROFILES[like]
    frame = profile.jobs.draw(jobs, seed, largest_gpus=math.inf if gpus is None else gpus)
    smallest = float(frame["gpus"].to_numpy().min())
    if gpus is not None and smallest > gpus:
        raise InputError(f"jobs like {like} ask for {smallest:g} GPUs and more, the cluster has {gpus:g}")
    if load is not None and gpus is not None:
        span_s = float((frame["gpus"] * frame["duration_s"]).sum()) / (load * gpus)
    elif days is not None:
        span_s = days * DAY_S
    else:
        span_s = profile.arrivals.natural_span_s(jobs)
    if not span_s <= MAX_SPAN_DAYS * DAY_S:
        raise InputError(
            f"{jobs:,} jobs would arrive over {days or span_s / DAY_S:g} days, more than {MAX_SPAN_DAYS:,}",
            hint="give fewer days, a larger load, or fewer jobs",
        )
    digits = len(str(jobs - 1))
    frame = frame.with_columns(
        pl.Series("submit_s", profile.arrivals.times_s(jobs, span_s, seed)).round(3),
        pl.col("duration_s").round(3),
        (pl.lit("j") + pl.int_range(pl.len()).cast(pl.String).str.zfill(digits)).alias("job_id"),
    )
    return Trace.of(frame, f"{like}-{jobs}-seed{seed}")
