"""Import Philly's `cluster_job_log`: a JSON array of Microsoft's jobs, August to December 2017.

A job's run time is the sum of its attempts, the time for which it held GPUs. (The authors' notebook takes last
end − first start, which counts the waiting between attempts as running; another scheduler would change that
waiting.) Its size is that of the first attempt with recorded GPUs. Jobs without a finished attempt are left out,
and so are those whose last attempt has no end, because they still ran when the log was written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from argosy.errors import TraceError
from argosy.workload.conversion import STATUS_WORDS, finish
from argosy.workload.importers import ImportReport, OnError, importer
from argosy.workload.text_table import LINE, MAX_JSON_BYTES, Bad, Table, load
from argosy.workload.trace import attempts_text

MAX_JOB_BYTES = 2**20  # how far to search for the next job's id
ABSENT = (None, "", "None")
HINT = "a Philly log is a JSON array of jobs with jobid, status, vc, submitted_time and attempts"
SCHEMA: dict[str, pl.DataType] = {
    LINE: pl.Int64(),
    "job_id": pl.String(),
    "submit_s": pl.Float64(),
    "duration_s": pl.Float64(),
    "gpus": pl.Float64(),
    "user": pl.String(),
    "queue": pl.String(),
    "status": pl.String(),
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
    "attempts": pl.String(),
}


@importer(
    "philly",
    "cluster_job_log (JSON) of Microsoft's Philly clusters",
    "Jeon et al., ATC 2019; github.com/msr-fiddle/philly-traces",
)
def read(paths: Sequence[Path], *, on_error: OnError = "fail") -> ImportReport:
    left_out: Counter[str] = Counter()
    parts = [_rows(path, left_out) for path in paths]
    notes = [f"{count:,} jobs left out: {why}" for why, count in left_out.items()]
    return finish(parts, on_error=on_error, notes=notes)


class _Wrong(Exception):
    """A job that cannot be understood; the message is the reason."""


def _rows(path: Path, left_out: Counter[str]) -> Table:
    text = load(path, max_line=None, max_bytes=MAX_JSON_BYTES)
    rows: list[tuple[Any, ...]] = []
    bad: list[Bad] = []
    lines = _Lines(text)
    for job in _jobs(text, path):
        line = lines.of(job)
        try:
            row = _job(job)
        except _Wrong as problem:
            bad.append((line, str(problem)))
            continue
        if isinstance(row, str):
            left_out[row] += 1
        else:
            rows.append((line, *row))
    return Table(path, pl.DataFrame(rows, schema=SCHEMA, orient="row"), tuple(bad))


def _jobs(text: bytes, path: Path) -> list[Any]:
    try:
        jobs = json.loads(text)
    except json.JSONDecodeError as problem:
        raise TraceError(f"not valid JSON: {problem.msg}", where=f"{path}:{problem.lineno}", hint=HINT) from None
    except RecursionError:
        raise TraceError("not valid JSON: nested too deeply", where=str(path), hint=HINT) from None
    if not isinstance(jobs, list):
        raise TraceError("is JSON, but not an array", where=str(path), hint=HINT)
    return jobs


class _Lines:
    """Finds the line of each job's id; jobs come in the order of the file, so one pass is enough."""

    def __init__(self, text: bytes) -> None:
        self._text, self._at, self._line = text, 0, 1

    def of(self, job: object) -> int:
        name = job.get("jobid") if isinstance(job, dict) else None
        if not isinstance(name, str):
            return self._line
        found = self._text.find(json.dumps(name).encode(), self._at, self._at + MAX_JOB_BYTES)
        if found >= 0:
            self._line += self._text.count(b"\n", self._at, found)
            self._at = found
        return self._line


def _job(job: object) -> tuple[Any, ...] | str:
    """Return the columns of one job, or why it is left out."""
    if not isinstance(job, dict):
        raise _Wrong(f"is not a job: {str(job)[:40]!r}")
    if not isinstance(job.get("jobid"), str):
        raise _Wrong("jobid is missing")
    attempts = job.get("attempts")
    if not isinstance(attempts, list) or not all(isinstance(a, dict) for a in attempts):
        raise _Wrong("attempts is not a list of attempts")
    status = STATUS_WORDS.get(str(job.get("status")).lower())
    if status is None:
        raise _Wrong(f"status is not a known status: {job.get('status')!r}")
    submitted = _time(job.get("submitted_time"), "submitted_time")
    if submitted is None:
        raise _Wrong("submitted_time is missing")
    if not attempts:
        return "no scheduling attempt was recorded"
    times = [(_time(a.get("start_time"), "start_time"), _time(a.get("end_time"), "end_time")) for a in attempts]
    if times[-1][1] is None:
        return "it had not ended when the log was written"
    ran = sorted((start, end) for start, end in times if start is not None and end is not None)
    spans = [end - start for start, end in ran]
    if not spans:
        return "no attempt has both a start and an end"
    if min(spans) < 0:
        raise _Wrong(f"an attempt ends {-min(spans):g} s before it starts")
    gpus = next((count for a in attempts if (count := _gpus(a))), 0)
    if not gpus:
        return "no GPUs were recorded"
    user, queue = (None if job.get(key) in ABSENT else str(job[key]) for key in ("user", "vc"))
    begin = max(ran[0][0], submitted)
    finish_s = max(begin, max(end for _, end in ran))
    when = (begin, finish_s, attempts_text(begin, ran))
    return job["jobid"], submitted, sum(spans), float(gpus), user, queue, status, *when


def _time(value: object, field: str) -> float | None:
    if value in ABSENT:
        return None
    try:
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _Wrong(f"{field} is not a time: {str(value)[:40]!r}") from None


def _gpus(attempt: dict[str, Any]) -> int:
    try:
        return sum(len(server["gpus"]) for server in attempt.get("detail") or [])
    except (KeyError, TypeError):
        raise _Wrong("detail is not a list of servers with their gpus") from None
