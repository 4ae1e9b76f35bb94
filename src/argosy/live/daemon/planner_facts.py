"""Converts jobs, runs and measured overheads from the database into the planner's messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from argosy.live import sanitize
from argosy.live.backends.base import Part
from argosy.live.daemon.performance_file import fitted_costs
from argosy.live.planner.messages import Ended, JobFacts, Steps
from argosy.live.store import Job, RunRow, Store, codec

TEACHING = 2000  # ended jobs from which a new planner learns durations
MOST = 1e6  # workers, passes and samples, which a job only claims
SHORTEST_S, LONGEST_S, LARGEST_NOISE = 1e-6, 1e5, 1e12
NEWEST = "ORDER BY ended_s DESC, id DESC LIMIT ?"  # the order of the index `jobs_by_end`, so that nothing is sorted


def facts(job: Job, store: Store) -> JobFacts:
    """Return what the planner must know about a job; the deadline is converted to the daemon's own clock."""
    spec = job.parsed
    deadline = spec.deadline_at
    if deadline is not None:  # it is given in wall time
        deadline += store.clock.now() - store.clock.wall()
    app = None if job.array_id is None else f"array-{job.array_id}"
    said = JobFacts.of(spec, job.id, submitted_s=job.submitted_s, user=job.owner, deadline_s=deadline, app=app)
    return replace(said, priority=job.priority)


def overheads(store: Store) -> dict[str | None, dict[str, float]]:
    """Return the means of recently measured overheads, by model and kind, and those that `argosy fidelity` fitted."""
    found: dict[str | None, dict[str, float]] = {}
    for model, kind, seconds in store.query("SELECT model, kind, avg(seconds) FROM overheads GROUP BY model, kind"):
        found.setdefault(model or None, {})[kind] = seconds
    for name, kinds in fitted_costs(store.path.parent).items():
        found.setdefault(name or None, {}).update(kinds)
    return found


def held_parts(run: RunRow) -> tuple[Part, ...]:
    """Return where a run may still be; empty for a place that is shared with others."""
    devices: dict[str, set[int]] = {}
    parts = (() if run.paused else run.parts) + (run.former or ())
    for part in parts:
        devices.setdefault(part.node, set()).update(part.devices)
    if any(part.milli != 1000 for part in parts) or not any(devices.values()):
        return ()
    return tuple(Part(node, tuple(sorted(found))) for node, found in devices.items() if found)


def ended_jobs(store: Store) -> Iterable[Ended]:
    """Yield the jobs that ended last, oldest first, and their work: a new planner learns durations from them."""
    sql = f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE ended_s IS NOT NULL AND generation > 0 {NEWEST}"
    for row in reversed(store.query(sql, (TEACHING,))):
        job = codec.job_of(row)
        asked = job.parsed.resources.gpus.asked
        yield Ended(facts(job, store), job.gpu_s / asked if asked else job.run_s, job.gpu_s)


def steps_of(metrics: Any) -> Steps | None:
    """Return what a job says about its steps, if that is complete and possible; it may say anything."""
    if not isinstance(metrics, Mapping):
        return None
    names = ("workers", "batch", "passes", "pass_s", "step_s", "noise_scale")
    said = [sanitize.number(metrics.get(name)) for name in names]
    if any(value is None for value in said):
        return None
    workers, batch, passes, pass_s, step_s, noise = (float(value or 0.0) for value in said)
    counts = all(1 <= count <= MOST and count == int(count) for count in (workers, batch, passes))
    if not counts or not SHORTEST_S <= pass_s <= step_s <= LONGEST_S or not 0 <= noise <= LARGEST_NOISE:
        return None
    return Steps(int(workers), int(batch), int(passes), pass_s, step_s, noise)
