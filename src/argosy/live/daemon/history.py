"""Lists jobs that have ended: as figures for people, and as a trace that can be simulated."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from argosy.live import sanitize
from argosy.live.daemon.views import JobView
from argosy.live.errors import NotFound
from argosy.live.states import State
from argosy.live.store import Store, codec, database
from argosy.perf.overhead import MEASURED

STATUS = {State.SUCCEEDED: "completed", State.FAILED: "failed", State.CANCELLED: "killed"}
COLUMNS = (
    "job_id",
    "submit_s",
    "duration_s",
    "gpus",
    "user",
    "queue",
    "model",
    "gpu_type",
    "status",
    "cpus",
    "memory_gib",
    "min_gpus",
    "max_gpus",
    "deadline_s",
    "priority",
    "expected_s",
    "name",
)


def entry(job: JobView) -> dict[str, Any]:
    ended = job.ended_at or job.submitted_at
    return {
        "id": job.id,
        "name": job.name,
        "owner": job.owner,
        "queue": job.queue,
        "state": job.state.value,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "ended_at": ended,
        "jct_s": round(job.wait_s + job.run_s, 3),
        "wait_s": round(job.wait_s, 3),
        "run_s": round(job.run_s, 3),
        "gpu_s": round(job.gpu_s, 3),
        "gpus_low": job.gpus_low,
        "gpus_high": job.gpus_high,
        "runs": job.generation,
        "failures": job.failures,
        "preemptions": job.preemptions,
        "resizes": job.resizes,
        "moves": job.moves,
        "exit_code": job.exit_code,
        "message": job.message,
    }


def page(store: Store, owner: str | None, limit: int, before: int | None) -> list[int]:
    """Return numbers of jobs that have ended, the latest first; among equal times the highest number first."""
    where, values = ["ended_s IS NOT NULL"], list[str | float]()
    if owner is not None:
        where.append("owner = ?")
        values.append(owner)
    if before is not None:
        sql = f"SELECT ended_s FROM jobs WHERE {' AND '.join(where)} AND id = ?"
        cursor = store.query(sql, (*values, before))
        if not cursor:
            raise NotFound(f"there is no job {before} that has ended", hint="use `next` of the previous page")
        where.append("(ended_s, id) < (?, ?)")
        values += [cursor[0][0], before]
    sql = f"SELECT id FROM jobs WHERE {' AND '.join(where)} ORDER BY ended_s DESC, id DESC LIMIT ?"
    return [row[0] for row in store.query(sql, (*values, limit))]


def overheads_csv(store: Store, owner: str | None = None) -> str:
    """Return the means of recently measured overheads by model and kind, as CSV for the performance model."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("model", "kind", "seconds", "times"))
    where, values = ("", ()) if owner is None else ("WHERE owner = ?", (owner,))
    sql = f"SELECT model, kind, avg(seconds), count(*) FROM overheads {where} GROUP BY model, kind"
    found = store.query(sql, values)
    writer.writerows((sanitize.cell(model), kind, round(s, 4), n) for model, kind, s, n in found if kind in MEASURED)
    return out.getvalue()


def trace_csv(path: Path, owner: str | None = None) -> str:
    """Return ended jobs that ever ran as a trace, in order of submission; time starts with the first.

    A job's duration is the time that its GPU-seconds would take at the size that it asked for (`Gpus.asked`).
    """
    where = " AND owner = ?" if owner is not None else ""
    states = ", ".join(f"'{state.value}'" for state in STATUS)
    reading = database.reader(path)
    rows = reading.execute(
        f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE state IN ({states}) AND generation > 0{where}"
        " ORDER BY submitted_s, id",
        () if owner is None else (owner,),
    ).fetchall()
    reading.close()
    jobs = [codec.job_of(row) for row in rows]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    zero, wall_zero = (jobs[0].submitted_s, jobs[0].submitted_at) if jobs else (0.0, 0.0)
    for job in jobs:
        spec, high, asked = job.parsed, job.gpus_high, job.parsed.resources.gpus.asked or job.gpus_high
        per_gpu = asked or 1.0
        cpus, memory = spec.resources.cpus_per_gpu, spec.resources.memory_per_gpu_gib
        if high == 0 and not cpus and not memory:
            cpus = 1.0  # a trace needs some demand of every job
        elastic = spec.resources.gpus.elastic
        writer.writerow(
            [
                job.id,
                round(job.submitted_s - zero, 3),
                round(job.gpu_s / asked if asked else job.run_s, 3),
                f"{asked:g}",
                sanitize.cell(job.owner),
                sanitize.cell(job.queue),
                sanitize.cell(spec.model),
                sanitize.cell("|".join(spec.resources.gpu_types)) or None,
                STATUS[job.state],
                None if cpus is None else cpus * per_gpu,
                None if memory is None else memory * per_gpu,
                max(job.gpus_low, 1.0) if elastic else None,
                high if elastic else None,
                None if spec.deadline_at is None else max(0.0, round(spec.deadline_at - wall_zero, 3)),
                job.priority,
                spec.expected_duration,
                job.name,
            ]
        )
    return out.getvalue()
