"""The jobs of a daemon's database that ended, as a trace of what happened, and its nodes; also while it is in use."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import ClusterError, InputError
from argosy.live.planner.messages import JobFacts
from argosy.live.states import State
from argosy.live.store import codec, database, rows
from argosy.live.store.schema import NODES
from argosy.workload.trace import Job, Trace

SIGNATURE = b"SQLite format 3\0"
HINT = "name the daemon's database, such as ~/.argosy/argosy.db, or a copy made by `argosy backup`"
STATUS = {State.SUCCEEDED: "completed", State.FAILED: "failed"}
MOST = 20_000  # of the newest jobs
SQL = f"SELECT {codec.JOB_COLUMNS} FROM jobs WHERE ended_s IS NOT NULL AND gpu_s > 0 ORDER BY ended_s DESC LIMIT ?"


def is_database(path: Path) -> bool:
    """Return whether a file begins as an SQLite database does."""
    try:
        with path.open("rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def read_ended_jobs(path: Path) -> Trace:
    """Return the jobs that ended by themselves; cancelled ones and those that still run have no known length."""
    try:
        with closing(database.reader(path)) as reading:
            found = [codec.job_of(row) for row in reading.execute(SQL, (MOST,))]
        ended = [_job(job) for job in found if job.state in STATUS and job.gpus_low > 0]
    except (sqlite3.Error, ValidationError, ValueError, KeyError, TypeError) as problem:
        what = f"this is no database of Argosy, or it is damaged: {str(problem).splitlines()[0]}"
        raise InputError(what, where=str(path), hint=HINT) from None
    if not ended:
        raise InputError("no job with GPUs has ended yet", where=str(path), hint="wait until jobs have ended")
    begin_s = min(job.submit_s for job in ended)
    return Trace.of_jobs([_later(job, begin_s) for job in ended], path.name)


def read_nodes(path: Path) -> Cluster:
    """Return the nodes that the daemon of a database had when it was last started."""
    hint = "name the cluster: --cluster cluster.yaml"
    try:
        with closing(database.reader(path)) as reading:
            found = reading.execute("SELECT value FROM meta WHERE key = ?", (NODES,)).fetchone()
        listed = json.loads(found[0]) if found is not None else []
        nodes = [Node(**node | {"islands": tuple(node["islands"])}) for node in listed]
        if nodes:
            return Cluster(tuple(nodes), path.stem)
    except (sqlite3.Error, ClusterError, ValueError, KeyError, TypeError) as problem:
        what = f"the nodes in this database are damaged: {str(problem).splitlines()[0]}"
        raise InputError(what, where=str(path), hint=hint) from None
    raise InputError("this database does not say what the cluster is", where=str(path), hint=hint)


def _job(job: rows.Job) -> Job:
    known = JobFacts.of(job.parsed, job.id, submitted_s=job.submitted_s, user=job.owner)
    elastic = known.max_gpus != known.min_gpus
    return Job(
        str(job.id),
        job.submitted_s,
        job.gpu_s / known.gpus,
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
    )


def _later(job: Job, begin_s: float) -> Job:
    return replace(job, submit_s=job.submit_s - begin_s)
