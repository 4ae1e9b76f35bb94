"""What the metrics of a run are computed from: the jobs that count, the span of time, and figures of each job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.sim.result import EventKind, Result
from argosy.sim.timeline import FINISHED, Floats, Timeline, weights

Window = tuple[float, float]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Run:
    """What the metrics are computed from: the run, the jobs that count, and the span of time."""

    result: Result
    timeline: Timeline
    counted: Bools  # the jobs submitted inside the window
    start_s: float
    end_s: float

    @classmethod
    def of(cls, result: Result, window: Window | None = None) -> Run:
        timeline = Timeline(result)
        submit, end = timeline.life
        if window is None:
            bounds = (float(submit.min()), float(end.max())) if submit.size else (0.0, 0.0)
            return cls(result, timeline, np.ones(submit.size, dtype=bool), *bounds)
        if not window[0] < window[1]:
            what = f"the window {window[0]:g}..{window[1]:g} s is empty"
            raise InputError(what, hint="its end must come after its start")
        return cls(result, timeline, (submit >= window[0]) & (submit < window[1]), *window)

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def capacity_gpu_s(self) -> float:
        """Return the GPU-seconds that the cluster offers in the span."""
        return self.result.cluster.total_gpus * self.span_s

    def column(self, name: str) -> Floats:
        """Return a numeric column of all jobs; 0 where it is null."""
        return self.result.jobs[name].fill_null(0).cast(pl.Float64).to_numpy()

    def having(self, *statuses: str) -> Bools:
        """Return which of the counted jobs ended with one of these statuses."""
        mask: Bools = self.counted & self.result.jobs["status"].is_in(statuses).to_numpy()
        return mask

    @cached_property
    def finished(self) -> Bools:
        return self.having(*FINISHED)

    @cached_property
    def rated(self) -> Bools:
        """Return which finished jobs have a length above 0, because ratios need one."""
        return self.finished & (self.column("alone_s") > 0)

    @cached_property
    def jct_s(self) -> Floats:
        """For every job: finish − submit, or its age at the end of the run."""
        submit, end = self.timeline.life
        return end - submit

    @cached_property
    def queueing_s(self) -> Floats:
        """For every job: the part of its life in which it held nothing (never negative by rounding)."""
        return np.maximum(self.jct_s - self.timeline.held_s, 0.0)

    @cached_property
    def slowdown(self) -> Floats:
        """For the rated jobs: JCT / run time alone on their own demand."""
        return self.jct_s[self.rated] / self.column("alone_s")[self.rated]

    @cached_property
    def rho(self) -> Floats:
        """For the rated jobs: JCT / what it would be on the job's fair share of the cluster, all to itself.

        On a share of s GPUs a job that asked for more keeps its GPU-seconds and so takes gpus / s times as
        long; one that asked for less gains nothing. It has to be started there, too.
        """
        submit, end = self.timeline.life
        competing = self.timeline.active_weight.average(submit[self.rated], end[self.rated])
        self.timeline.forget("active_weight")
        fair_gpus = self.result.cluster.total_gpus * weights(self.result)[self.rated] / competing
        gpus = self.column("gpus")[self.rated]
        stretch = np.divide(gpus, fair_gpus, out=np.ones_like(gpus), where=fair_gpus > 0)
        alone_s = self.column("alone_s")[self.rated] * np.maximum(stretch, 1.0)
        return self.jct_s[self.rated] / (self.start_overhead_s[self.rated] + alone_s)

    @cached_property
    def start_overhead_s(self) -> Floats:
        """For every job: what its first start cost; 0 if it never started."""
        starts = self.result.events.filter(pl.col("kind") == int(EventKind.START))
        found = np.zeros(self.result.jobs.height)
        found[starts["job"].to_numpy()] = starts["info"].to_numpy()
        return found

    @cached_property
    def overlap_s(self) -> Floats:
        """For every row of `placements`: how much of it lies in the span."""
        rows = self.timeline.placements
        start, end = rows["start_s"].to_numpy(), rows["end_s"].to_numpy()
        inside: Floats = np.minimum(end, self.end_s) - np.maximum(start, self.start_s)
        return np.maximum(inside, 0.0)

    @cached_property
    def node_gpu_s(self) -> Floats:
        """Return the GPU-seconds held in the span on each node."""
        rows = self.timeline.placements
        held = rows["gpus"].to_numpy() * self.overlap_s
        count = len(self.result.cluster.nodes)
        return np.bincount(rows["node"].to_numpy(), weights=held, minlength=count).astype(np.float64)
