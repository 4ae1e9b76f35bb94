"""What a daemon's database says of jobs that have ended: their runs, and how much of that time was useful.

A job that saves nothing does all its work again after a stop, so only its last run counts as useful; what earlier runs
did was done again. The time from the launch of a run until it works is its start-up.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from argosy.errors import InputError
from argosy.live.planner.messages import JobFacts, Saves
from argosy.live.states import State
from argosy.live.store import RunRow, codec, database, rows
from argosy.live.store.schema import POLICY
from argosy.workload.trace import Job, Trace, attempts_text

HINT = "name the daemon's database, such as ~/.argosy/argosy.db, or a copy made by `argosy backup`"
STATUS: dict[State, Literal["completed", "failed", "killed"]] = {
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "killed",
}


@dataclass(frozen=True)
class Past:
    """A job that has ended, with its runs."""

    job: rows.Job
    runs: tuple[RunRow, ...]
    has_checkpoints: bool

    @property
    def saves(self) -> Saves:
        """Return what survived a stop of this job."""
        spec = self.job.parsed
        if spec.saves is not None:
            return spec.saves
        return "step" if self.job.hot or self.has_checkpoints or spec.checkpoint.dir is not None else "none"

    @staticmethod
    def startup_s(run: RunRow) -> float:
        """Return how long a run took until it worked; 0 if it ended before anybody saw it work."""
        return 0.0 if run.running_s is None else min(max(run.running_s - run.launched_s, 0.0), run.run_s)

    @cached_property
    def worked(self) -> tuple[float, ...]:
        """Return the GPU-seconds (without GPUs: seconds) that each run held while it worked."""
        found = []
        for run in self.runs:
            share = 1.0 - self.startup_s(run) / run.run_s if run.run_s > 0 else 0.0
            found.append((run.gpu_s if self.job.gpus_high > 0 else run.run_s) * share)
        return tuple(found)

    @property
    def useful_s(self) -> float:
        """Return how long the job takes if it is never stopped, at the size that it asked for."""
        counted = self.worked[-1:] if self.saves == "none" else self.worked
        return max(sum(counted) / self.asked, 0.001)

    @property
    def redone_s(self) -> float:
        """Return the seconds of work, at the size that it asked for, that stops destroyed and the job did again."""
        return sum(self.worked[:-1]) / self.asked if self.saves == "none" else 0.0

    @property
    def asked(self) -> float:
        return self.job.parsed.resources.gpus.asked or self.job.gpus_high or 1.0

    @property
    def jct_s(self) -> float:
        return (self.job.ended_s or 0.0) - self.job.submitted_s

    def row(self, zero_s: float) -> Job:
        """Return the job as a row of a trace whose time begins at `zero_s`."""
        job, known = self.job, JobFacts.of(self.job.parsed, self.job.id, submitted_s=0.0, user=self.job.owner)
        elastic = known.max_gpus != known.min_gpus
        submit_s = job.submitted_s - zero_s
        ran = [(run.launched_s - zero_s, run.launched_s - zero_s + run.run_s) for run in self.runs]
        return Job(
            str(job.id),
            submit_s,
            self.useful_s,
            known.gpus,
            user=known.user or None,
            queue=known.queue,
            model=known.model,
            gpu_type="|".join(known.gpu_types) or None,
            status=STATUS[job.state],
            cpus=known.cpus,
            memory_gib=known.memory_gib,
            min_gpus=known.min_gpus if elastic else None,
            max_gpus=known.max_gpus if elastic else None,
            app=None if job.array_id is None else f"array-{job.array_id}",
            priority=job.priority,
            expected_s=known.expected_s,
            name=known.name,
            saves=self.saves,
            start_s=max(ran[0][0], submit_s),
            end_s=max(ran[-1][1], ran[0][0], submit_s),
            attempts=attempts_text(ran[0][0], ran),
        )


def read_past(path: Path, most: int = 20_000) -> list[Past]:
    """Return the jobs that have ended and ever ran, in order of submission; at most the newest `most`."""
    if not path.is_file():
        raise InputError(f"there is no database {path}", hint=HINT)
    chosen = "ended_s IS NOT NULL AND generation > 0 ORDER BY ended_s DESC LIMIT ?"
    try:
        with closing(database.reader(path)) as reading:
            jobs = [
                codec.job_of(row)
                for row in reading.execute(f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE {chosen}", (most,))
            ]
            by_job: dict[int, list[RunRow]] = defaultdict(list)
            wanted = f"SELECT {codec.RUN_COLUMNS} FROM runs WHERE job IN (SELECT id FROM jobs WHERE {chosen})"
            for row in reading.execute(f"{wanted} ORDER BY job, generation", (most,)):
                run = codec.run_of(row)
                by_job[run.job].append(run)
            saved = {row[0] for row in reading.execute("SELECT DISTINCT job FROM checkpoints")}
        found = [Past(job, tuple(by_job[job.id]), job.id in saved) for job in jobs if by_job[job.id]]
    except (sqlite3.Error, ValidationError, ValueError, KeyError, TypeError) as problem:
        what = f"this is no database of Argosy, or it is damaged: {str(problem).splitlines()[0]}"
        raise InputError(what, where=str(path), hint=HINT) from None
    return sorted(found, key=lambda past: (past.job.submitted_s, past.job.id))


def trace_of(pasts: list[Past], name: str) -> Trace:
    """Return jobs that have ended as a trace, with when they really ran."""
    if not pasts:
        raise InputError("no job has ended yet", where=name, hint="submit jobs, and try again when some have ended")
    zero_s = min(past.job.submitted_s for past in pasts)
    return Trace.of_jobs([past.row(zero_s) for past in pasts], name)


def policy_of(path: Path) -> str | None:
    """Return the policy that the daemon of a database used last; None if the database does not say."""
    with closing(database.reader(path)) as reading:
        found = reading.execute("SELECT value FROM meta WHERE key = ?", (POLICY,)).fetchone()
    return json.loads(found[0]) if found is not None else None


@dataclass(frozen=True, slots=True)
class Reign:
    """A span of time, in Unix seconds, in which one policy decided."""

    policy: str
    from_at: float
    until_at: float

    def covers(self, past: Past) -> bool:
        """Return whether a job was in the system in this time only."""
        return self.from_at <= past.job.submitted_at and (past.job.ended_at or 0.0) <= self.until_at

    def touches(self, past: Past) -> bool:
        return past.job.submitted_at < self.until_at and (past.job.ended_at or 0.0) > self.from_at


SWITCHES = ("promote", "fall-back", "policy")  # actions of the audit log after which its object decides
_FORMER = re.compile(r"was ([^;]+);")


def reigns_of(path: Path) -> list[Reign]:
    """Return which policy decided when, from the audit log, in order; none if the database does not say."""
    last = policy_of(path)
    if last is None:
        return []
    sql = f"SELECT at, object, detail FROM audit WHERE result = 'done' AND action IN {SWITCHES} ORDER BY id"
    with closing(database.reader(path)) as reading:
        switches = reading.execute(sql).fetchall()
    former = _FORMER.match(switches[0][2]) if switches else None
    first = [] if former is None else [(-math.inf, former[1])]
    begun = [*first, *((at, policy) for at, policy, _ in switches)] or [(-math.inf, last)]
    ends = [*(at for at, _ in begun[1:]), math.inf]
    return [Reign(policy, at, end) for (at, policy), end in zip(begun, ends)]
