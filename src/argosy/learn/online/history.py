"""What happened on a cluster, as a trace: from a trace, or from the event log that `argosy simulate --log` writes.

An event log says when jobs were submitted, what they held and how they ended, but neither their networks nor the sizes
that they would have taken: a job's sizes are those that it was seen with, and its work is what it held less overheads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.learn.envs.source import Fixed
from argosy.seeding import stream
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

LEAST_JOBS = 30  # fewer say too little about a workload
MOST_JOBS = 60  # of a drawn window
ENDS = {"finish": "completed", "fail": "failed", "kill": "killed"}
OPENS = ("start", "resume", "migrate", "resize")
CLOSES = ("preempt", "pause", "evict", "crash", *ENDS, "cancel")
SIMULATED = "an event log is what `argosy simulate --log events.jsonl` writes"


@dataclass(frozen=True, eq=False)
class History:
    """Jobs that ended, and the cluster. As cases for training, each seed draws another window of it.

    A window has the arrivals of consecutive jobs, and jobs drawn from the whole history: so a short log gives many
    different windows with the same mix.
    """

    trace: Trace
    cluster: Cluster
    settings: Settings = field(default_factory=lambda: Settings(oversized="skip"))

    @property
    def scenarios(self) -> tuple[str, ...]:
        return (self.trace.name,)

    def source(self, seed: int) -> Fixed:
        """Return the window of a seed."""
        rng, frame = stream(seed, "learn.online"), self.trace.frame
        count = min(len(frame), MOST_JOBS)
        first = int(rng.integers(len(frame) - count + 1))
        arrivals = frame["submit_s"].to_numpy()[first : first + count]
        drawn = frame[rng.integers(len(frame), size=count)].with_columns(
            pl.Series("job_id", [f"w{i:04}" for i in range(count)]),
            pl.Series("submit_s", arrivals - arrivals[0]),
            pl.lit(None, pl.Float64).alias("deadline_s"),
        )
        return Fixed(Trace.of(drawn, f"{self.trace.name}~{seed}"), self.cluster, self.settings)


def split(trace: Trace, held_out: float = 0.35) -> tuple[Trace, Trace]:
    """Return the earlier jobs, to learn from, and the later ones, to judge by; raise an error if there are too few."""
    if len(trace) < LEAST_JOBS:
        raise InputError(
            f"there are {len(trace)} jobs that ended, too few to learn from",
            where=trace.name,
            hint=f"wait until at least {LEAST_JOBS} have ended",
        )
    kept = round(len(trace) * (1.0 - held_out))
    begin_s = float(trace.frame["submit_s"][kept])
    later = trace.frame[kept:].with_columns(pl.col("submit_s") - begin_s, pl.lit(None, pl.Float64).alias("deadline_s"))
    return Trace(trace.frame[:kept], trace.name), Trace.of(later, f"{trace.name}, later part")


def read_log(path: Path) -> Trace:
    """Return the jobs of a trace or of an event log, by what the file begins with."""
    try:
        with path.open("rb") as file:
            begins = file.read(1)
    except OSError as problem:
        hint = "name a daemon's database, an event log or a trace"
        raise InputError(f"cannot be read: {problem.strerror}", where=str(path), hint=hint) from None
    return from_events(path) if begins == b"{" else Trace.read(path)


@dataclass
class _Seen:
    """What an event log has said about a job so far."""

    submit_s: float
    first_gpus: float = 0.0
    sizes: list[float] = field(default_factory=list)
    useful_gpu_s: float = 0.0
    holds: float = 0.0
    works_from_s: float = 0.0

    def settle(self, now_s: float) -> None:
        self.useful_gpu_s += self.holds * max(0.0, now_s - self.works_from_s)
        self.holds = 0.0


def from_events(path: Path) -> Trace:
    """Return the jobs of an event log that ended; others are left out, because their work is not known."""
    seen: dict[str, _Seen] = {}
    jobs: list[Job] = []
    for line, event in _events(path):
        try:
            kind, name, now_s = str(event["event"]), event.get("job"), float(event["t"])
            if name is None:
                continue
            job = seen.setdefault(str(name), _Seen(now_s))
            if kind in OPENS or kind in CLOSES:
                job.settle(now_s)
            if kind in OPENS:
                job.holds = float(event["gpus"])
                job.first_gpus = job.first_gpus or job.holds
                job.sizes.append(job.holds)
                job.works_from_s = now_s + float(event.get("overhead_s", 0.0))
        except (KeyError, TypeError, ValueError) as bad:
            raise InputError(f"this is not an event: {bad!r}", where=f"{path}:{line}", hint=SIMULATED) from None
        if kind in ENDS and job.first_gpus > 0 and np.isfinite(job.useful_gpu_s):
            jobs.append(_job(str(name), job, ENDS[kind]))
    if not jobs:
        raise InputError("no job with GPUs ended in this log", where=str(path), hint="record a longer run")
    return Trace.of_jobs(jobs, path.name)


def _job(name: str, seen: _Seen, status: str) -> Job:
    low, high = min(seen.sizes), max(seen.sizes)
    elastic = high > low
    return Job(
        name,
        seen.submit_s,
        seen.useful_gpu_s / seen.first_gpus,
        seen.first_gpus,
        status=status,
        min_gpus=low if elastic else None,
        max_gpus=high if elastic else None,
    )


def _events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict):
                raise InputError(f"this is not JSON: {line[:60]!r}", where=f"{path}:{number}", hint=SIMULATED)
            yield number, event
