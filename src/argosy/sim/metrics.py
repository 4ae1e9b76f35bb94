"""The metrics of a run, with the definition of each.

Conventions that hold for all of them:

- A job is *finished* when it completed, failed or was killed by its owner: failed and killed jobs waited and
  held GPUs like any other. Cancelled, refused and unfinished jobs are not finished and have their own counts.
- Means and percentiles of per-job quantities are over finished jobs. No job is dropped silently: the counts of
  the others are metrics too, and `jct_floor_mean_s` is the mean with unfinished jobs included at their age.
- The *span* is from the first submission to the last end, or to the end of the run if jobs are unfinished.
  With a `window` it is the window, and only jobs submitted inside [start, end) count in per-job metrics.
- A metric that has nothing to measure is NaN.
"""

from __future__ import annotations

import numpy as np

from argosy.mechanism.world import codes
from argosy.sim.measured_run import Run, Window
from argosy.sim.metric_definitions import DEFINITIONS, RHO_TOLERANCE
from argosy.sim.result import Result
from argosy.sim.timeline import FINISHED, Floats, Steps
from argosy.slack import TIME_SLACK_S

__all__ = ["DEFINITIONS", "Run", "Window", "metrics"]

HOUR_S = 3600.0
NAN = float("nan")


def metrics(result: Result, *, window: Window | None = None) -> dict[str, float]:
    """Return every metric of a run by name, in the order of DEFINITIONS."""
    run = Run.of(result, window)
    groups = (_use, _outcomes, _times, _fairness, _losses, _bills, _quality, _decisions)  # the most memory first
    found = {name: float(value) for group in groups for name, value in group(run).items()}
    return {name: found[name] for name in DEFINITIONS}


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
    queue, _ = codes(run.result.jobs["queue"])
    jobs = np.bincount(queue[run.rated])
    # summed in the order of the jobs: the means of Polars' groups differ in the last digit from run to run
    speed = np.bincount(queue[run.rated], weights=1.0 / np.maximum(run.slowdown, 1e-12))
    x = speed[jobs > 0] / jobs[jobs > 0]
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
    waiting = run.timeline.waiting
    idle, on_partly_used = run.timeline.free
    edges = np.concatenate([idle.t, waiting.t, [run.start_s, run.end_s]])
    edges.sort()
    edges = edges[(edges >= run.start_s) & (edges <= run.end_s) & np.append(True, edges[1:] != edges[:-1])]
    start = edges[:-1]
    length_s = np.diff(edges) * (waiting.at(start) > 0)
    run.timeline.forget("free", "waiting")

    def over_time(free: Steps) -> float:
        gpu_s = free.at(start)
        gpu_s *= length_s
        return float(gpu_s.sum())

    return _ratio(over_time(on_partly_used), over_time(idle))


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


def _quality(run: Run) -> dict[str, float]:
    """Return how good the networks became, and what that cost."""
    jobs, spare = run.result.jobs, run.result.jobs["takes_spare"].fill_null(False).to_numpy()
    known = run.finished & jobs["quality"].is_not_null().to_numpy()
    gain = run.column("quality_gain")[known]
    found = {"quality_mean": _mean(run.column("quality")[known]), "quality_gain_mean": _mean(gain)}
    names = ("spare_gpu_h", "spare_wasted_gpu_h", "points_per_spare_gpu_h", "jct_others_mean_s")
    if not spare.any():
        return found | dict.fromkeys(names, NAN)
    given, wasted = (run.column(f"{name}_gpu_s")[run.counted].sum() / HOUR_S for name in ("spare", "spare_wasted"))
    others = _mean(run.jct_s[run.finished & ~spare])
    return found | dict(zip(names, (given, wasted, _ratio(100.0 * float(gain.sum()), given), others)))


def _decisions(run: Run) -> dict[str, float]:
    p50, p99 = _percentiles(run.result.decision_ns / 1e3, 50, 99)
    return {"decisions": run.result.decision_ns.size, "decision_p50_us": p50, "decision_p99_us": p99}
