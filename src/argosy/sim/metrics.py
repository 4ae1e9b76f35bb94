"""The metrics of a run, each with its one definition.

Conventions that hold for all of them:

- A job is *finished* when it completed, failed or was killed by its owner: failed and killed jobs waited and
  held GPUs like any other. Cancelled, refused and unfinished jobs are not finished and have their own counts.
- Means and percentiles of per-job quantities are over finished jobs. Nothing is dropped in silence: the
  counts stand beside them, and `jct_floor_mean_s` is the mean with unfinished jobs put in at their age.
- The *span* is from the first submission to the last end, or to the end of the run if jobs are unfinished.
  With a `window` it is the window, and only jobs submitted inside [start, end) count in per-job metrics.
- A metric that has nothing to measure is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.sim.result import EventKind, Result
from argosy.sim.timeline import FINISHED, Floats, Timeline, weights
from argosy.slack import TIME_SLACK_S

Window = tuple[float, float]
Bools = NDArray[np.bool_]

HOUR_S = 3600.0
NAN = float("nan")
RHO_TOLERANCE = 0.05  # a job slowed a little by neighbours or a weak machine is not treated unfairly


class Definition(NamedTuple):
    """What a metric means: its unit, whether less is better (None: neither), and the definition in words."""

    unit: str
    lower_is_better: bool | None
    text: str


DEFINITIONS: dict[str, Definition] = {
    "jobs": Definition("jobs", None, "Jobs submitted (inside the window, if there is one)."),
    "completed": Definition("jobs", None, "Jobs that ran to their end."),
    "failed": Definition("jobs", None, "Jobs that ended as failed. They count as finished."),
    "killed": Definition("jobs", None, "Jobs that their owner ended. They count as finished."),
    "cancelled": Definition("jobs", None, "Jobs withdrawn before they finished. They have no JCT."),
    "refused": Definition("jobs", True, "Jobs that this cluster can never run. They have no JCT."),
    "unfinished": Definition(
        "jobs",
        True,
        "Jobs still waiting or running when the run stopped. They have no JCT: see jct_floor_mean_s.",
    ),
    "jct_mean_s": Definition(
        "s",
        True,
        "Job completion time (JCT), finish − submit: mean over finished jobs.",
    ),
    "jct_p50_s": Definition("s", True, "JCT: median over finished jobs."),
    "jct_p90_s": Definition("s", True, "JCT: 90th percentile over finished jobs."),
    "jct_p99_s": Definition("s", True, "JCT: 99th percentile over finished jobs."),
    "jct_floor_mean_s": Definition(
        "s",
        True,
        "Mean JCT with unfinished jobs put in at their age when the run stopped: a lower bound of what "
        "the mean over all of them will be. Equals jct_mean_s when nothing is unfinished.",
    ),
    "queueing_mean_s": Definition(
        "s",
        True,
        "Time between submit and finish in which a job held nothing (JCT − time holding resources): mean "
        "over finished jobs.",
    ),
    "queueing_p50_s": Definition(
        "s",
        True,
        "Time between submit and finish in which a job held nothing (JCT − time holding resources): "
        "median over finished jobs.",
    ),
    "queueing_p99_s": Definition(
        "s",
        True,
        "Time between submit and finish in which a job held nothing (JCT − time holding resources): 99th "
        "percentile over finished jobs.",
    ),
    "first_wait_mean_s": Definition(
        "s",
        True,
        "First start − submit: mean over finished jobs that started.",
    ),
    "makespan_s": Definition("s", True, "Last finish − first submission, over the jobs that finished."),
    "slowdown_mean": Definition(
        "×",
        True,
        "Slowdown = JCT / run time alone on its own demand, undisturbed and consolidated (alone_s): mean "
        "over finished jobs. Jobs with alone_s = 0 are left out of all ratios.",
    ),
    "slowdown_p99": Definition("×", True, "Slowdown: 99th percentile over finished jobs."),
    "rho_max": Definition(
        "×",
        True,
        "Finish-time fairness ρ = JCT / JCT the job would have had alone on its fair share of the "
        "cluster: the largest over finished jobs. The share is s = G·w/W GPUs, with G the GPUs of the "
        "cluster, w the job's weight and W the time average over its life of the weights of all active "
        "jobs (with weights of 1: s = G/N). Alone on it the job takes start_s + alone_s·max(1, gpus/s), "
        "with start_s the overhead of its first start, which it has to pay there, too.",
    ),
    "rho_mean": Definition("×", True, "Finish-time fairness ρ: mean over finished jobs."),
    "rho_over_1": Definition(
        "share",
        True,
        f"Finished jobs with ρ > {1 + RHO_TOLERANCE:g}: worse off than on a fair share of their own, beyond a "
        f"tolerance of {100 * RHO_TOLERANCE:g} %.",
    ),
    "queue_jain": Definition(
        "0..1",
        False,
        "Jain's index (Σx)²/(n·Σx²) over queues, with x the mean of alone_s/JCT over a queue's finished "
        "jobs, the speed its users see: 1 when all n queues are served alike, 1/n when one gets "
        "everything. Jobs without a queue form one.",
    ),
    "utilisation_held": Definition(
        "share",
        False,
        "GPUs held by jobs / GPUs of the cluster, broken ones included: time average over the span.",
    ),
    "utilisation_useful": Definition(
        "share",
        False,
        "As utilisation_held, counting only the useful part of what each job held (its useful_gpu_s / "
        "held_gpu_s, taken as even over its time): without overhead, interference and work done again.",
    ),
    "fragmentation": Definition(
        "share",
        True,
        "Of the GPU-hours that lay idle in the span while jobs waited, the share on nodes that were "
        "partly in use. GPUs of nodes that are down or drained are not idle.",
    ),
    "restarts_per_job": Definition(
        "1/job",
        True,
        "Preemptions, faults, migrations and resizes of all jobs / jobs that were not refused.",
    ),
    "preemptions": Definition("times", True, "Times that a job was stopped so that others could run."),
    "migrations": Definition("times", True, "Times that a running job was moved to other devices."),
    "resizes": Definition("times", True, "Times that a running job was given more or fewer GPUs."),
    "faults": Definition(
        "times",
        True,
        "Crashes of jobs, and evictions from nodes that failed or were drained.",
    ),
    "held_gpu_h": Definition(
        "GPU·h",
        None,
        "GPU-hours held by jobs = useful + overhead + interference + lost.",
    ),
    "useful_gpu_h": Definition("GPU·h", None, "GPU-hours that moved jobs forward for good."),
    "overhead_gpu_h": Definition(
        "GPU·h",
        True,
        "GPU-hours held while starting, restoring, moving or resizing.",
    ),
    "interference_gpu_h": Definition(
        "GPU·h",
        True,
        "GPU-hours lost to neighbours: what a placement gave less than it would have given alone.",
    ),
    "lost_gpu_h": Definition("GPU·h", True, "GPU-hours of work that had to be done again after a fault."),
    "cost_held": Definition(
        "currency",
        True,
        "Price of what jobs held in the span: for each node, price per hour × hours × share of its GPUs "
        "held. Nodes without a price cost nothing; where no node has one there is no figure.",
    ),
    "cost_cluster": Definition(
        "currency",
        True,
        "Price of the whole cluster over the span: Σ price per hour × hours.",
    ),
    "energy_kwh": Definition(
        "kWh",
        True,
        "Energy over the span: for each node, watts_idle + (watts_busy − watts_idle) × share of its GPUs "
        "held. Nodes without watts_busy use none; where no node has it there is no figure.",
    ),
    "deadlines_met": Definition(
        "share",
        False,
        "Jobs that finished by their deadline / jobs that have one. Left out: cancelled jobs, and "
        "unfinished ones whose deadline lies after the end of the run.",
    ),
    "decisions": Definition("calls", None, "Calls of the policy in the whole run."),
    "decision_p50_us": Definition("µs", True, "Time of one call of the policy: median."),
    "decision_p99_us": Definition("µs", True, "Time of one call of the policy: 99th percentile."),
}


def metrics(result: Result, *, window: Window | None = None) -> dict[str, float]:
    """Return every metric of a run by name, in the order of DEFINITIONS."""
    run = Run.of(result, window)
    groups = (_outcomes, _times, _fairness, _use, _losses, _bills, _decisions)
    found = {name: float(value) for group in groups for name, value in group(run).items()}
    return {name: found[name] for name in DEFINITIONS}


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
        """Say which of the counted jobs ended in one of these ways."""
        mask: Bools = self.counted & self.result.jobs["status"].is_in(statuses).to_numpy()
        return mask

    @cached_property
    def finished(self) -> Bools:
        return self.having(*FINISHED)

    @cached_property
    def rated(self) -> Bools:
        """Say which finished jobs have a length: a ratio to nothing says nothing."""
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


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else NAN


def _percentiles(values: Floats, *percents: float) -> list[float]:
    return np.percentile(values, percents).tolist() if values.size else [NAN] * len(percents)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else NAN


def _outcomes(run: Run) -> dict[str, float]:
    statuses = (*FINISHED, "cancelled", "refused", "unfinished")
    return {"jobs": run.counted.sum()} | {status: run.having(status).sum() for status in statuses}


def _times(run: Run) -> dict[str, float]:
    jct, queueing = run.jct_s[run.finished], run.queueing_s[run.finished]
    jct_p50, jct_p90, jct_p99 = _percentiles(jct, 50, 90, 99)
    queueing_p50, queueing_p99 = _percentiles(queueing, 50, 99)
    started = run.finished & run.result.jobs["first_start_s"].is_not_null().to_numpy()
    submit, end = run.timeline.life
    return {
        "jct_mean_s": _mean(jct),
        "jct_p50_s": jct_p50,
        "jct_p90_s": jct_p90,
        "jct_p99_s": jct_p99,
        "jct_floor_mean_s": _mean(run.jct_s[run.finished | run.having("unfinished")]),
        "queueing_mean_s": _mean(queueing),
        "queueing_p50_s": queueing_p50,
        "queueing_p99_s": queueing_p99,
        "first_wait_mean_s": _mean((run.column("first_start_s") - submit)[started]),
        "makespan_s": end[run.finished].max() - submit[run.counted].min() if run.finished.any() else NAN,
    }


def _fairness(run: Run) -> dict[str, float]:
    return {
        "slowdown_mean": _mean(run.slowdown),
        "slowdown_p99": _percentiles(run.slowdown, 99)[0],
        "rho_max": float(run.rho.max()) if run.rho.size else NAN,
        "rho_mean": _mean(run.rho),
        "rho_over_1": _mean((run.rho > 1 + RHO_TOLERANCE).astype(np.float64)),
        "queue_jain": queue_jain(run),
    }


def queue_jain(run: Run) -> float:
    """Return Jain's index over the mean speed (1 / slowdown) that each queue's users see."""
    rows = run.result.jobs.select("queue").filter(pl.Series(run.rated, dtype=pl.Boolean))
    speeds = rows.with_columns(pl.Series("speed", 1.0 / np.maximum(run.slowdown, 1e-12)))
    x = speeds.group_by("queue").agg(pl.col("speed").mean())["speed"].to_numpy()
    return _ratio(float(x.sum() ** 2), float(x.size * (x**2).sum()))


def _use(run: Run) -> dict[str, float]:
    rows, held = run.timeline.placements, run.column("held_gpu_s")
    useful_share = np.divide(run.column("useful_gpu_s"), held, out=np.zeros_like(held), where=held > 0)
    useful = rows["gpus"].to_numpy() * run.overlap_s * useful_share[rows["job"].to_numpy()]
    return {
        "utilisation_held": _ratio(float(run.node_gpu_s.sum()), run.capacity_gpu_s),
        "utilisation_useful": _ratio(float(useful.sum()), run.capacity_gpu_s),
        "fragmentation": fragmentation(run),
    }


def fragmentation(run: Run) -> float:
    """Return which share of the GPU-seconds idle while jobs waited was on nodes partly in use."""
    idle, on_partly_used = run.timeline.free
    waiting = run.timeline.waiting
    edges = np.sort(np.concatenate([idle.t, waiting.t, [run.start_s, run.end_s]]))
    edges = edges[(edges >= run.start_s) & (edges <= run.end_s) & np.append(True, edges[1:] != edges[:-1])]
    start = edges[:-1]
    length_s = np.diff(edges) * (waiting.at(start) > 0)
    wasted, all_idle = (on_partly_used.at(start) * length_s).sum(), (idle.at(start) * length_s).sum()
    return _ratio(float(wasted), float(all_idle))


def _losses(run: Run) -> dict[str, float]:
    kinds = ("preemptions", "migrations", "resizes", "faults")
    times = {kind: run.column(kind)[run.counted].sum() for kind in kinds}
    parts = ("held", "useful", "overhead", "interference", "lost")
    hours = {f"{part}_gpu_h": run.column(f"{part}_gpu_s")[run.counted].sum() / HOUR_S for part in parts}
    admitted = run.counted.sum() - run.having("refused").sum()
    return {"restarts_per_job": _ratio(sum(times.values()), admitted)} | times | hours


def _bills(run: Run) -> dict[str, float]:
    """Return what the run cost in money and energy, and which deadlines it kept."""
    cost_held = cost_cluster = energy_j = 0.0
    for node, held_gpu_s in zip(run.result.cluster.nodes, run.node_gpu_s):
        busy_s = held_gpu_s / node.gpus if node.gpus else 0.0
        idle_watts, busy_watts = node.watts_idle or 0.0, node.watts_busy
        cost_held += (node.price_per_hour or 0.0) * busy_s / HOUR_S
        cost_cluster += (node.price_per_hour or 0.0) * run.span_s / HOUR_S
        if busy_watts is not None:
            energy_j += idle_watts * run.span_s + (busy_watts - idle_watts) * busy_s
    priced = any(node.price_per_hour is not None for node in run.result.cluster.nodes)
    metered = any(node.watts_busy is not None for node in run.result.cluster.nodes)
    return {
        "cost_held": cost_held if priced else NAN,
        "cost_cluster": cost_cluster if priced else NAN,
        "energy_kwh": energy_j / 3.6e6 if metered else NAN,
        "deadlines_met": deadlines_met(run),
    }


def deadlines_met(run: Run) -> float:
    """Return the share of deadlines kept, among those that are decided."""
    deadline = run.result.jobs["deadline_s"].fill_null(np.inf).to_numpy()
    undecided = run.having("unfinished") & (deadline > run.result.end_s)
    judged = run.counted & np.isfinite(deadline) & ~undecided & ~run.having("cancelled")
    met = judged & run.finished & (run.timeline.life[1] <= deadline + TIME_SLACK_S)
    return _ratio(float(met.sum()), float(judged.sum()))


def _decisions(run: Run) -> dict[str, float]:
    p50, p99 = _percentiles(run.result.decision_ns / 1e3, 50, 99)
    return {"decisions": run.result.decision_ns.size, "decision_p50_us": p50, "decision_p99_us": p99}
