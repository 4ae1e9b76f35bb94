"""Lists jobs that have ended: as figures for people, and as a trace that can be simulated."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.live import sanitize
from argosy.live.daemon.past import read_past
from argosy.live.daemon.views import JobView
from argosy.live.errors import NotFound
from argosy.live.store import Store
from argosy.perf.overhead import MEASURED

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
    "saves",
    "start_s",
    "end_s",
    "attempts",
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

    A job's duration is the time that its useful GPU-seconds would take at the size that it asked for (`Gpus.asked`):
    work that was lost and done again, and the start-up of its runs, are not part of it.
    """
    pasts = [past for past in read_past(path) if owner is None or past.job.owner == owner]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    zero, wall_zero = (pasts[0].job.submitted_s, pasts[0].job.submitted_at) if pasts else (0.0, 0.0)
    for past in pasts:
        row, deadline = past.row(zero), past.job.parsed.deadline_at
        cpus = row.cpus
        if row.gpus == 0 and not row.cpus and not row.memory_gib:
            cpus = 1.0  # a trace needs some demand of every job
        deadline_s = None if deadline is None else max(0.0, round(deadline - wall_zero, 3))
        shown = replace(row, cpus=cpus, deadline_s=deadline_s)
        writer.writerow([_cell(getattr(shown, name)) for name in COLUMNS])
    return out.getvalue()


def _cell(value: str | float | None) -> str | None:
    """Return a value as a cell; texts that a spreadsheet would take for formulas are made harmless."""
    return sanitize.cell(value) if value is None or isinstance(value, str) else f"{round(value, 3):.15g}"
