"""Compares what a simulation says of a daemon's jobs with what really happened, and fits the costs to it.

The jobs are simulated with the lengths that they really had, under the policy that was in force. If the policy was
switched, each is simulated with the jobs of its time; jobs that were there during a switch fill the cluster, but are
not compared, because no single policy decided about them. What is left to be wrong are the costs of starting and
stopping, delays between the end of one run and the start of the next, speeds, and the policy's choices that follow from
them. The costs are then fitted to the runs themselves.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.live.daemon.past import Past, Reign, trace_of
from argosy.live.daemon.performance_file import Costs, write_csv
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings

HANDOVER_WITHIN_S = 5.0  # a later start on the same device was not waiting for it
NOTABLE_S, NOTABLE = 0.5, 0.05  # differences that are worth a cause


@dataclass(frozen=True, slots=True)
class Compared:
    """One job: its real and its predicted completion time, and what makes most of the difference."""

    job: int
    name: str
    real_s: float
    predicted_s: float
    error: float  # predicted over real, less 1
    cause: str
    policy: str  # that decided at the time


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How well a simulation predicts a daemon's jobs, before and after the costs were fitted."""

    policy: str  # all that decided, in order
    left_out: int  # jobs that were there during a switch of the policy
    jobs: tuple[Compared, ...]
    real_mean_s: float
    predicted_mean_s: float
    before_mean_s: float
    costs: Costs

    @property
    def error(self) -> float:
        return self.predicted_mean_s / self.real_mean_s - 1.0

    @property
    def before(self) -> float:
        return self.before_mean_s / self.real_mean_s - 1.0

    @property
    def worst(self) -> float:
        return max(abs(job.error) for job in self.jobs)

    def as_dict(self) -> dict[str, Any]:
        figures = {"error": self.error, "error_before_fit": self.before, "worst_job": self.worst}
        shown = asdict(self)
        return {
            "policy": self.policy,
            "left_out": self.left_out,
            **figures,
            "costs_s": self.costs,
            "jobs": shown["jobs"],
        } | {name: shown[name] for name in ("real_mean_s", "predicted_mean_s", "before_mean_s")}


def compare(pasts: list[Past], cluster: Cluster, reigns: list[Reign], costs: Costs) -> Fidelity:
    """Simulate jobs that have ended, with the costs used so far and with fitted ones."""
    for reign in reigns:
        create(reign.policy)
    if not pasts:
        raise InputError("no job has ended yet", hint="submit jobs, and try again when some have ended")
    fitted, policies = fit(pasts), list[str]()
    rows, before_s = list[Compared](), list[float]()
    for reign in reigns:
        chosen = [past for past in pasts if reign.covers(past)]
        if not chosen:
            continue
        there = [past for past in pasts if reign.touches(past) or reign.covers(past)]
        before = _simulated(there, cluster, reign.policy, costs)
        after = _simulated(there, cluster, reign.policy, fitted)
        policies += [reign.policy] if policies[-1:] != [reign.policy] else []
        before_s += [before[past.job.id]["jct_s"] for past in chosen]
        rows += [_compared(past, after[past.job.id], reign.policy) for past in chosen]
    if not rows:
        hint = "name one policy for all of them (--policy), or try again when more jobs have ended"
        raise InputError("the policy was switched while each of these jobs was there", hint=hint)
    return Fidelity(
        ", then ".join(policies),
        len(pasts) - len(rows),
        tuple(rows),
        statistics.fmean(row.real_s for row in rows),
        statistics.fmean(row.predicted_s for row in rows),
        statistics.fmean(before_s),
        fitted,
    )


def _compared(past: Past, row: dict[str, Any], policy: str) -> Compared:
    real, predicted = past.jct_s, row["jct_s"]
    cause = _cause(past, real, predicted, row)
    return Compared(past.job.id, past.job.name, real, predicted, predicted / real - 1, cause, policy)


def fit(pasts: list[Past]) -> Costs:
    """Return what starts and stops cost, by model ("": all), from the runs themselves.

    A start costs the time until the run works, and the delay between the end of the run before it on its devices and
    its launch. A stop is charged when the job resumes: it is the time from the order to stop until the run has left,
    which the next run on the devices waits for, so it is part of that delay.
    """
    starts, resumes = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for past in pasts:
        for run in past.runs:
            found = starts if run.generation == 1 else resumes
            for model in {past.job.parsed.model or "", ""}:
                found[model].append(past.startup_s(run))
    delay = handover_s(pasts)
    costs: Costs = {}
    for model, seconds in starts.items():
        costs[model] = {"start": statistics.median(seconds) + delay}
    for model in {*starts, *resumes}:
        known = resumes.get(model) or starts[model]
        costs.setdefault(model, {})["resume"] = statistics.median(known) + delay
        costs[model]["suspend"] = 0.0
        costs[model]["migrate"] = costs[model]["resume"]
    return costs


def handover_s(pasts: list[Past]) -> float:
    """Return the usual time between the end of a run and the launch of the next on the same device."""
    by_device: dict[tuple[str, int], list[tuple[float, float, float]]] = defaultdict(list)
    for past in pasts:
        for run in past.runs:
            for part in run.parts:
                for device in part.devices:
                    end_s = run.launched_s + run.run_s if run.ended_s is None else run.ended_s
                    by_device[part.node, device].append((run.launched_s, end_s, past.job.submitted_s))
    gaps = []
    for spans in by_device.values():
        spans.sort()
        for (_, end_s, _), (next_s, _, submitted_s) in pairwise(spans):
            if submitted_s < end_s <= next_s <= end_s + HANDOVER_WITHIN_S:
                gaps.append(next_s - end_s)
    return statistics.median(gaps) if gaps else 0.0


def _simulated(pasts: list[Past], cluster: Cluster, policy: str, costs: Costs) -> dict[int, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="argosy-fidelity-") as folder:
        overheads = "realistic"
        if costs:
            file = Path(folder) / "costs.csv"
            write_csv(file, costs)
            overheads = str(file)
        settings = Settings(
            overheads=overheads, min_run_s=10.0, hot_resize=True, oversized="skip", measurement_noise=0.0
        )
        engine = Engine(trace_of(pasts, "history"), cluster, create(policy), settings)
        engine.prefer_cheap_victims(True)  # as in a live cluster
        result = engine.run()
    return {
        int(row["job_id"]): row | {"jct_s": row["finish_s"] - row["submit_s"]}
        for row in result.jobs.iter_rows(named=True)
    }


def _cause(past: Past, real_s: float, predicted_s: float, row: dict[str, Any]) -> str:
    """Return what makes most of the difference between real and predicted completion time."""
    if abs(predicted_s - real_s) < max(NOTABLE_S, NOTABLE * real_s):
        return ""
    stops = len(past.runs) - 1
    wait_real = past.runs[0].launched_s - past.job.submitted_s
    wait_predicted = (row["first_start_s"] or 0.0) - row["submit_s"]
    parts = {
        f"it was stopped {stops} times, not {row['preemptions']}": abs(past.redone_s - row["lost_gpu_s"] / past.asked)
        if stops != row["preemptions"]
        else 0.0,
        "its first wait": abs(wait_real - wait_predicted),
        "start-up": abs(sum(map(past.startup_s, past.runs)) - row["overhead_gpu_s"] / past.asked),
    }
    cause, seconds = max(parts.items(), key=lambda item: item[1])
    return f"{cause} ({seconds:.1f} s)" if seconds >= NOTABLE_S / 2 else "waits between its runs"
