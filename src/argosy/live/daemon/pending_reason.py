"""Explains in words why a job waits or runs: what it waits for outside the policy, or the policy's own reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from argosy.live.daemon.health import DaemonHealth
from argosy.live.daemon.views import place
from argosy.live.dependencies import Met
from argosy.live.states import State, Stop
from argosy.live.store import Job, RunRow, Store

STOPS = {
    Stop.PREEMPTED: "the policy gives its place to another job",
    Stop.MOVED: "it continues in another place or size",
    Stop.BUDGET: "its time budget is used up",
    Stop.LIMIT: "its max_duration is used up",
    Stop.CANCELLED: "it is cancelled",
    Stop.HURRIED: "it is cancelled, and has a few seconds left",
    Stop.KILLED: "it is being killed",
}


def waits_outside(job: Job, store: Store) -> tuple[str, str] | None:
    """Return (category, text) of what keeps a job from being shown to the policy, or None."""
    if job.held:
        return "held", f"held back; release it: argosy release {job.id}"
    if job.after:
        after = job.parsed.after
        if after.met(store.job_state) is not Met.YES:
            return "dependency", f"waits for {after.open(store.job_state)}"
    left = job.not_before_s - store.clock.now()
    if left > 0:
        count = job.failures + job.losses
        return "back-off", f"run {job.generation} ended early ({count} times so far); it is tried again in {left:.1f} s"
    return None


def explanation(job: Job, store: Store, health: DaemonHealth) -> dict[str, Any]:
    """Return the explanation as a plain mapping: job, state, category, text, evidence, change."""
    told: dict[str, Any] = {"job": job.id, "state": job.state.value, "evidence": {}, "change": ""}
    if job.state.ended:
        ended = "it was cancelled" if job.state is State.CANCELLED else job.message or f"it has {job.state.value}"
        return told | {"category": "ended", "text": ended}
    run = store.runs.get(job.id)
    if run is not None:
        return told | {"category": "stopping" if run.stop else "held", "text": _of_run(job, store)}
    outside = waits_outside(job, store)
    if outside is not None:
        return told | {"category": outside[0], "text": outside[1]}
    limited = health.limited(job)
    if limited is not None:
        return told | dict(limited)
    if health.planner_problem:
        return told | {
            "category": "policy-failed",
            "text": f"the policy failed: {health.planner_problem}",
        }
    if job.id in health.starts:
        return told | dict(health.starts[job.id])
    reason = health.waiting.get(job.id)
    if reason is None:
        return told | {"category": "new", "text": "the policy has not been asked since the job was submitted"}
    return told | dict(reason)


def one_line(job: Job, store: Store, health: DaemonHealth) -> str:
    if job.state is State.RUNNING:
        return ""
    text: str = explanation(job, store, health)["text"]
    return text.partition("\n")[0]


def _of_run(job: Job, store: Store) -> str:
    run = store.runs[job.id]
    where = " ".join(place(part) for part in run.parts) or "no device"
    if run.stop is not None:
        return f"stopping on {where}: {STOPS[run.stop]}"
    if run.paused:
        return f"paused on {where}: another job of its group has its turn"
    if job.state is State.STARTING:
        return f"starting on {where}"
    return f"running on {where}{_if_stopped(job, run, store)}"


def _if_stopped(job: Job, run: RunRow, store: Store) -> str:
    """Say from when on a running job may be preempted, and what it would lose."""
    since = run.launched_s if run.running_s is None else run.running_s
    ran_s, least_s = max(0.0, store.clock.now() - since), job.parsed.min_runtime
    gpus, told = job.parsed.resources.gpus, ""
    if gpus.core:
        burst = f", and what it has beyond that, up to {gpus.high - gpus.low:g}, may be" if gpus.elastic else ""
        return f"; its {gpus.low:g} GPUs are guaranteed and never taken{burst}"
    if ran_s < least_s:
        told += f"; not preempted for another {least_s - ran_s:.0f} s, its minimum run time"
    saves = job.parsed.saves or ("step" if job.hot or job.parsed.checkpoint.dir is not None else "none")
    if saves == "none" and not store.checkpoints(job.id, 1):
        told += f"; it saves nothing: a stop would cost its work of {ran_s:.0f} s, so others are preempted before it"
    elif saves == "interval":
        told += "; a stop would cost what it has done since it saved last"
    return told


def reason(category: str, text: str, evidence: Mapping[str, Any] | None = None, change: str = "") -> dict[str, Any]:
    """Return a reason in the form that `explanation` uses."""
    return {"category": category, "text": text, "evidence": dict(evidence or {}), "change": change}
