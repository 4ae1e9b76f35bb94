"""Converts rows to columns and back. The order of columns is that of the dataclasses."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from argosy.live.states import State, Stop
from argosy.live.store.rows import Job, RunRow, parts_from_json, parts_to_json

FIXED = (
    "id",
    "name",
    "owner",
    "queue",
    "priority",
    "spec",
    "workdir",
    "array_id",
    "array_index",
    "after",
    "gpus_low",
    "gpus_high",
    "submitted_s",
    "submitted_at",
)
CHANGING = (
    "state",
    "generation",
    "failures",
    "losses",
    "not_before_s",
    "started_s",
    "started_at",
    "ended_s",
    "ended_at",
    "exit_code",
    "message",
    "run_s",
    "gpu_s",
    "preemptions",
    "resizes",
    "moves",
    "hot",
    "report",
    "unlaunched",
)
JOB_COLUMNS = ", ".join(FIXED + CHANGING)
INSERTED = (*FIXED, "state", "not_before_s")
INSERT_JOB = f"INSERT INTO jobs ({', '.join(INSERTED[1:])}) VALUES ({', '.join('?' * (len(INSERTED) - 1))})"
INSERT_NUMBERED_JOB = f"INSERT INTO jobs ({', '.join(INSERTED)}) VALUES ({', '.join('?' * len(INSERTED))})"
UPDATE_JOB = f"UPDATE jobs SET priority = ?, {', '.join(f'{c} = ?' for c in CHANGING)} WHERE id = ?"
REWRITE_JOB = "UPDATE jobs SET name = ?, queue = ?, spec = ?, gpus_low = ?, gpus_high = ? WHERE id = ?"

RUN = (
    "job",
    "generation",
    "version",
    "parts",
    "launched_s",
    "launched_at",
    "settled_s",
    "paused",
    "former",
    "stop",
    "running_s",
    "ended_s",
    "ended_at",
    "run_s",
    "gpu_s",
    "exit_code",
    "message",
    "restarts",
    "batch",
)
RUN_COLUMNS = ", ".join(RUN)
SAVE_RUN = f"INSERT OR REPLACE INTO runs ({RUN_COLUMNS}) VALUES ({', '.join('?' * len(RUN))})"

INSERT_AUDIT = (
    "INSERT INTO audit (at, who, role, address, token, action, object, first_job, last_job, result, detail)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def job_of(row: tuple[Any, ...] | sqlite3.Row) -> Job:
    values = list(row)
    values[9] = tuple(json.loads(values[9])) if values[9] != "[]" else ()
    values[14] = State(values[14])
    values[30] = bool(values[30])
    values[31] = json.loads(values[31]) if values[31] != "{}" else {}
    return Job(*values)


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the numbers as ranges from first to last, such as those of an array."""
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):  # the case of nearly every submission
        return [(numbers[0], numbers[-1])]
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def new_values(job: Job) -> tuple[Any, ...]:
    return (
        job.id,
        job.name,
        job.owner,
        job.queue,
        job.priority,
        job.spec_json,
        job.workdir,
        job.array_id,
        job.array_index,
        json.dumps(job.after),
        job.gpus_low,
        job.gpus_high,
        job.submitted_s,
        job.submitted_at,
        job.state.value,
        job.not_before_s,
    )


def changing_values(job: Job) -> tuple[Any, ...]:
    return (
        job.priority,
        job.state.value,
        job.generation,
        job.failures,
        job.losses,
        job.not_before_s,
        job.started_s,
        job.started_at,
        job.ended_s,
        job.ended_at,
        job.exit_code,
        job.message,
        job.run_s,
        job.gpu_s,
        job.preemptions,
        job.resizes,
        job.moves,
        job.hot,
        json.dumps(dict(job.report), separators=(",", ":")),
        job.unlaunched,
        job.id,
    )


def run_of(row: tuple[Any, ...] | sqlite3.Row) -> RunRow:
    values = list(row)
    values[3] = parts_from_json(values[3])
    values[7] = bool(values[7])
    values[8] = None if values[8] is None else parts_from_json(values[8])
    values[9] = None if values[9] is None else Stop(values[9])
    return RunRow(*values)


def run_values(run: RunRow) -> tuple[Any, ...]:
    return (
        run.job,
        run.generation,
        run.version,
        parts_to_json(run.parts),
        run.launched_s,
        run.launched_at,
        run.settled_s,
        run.paused,
        None if run.former is None else parts_to_json(run.former),
        run.stop and run.stop.value,
        run.running_s,
        run.ended_s,
        run.ended_at,
        run.run_s,
        run.gpu_s,
        run.exit_code,
        run.message,
        run.restarts,
        run.batch,
    )
